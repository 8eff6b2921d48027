r"""Where sentences end: at ``.``, ``!`` or ``?`` before a blank and the beginning of another sentence.

No sentence ends within a decimal, after an abbreviation (``e.g.``, ``Fig. 3``), an initial (``J. Smith``) or
the number of a list item (``2. Compute``). Formulas are not looked at: see ``seele.data.steps.protected``.
"""

import re
from collections.abc import Iterator

# Closing quotes, brackets and dollars still belong to the sentence; what begins the next is no lower-case
# letter and no operator. Chinese and Japanese sentences end without a blank, as does a displayed formula.
_CLOSING = r"(?:[\"'\u201d\u2019)\]*_$]|\\[)\]])*+"
_END = re.compile(
    rf"(?<![.!?])(?P<mark>[.!?]++){_CLOSING}\s++"
    r"(?=[\"'\u201c\u2018(\[*_$\\#]*+(?P<next>[^\W_]|[-\u2013\u2022]))"
    r"|[\u3002\uff01\uff1f][\"'\u201d\u2019\uff09\u300d]*+\s*+"
    r"|(?:\\\]|\$\$|\\end\{[a-z]{1,12}\*?\})\s*+(?=[A-Z])"
)
_LAST_WORD = re.compile(r"[^\s(\[{\"'\u201c\u2018$]*\Z")
_BEFORE = 40  # characters before the mark that are looked at; no abbreviation with its context is longer

_ABBREVIATIONS = """
    e.g i.e cf vs viz resp approx w.l.o.g w.r.t s.t a.k.a fig figs eq eqs eqn eqns sec thm lem prop cor def mr
    mrs ms dr prof st messrs al ca rs incl
"""
_ABBREVIATIONS_BEFORE_NUMBERS = "no nos ex exs p pp vol ch chap ref refs art pt q ques step part case"
_FIRST_WORDS = """
    a an and as assume because but by consider find finally first for from given hence here how however if in
    it let next note now on one since so substituting suppose the then there therefore these this thus to we
    what when where which
"""
_ALWAYS = frozenset(_ABBREVIATIONS.split())
_BEFORE_NUMBERS = frozenset(_ABBREVIATIONS_BEFORE_NUMBERS.split())
_STARTERS = frozenset(_FIRST_WORDS.split())
_NUMBER = re.compile(r"\(?(?:\d{1,3}|[ivx]{1,4}|[a-hA-H])\)?")


def sentence_ends(text: str) -> Iterator[int]:
    """Positions at which a sentence begins after another one, blanks between them passed; in order."""
    begin = 0
    for match in _END.finditer(text):
        if match["mark"] is None or _is_end(text, match, begin):
            if match.end() < len(text):
                yield match.end()
            begin = match.end()


def _is_end(text: str, match: re.Match[str], begin: int) -> bool:
    mark, following = match["mark"], match["next"]
    if following.islower():
        return False
    head = text[max(begin, match.start() - _BEFORE) : match.start()]
    if mark == "!":
        # "5! 3" is a factorial.
        return not (following.isdigit() and head[-1:].isdigit())
    if mark != ".":
        return not (mark.startswith("..") and following.isdigit())
    last = _LAST_WORD.search(head)
    word = last[0] if last else ""
    before = head[: len(head) - len(word)].strip()
    if word.lower() in _ALWAYS:
        return False
    if word.lower() in _BEFORE_NUMBERS and following.isdigit():
        return False
    if not before.rpartition("\n")[2] and _NUMBER.fullmatch(word) and len(head) < _BEFORE:
        return False  # the number of a list item, at the beginning of a sentence
    if re.fullmatch(r"(?:[A-Z]\.)*[A-Z]", word):
        return not _is_initial(text, before, match)
    return True


def _is_initial(text: str, before: str, match: re.Match[str]) -> bool:
    """Whether a capital is part of a name: ``J. Smith``, ``Donald E. Knuth``, but not ``at point D. The``."""
    following = re.match(r"\w*", text[match.end() : match.end() + _BEFORE])
    word = following[0] if following else ""
    if word.lower() in _STARTERS or not word[:1].isupper():
        return False
    previous = before.rpartition(" ")[2]
    return not previous or previous[0].isupper() or previous.lower() == "by" or previous.endswith(".")
