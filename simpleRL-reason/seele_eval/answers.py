r"""What the text of an answer says: which several answers, without which unit, and in a vote.

Pure functions on what stands in a ``\boxed{}``. Whether an answer is right is for ``seele_eval.grading``.
"""

import re

# What stands around an answer and says nothing. A backslash behind another one ends a line.
_DRESSING = re.compile(r"\\(?:left|right)(?=[\\{}()\[\].|])|(?<!\\)\\[,;:! ]|[$~]")
_TEXT_COMMAND = re.compile(r"\\(?:text(?:bf|rm|it)?|math(?:rm|bf)|boldsymbol)\s*\{([^{}]*)\}")

_COMMA = re.compile(r"\\text\s*\{\s*(?:[,;]|[,;]?\s*(?:and|or))\s*\}|\b(?:and|or)\b")
_PIECE = re.compile(
    r"(?P<separator>[,;]|\\\\|\\q?quad(?![A-Za-z]))"
    r"|(?P<opening>[(\[{]|\\begin\b)|(?P<closing>[)\]}]|\\end\b)|.",
    re.DOTALL,
)

# A unit ends an answer; no answer of a benchmark has a longer one.
_MAX_UNIT_CHARS = 40


def split_answers(text: str) -> list[str]:
    r"""The answers of ``$(1,8,19), (2,7,13)$`` or ``1,3,5``.

    Split outside brackets and environments: at commas, semicolons, ``and``, ``or``, ``\quad``, line ends.
    A part that begins with ``\pm`` stands for two. Braces of a set around all are dropped.
    """
    text = _DRESSING.sub("", text).strip()
    text = re.sub(r"^\\\{(.*)\\\}$", r"\1", text, flags=re.DOTALL)
    parts, depth = [""], 0
    for piece in _PIECE.finditer(_COMMA.sub(",", text)):
        depth += bool(piece["opening"]) - bool(piece["closing"])
        if piece["separator"] and depth <= 0:
            parts.append("")
        else:
            parts[-1] += piece[0]
    stripped = [part.strip() for part in parts if part.strip()]
    return [each for part in stripped for each in _both_signs(part)]


def _both_signs(part: str) -> list[str]:
    if not part.startswith("\\pm"):
        return [part]
    magnitude = part.removeprefix("\\pm").strip()
    return [magnitude, f"-{magnitude}"]


def drop_unit(answer: str, unit: str) -> str:
    r"""The answer without ``unit`` at its end, bare or as ``\text{unit}``, singular or plural."""
    if not unit:
        return answer
    head, tail = answer[:-_MAX_UNIT_CHARS], answer[-_MAX_UNIT_CHARS:]
    word = rf"{re.escape(unit.rstrip('s'))}s?"
    ending = rf"(?:\\[,;: ]|[\s~])*(?:\\(?:text|mathrm)\s*\{{\s*{word}\s*\}}|(?<![A-Za-z]){word})\s*\$?$"
    return head + re.sub(ending, "", tail)


def vote_key(answer: str) -> str:
    """What two answers have in common that count as one in a vote: the text without dressing and blanks."""
    text = _TEXT_COMMAND.sub(r"\1", _DRESSING.sub("", answer)).replace("\\dfrac", "\\frac")
    return re.sub(r"\s+", "", text.replace("\\tfrac", "\\frac")).rstrip(".")
