"""Un-hinted evaluation of a model. Start at ``seele_eval.run``."""
