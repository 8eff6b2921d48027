r"""The last ``\boxed{}`` of a text, where worked solutions and answers state their result, and canonical
numbers.
"""

import re

BOX = r"\boxed"
OPENING = BOX + "{"

TEXT_COMMAND = r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:bf|it|rm|sf|tt)|boldsymbol|bm|mbox)"
"""Pattern of LaTeX commands that change only the look of what stands in their braces."""


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` with its braces balanced, without surrounding blanks.

    ``None`` if there is no box or the last one is never closed: the last answer counts, and a truncated one
    is not replaced by an earlier one. Linear in the length of the text.

    Same rule as ``mathruler.grader.extract_boxed_content`` (MathRuler 0.1.0), except that a missing box gives
    ``None`` here and the text ``"None"`` there.
    """
    start = text.rfind(OPENING)
    if start < 0:
        return None
    start += len(OPENING)
    depth = 1
    for position in range(start, len(text)):
        if text[position] == "{":
            depth += 1
        elif text[position] == "}":
            depth -= 1
            if not depth:
                return text[start:position].strip()
    return None


def canonical_number(digits: str) -> str:
    """The number in canonical form: ``"012,300.50"`` becomes ``"12300.5"``."""
    whole, _, part = re.sub(r"[^\d.]", "", digits).partition(".")
    return f"{whole.lstrip('0') or '0'}.{part.rstrip('0')}".rstrip(".")
