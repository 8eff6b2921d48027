"""AdaPrefix-GRPO (arXiv:2607.07674): the hint of each problem follows its moving success rate.

Differs from ``grpo``: every ten steps a hint grows or shrinks by the distance of the rate from one half; all
hints are withdrawn late in the run. No loss is computed on the hint.
"""

from seele.methods.method import Method

METHOD = Method(
    name="adaprefix",
    summary="hints that follow each problem's moving success rate, withdrawn late",
    controllers=("adaprefix",),
)
