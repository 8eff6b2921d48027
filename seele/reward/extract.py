r"""The final answer of a generated text: what stands in its last ``\boxed{}``."""

from seele.maths.boxed import OPENING, last_boxed

__all__ = ["answer_in", "last_boxed", "opens_thoughts", "text_after_thinking"]

THINK, END_OF_THINKING = "<think>", "</think>"


def answer_in(text: str) -> str | None:
    """``last_boxed`` of a text with a box; a text without any box is taken as the answer itself."""
    return last_boxed(text) if OPENING in text else text


def opens_thoughts(prompt: str) -> bool:
    """Whether a prompt ends with ``<think>``, so that a response begins within the thoughts."""
    return prompt.rstrip().endswith(THINK)


def text_after_thinking(text: str, *, begun: bool) -> str | None:
    """What stands behind the last ``</think>``; None where the thoughts never end.

    Without a ``</think>`` the thoughts go on to the end where ``begun``, because the prompt ends with
    ``<think>``, or where the text begins with that itself; else there are none, and the whole text counts.
    LUFFY's evaluation (arXiv:2504.14945, eval_scripts/generate_vllm.py) goes by the prompt alone, and takes
    what stands between the first and the second ``</think>``.
    """
    _, end, behind = text.rpartition(END_OF_THINKING)
    if end:
        return behind
    return None if begun or text.lstrip().startswith(THINK) else text
