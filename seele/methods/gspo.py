"""GSPO (arXiv:2507.18071): the ratio of a whole response is clipped, not that of each token.

Differs from ``grpo``: the ratio is the geometric mean over the response's tokens, clipped within a few
ten-thousandths (``actor_rollout_ref.actor.policy_loss.loss_mode=gspo``). No KL term.
"""

from seele.methods.method import Method

METHOD = Method(name="gspo", summary="GRPO with one clipped ratio per response, no KL")
