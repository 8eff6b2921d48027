r"""The final answer of a generated text: what stands in its last ``\boxed{}``."""

from seele.maths.boxed import OPENING, last_boxed

__all__ = ["answer_in", "last_boxed"]


def answer_in(text: str) -> str | None:
    """``last_boxed`` of a text with a box; a text without any box is taken as the answer itself."""
    return last_boxed(text) if OPENING in text else text
