"""Grading: extraction of answers from a text, and verdicts from worker processes that can be killed."""
