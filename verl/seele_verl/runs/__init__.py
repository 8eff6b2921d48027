"""A run's folder: card, log, lock, checkpoints, stages, and where a run resumes."""
