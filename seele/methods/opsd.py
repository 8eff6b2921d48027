"""OPSD (arXiv:2601.18734): a model that sees the worked solution teaches one that does not.

Differs from ``grpo``: the reward is not used; a token's advantage is how much more probable the reference
model finds it after the question and its solution than the policy did after the question alone.
"""

from seele.methods.method import Method

METHOD = Method(
    name="opsd",
    summary="the model that sees the solution scores each token that the policy wrote without it",
)
