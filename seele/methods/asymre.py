"""AsymRE (arXiv:2506.20520): REINFORCE with a baseline below the mean, so that successes weigh more.

Differs from ``grpo``: no ratio and no clipping (``actor_rollout_ref.actor.policy_loss.loss_mode=gpg``); the
baseline is the group's mean - 0.1 (``seele.advantage.shift``); a sum over tokens, because with a mean a
shift would favour shorter responses; no standard deviation, no KL term.
"""

from seele.methods.method import Method

METHOD = Method(name="asymre", summary="REINFORCE with a baseline below the group's mean, no KL")
