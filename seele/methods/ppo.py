"""PPO (arXiv:1707.06347) with a critic: a second model of the policy's size predicts the reward.

Differs from ``grpo``: advantages are generalised advantage estimates (arXiv:1506.02438) against the critic's
values, one per token, whitened over the batch; a group's rollouts are not compared with each other. Losses
are averaged over the batch's tokens, and there is no KL term. Critic, values and estimates are verl's.
"""

from seele.methods.method import Method

METHOD = Method(name="ppo", summary="a critic's values as baseline, token by token", estimator="gae")
