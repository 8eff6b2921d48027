r"""Split an answer's text into several answers, drop its unit, and normalise it for a vote.

Pure functions on the content of a ``\boxed{}``. ``seele_eval.grading`` decides whether an answer is right.
"""

import re

# Dressing around an answer that does not change it. A double backslash ends a line.
_DRESSING = re.compile(r"\\(?:left|right)(?=[\\{}()\[\].|])|(?<!\\)\\[,;:! ]|[$~]")
_TEXT_COMMAND = re.compile(r"\\(?:text(?:bf|rm|it)?|math(?:rm|bf)|boldsymbol)\s*\{([^{}]*)\}")

_COMMA = re.compile(r"\\text\s*\{\s*(?:[,;]|[,;]?\s*(?:and|or))\s*\}|\b(?:and|or)\b")
_PIECE = re.compile(
    r"(?P<separator>[,;]|\\\\|\\q?quad(?![A-Za-z]))"
    r"|(?P<opening>[(\[{]|\\begin\b)|(?P<closing>[)\]}]|\\end\b)|.",
    re.DOTALL,
)

# A unit stands at an answer's end; the benchmarks have no longer units.
_MAX_UNIT_CHARS = 40


def split_answers(text: str) -> list[str]:
    r"""Split a text such as ``$(1,8,19), (2,7,13)$`` or ``1,3,5`` into its answers.

    The text is split outside brackets and environments, at commas, semicolons, ``and``, ``or``, ``\quad`` and
    line ends. A part that begins with ``\pm`` stands for two. Braces around the whole set are dropped.
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
    """Key of an answer in a vote: its text without dressing and blanks."""
    text = _TEXT_COMMAND.sub(r"\1", _DRESSING.sub("", answer)).replace("\\dfrac", "\\frac")
    return re.sub(r"\s+", "", text.replace("\\tfrac", "\\frac")).rstrip(".")
