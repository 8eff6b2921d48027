"""Is the answer right? Extraction from a text, and grading in worker processes that can be killed."""
