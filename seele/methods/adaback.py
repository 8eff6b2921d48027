"""AdaBack (arXiv:2506.18110): a random search for the shortest hint from which a problem is solved.

Differs from ``grpo``: each problem has an interval of hint ratios; a success cuts it from above, a failure
from below. No loss is computed on the hint.
"""

from seele.methods.method import Method

METHOD = Method(
    name="adaback", summary="hints from an interval that successes and failures cut", controllers=("adaback",)
)
