"""DAPO (arXiv:2503.14476): GRPO with four changes that keep exploration and signal alive.

Differs from ``grpo``, all by verl's own keys: the ratio is clipped higher above than below
(``clip_ratio_high``); groups whose rollouts all agree are replaced until the batch is full
(``algorithm.filter_groups``); losses are averaged over the batch's tokens; long responses lose reward
(``reward.reward_kwargs.overlong_buffer_cfg``). No KL term.
"""

from seele.methods.method import Method

METHOD = Method(name="dapo", summary="clip-higher, group filtering, token mean, overlong penalty, no KL")
