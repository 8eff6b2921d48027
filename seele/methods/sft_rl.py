"""Supervised fine-tuning on a share of the problems, then Dr. GRPO on the others (SFT+RL in LUFFY,
arXiv:2504.14945).

Composes ``sft`` and ``drgrpo``: the second stage starts from the first stage's model, and sees none of the
first stage's problems.
"""

from seele.methods.method import Method

METHOD = Method(
    name="sft_rl",
    summary="supervised fine-tuning on one part of the problems, then Dr. GRPO on the rest",
    stages=("sft", "rl"),
)
