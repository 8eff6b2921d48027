"""OPMD (arXiv:2505.17826, Trinity-RFT): REINFORCE without ratios, against the mean of the group.

Differs from ``grpo``: no ratio and no clipping (``actor_rollout_ref.actor.policy_loss.loss_mode=gpg``); no
standard deviation; a mean over the batch's tokens; no KL term.
"""

from seele.methods.method import Method

METHOD = Method(name="opmd", summary="REINFORCE without ratios against the group's mean, no KL")
