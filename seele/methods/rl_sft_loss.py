"""RL with an SFT loss (baseline of LUFFY, arXiv:2504.14945): GRPO on rollouts, likelihood of the solution.

Differs from ``luffy``: the worked solution does not affect the advantages; its tokens have the negative
log-likelihood, averaged over tokens, as a loss besides the surrogate of the others.
"""

from seele.methods.method import Method

METHOD = Method(
    name="rl_sft_loss",
    summary="on-policy updates plus the likelihood of one worked solution",
    off_policy="trace",
)
