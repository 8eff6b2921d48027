"""Supervised fine-tuning on the worked solutions: no rollouts, no reward.

Differs from ``grpo``: verl's SFT trainer instead of its RL trainer; the loss is the negative log-likelihood
of the solution's tokens and of the end of the text, averaged over all of them in the step's batch. Prompts
and the tokens of the solution's steps are the same as those of hints.
"""

from seele.methods.method import Method

METHOD = Method(
    name="sft",
    summary="supervised fine-tuning on the worked solutions",
    stages=("sft",),
)
