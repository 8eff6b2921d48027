"""OPSD (arXiv:2601.18734): the model that sees the worked solution teaches the one that does not.

Differs from ``grpo``: no reward is read; a token's advantage is how much more probable the reference model
finds it behind the question with its solution than the policy did behind the question alone.
"""

from seele.methods.method import Method

METHOD = Method(
    name="opsd",
    summary="the model that sees the solution scores each token that the policy wrote without it",
)
