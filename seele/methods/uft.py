"""UFT (arXiv:2505.16984): all rollouts of a problem share one hint, whose length falls over training.

Differs from ``grpo``: a binomial number of the solution's parts is revealed, with a probability that falls
along a cosine and is 0 after 60 % of the steps; hint tokens have an imitation term; all terms are means over
tokens.
"""

from seele.methods.method import Method

METHOD = Method(
    name="uft", summary="hints of a random length that falls over training, imitated", controllers=("uft",)
)
