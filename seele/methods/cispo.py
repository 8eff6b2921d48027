"""CISPO (MiniMax-M1, arXiv:2506.13585): the importance weight is clipped, and no token loses its gradient.

Differs from ``grpo``: REINFORCE with each token's ratio as a constant weight, bounded only above
(``actor_rollout_ref.actor.policy_loss.loss_mode=cispo``); losses are averaged over the batch's tokens. No KL
term.
"""

from seele.methods.method import Method

METHOD = Method(name="cispo", summary="REINFORCE with a clipped importance weight, token mean, no KL")
