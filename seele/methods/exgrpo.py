"""ExGRPO (arXiv:2510.02245): some groups contain one of the policy's own earlier successes.

Differs from ``drgrpo``: half of a step's problems come from a pool of problems that were sometimes solved.
The success of which the policy is most certain is replayed with its original log-probabilities, and shaped
like LUFFY's solutions. Steps with replays are not clipped.
"""

from seele.methods.method import Method

METHOD = Method(name="exgrpo", summary="replays the policy's own earlier successes", off_policy="replay")
