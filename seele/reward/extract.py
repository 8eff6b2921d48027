r"""The final answer of a generated text: what stands in its last ``\boxed{}``.

Same rule as ``mathruler.grader.extract_boxed_content`` (MathRuler 0.1.0), but for absence, which is ``None``
here and the text ``"None"`` there.
"""

_OPENING = r"\boxed{"


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` with its braces balanced, without surrounding blanks.

    ``None`` if there is no box or the last one is never closed: what was said last counts, and an answer that
    was cut off is not replaced by an earlier one. Linear in the length of the text.
    """
    start = text.rfind(_OPENING)
    if start < 0:
        return None
    start += len(_OPENING)
    depth = 1
    for position in range(start, len(text)):
        if text[position] == "{":
            depth += 1
        elif text[position] == "}":
            depth -= 1
            if not depth:
                return text[start:position].strip()
    return None


def answer_in(text: str) -> str | None:
    """``last_boxed`` of a text with a box; a text without any box is taken as the answer itself."""
    return last_boxed(text) if _OPENING in text else text
