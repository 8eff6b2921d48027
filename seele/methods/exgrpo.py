"""ExGRPO (arXiv:2510.02245): some groups hold one of the policy's own earlier successes.

Differs from ``drgrpo``: half of a step's problems come from a pool of problems that were solved sometimes; a
success that the policy is surest of is replayed with the log-probabilities that it was written with, and
shaped like LUFFY's solutions; steps with replays are not clipped.
"""

from seele.methods.method import Method

METHOD = Method(name="exgrpo", summary="replays the policy's own earlier successes", off_policy="replay")
