"""From a run folder to one HTML page with figures and a summary. Start at ``seele.report.build``."""
