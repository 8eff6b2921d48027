"""From run folders to a comparison of methods at equal cost. Start at ``analysis`` and ``build``."""
