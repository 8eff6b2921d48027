"""Worked solutions cut into steps, after each of which a hint may end.

``"".join(steps)`` is the solution's text, so a step includes its trailing whitespace; no step is blank. Every
cut is legal (``seele.data.steps.protected``): never within maths, code, a table or braces. The layout of the
text decides where it is cut: at numbered steps or headings, else paragraphs, else lines, else sentences; a
piece that holds most of the text is cut further. docs/steps.md has examples.

Numbered steps and headings look like ``Step 2:``, ``**Step 3**``, ``## Step 4``, ``1.``, ``(2)`` or
``### Title``. A list counts from 0 or 1 without gaps, at one indentation, so that a nested list does not
count. The text after the last item is cut at its paragraphs.

A sentence ends at ``.``, ``!`` or ``?`` before whitespace and the beginning of another sentence. It does not
end within a decimal, after an abbreviation (``e.g.``, ``Fig. 3``), an initial (``J. Smith``) or the number of
a list item (``2. Compute``).
"""

import bisect
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from seele.data.steps.protected import legal_cuts, protected_spans

_HEAD = re.compile(
    r"(?P<indent>[ \t]*)(?P<mark>(?:\#{1,6}[ \t]*|\*\*|__|>[ \t]*|\\textbf\{)*+)"
    r"(?:(?:step|part|stage|phase)[ \t]*\#?(?P<step>\d{1,3})\b|\(?(?P<item>\d{1,3})[.):](?=[\s*]))?",
    re.IGNORECASE,
)
_CONCLUSION = re.compile(
    # Within one line: otherwise the rest of the text would be scanned at each paragraph.
    r"[^\w\n]*+(?:therefore|thus|hence|so|(?:in )?conclusion|(?:the )?(?:final )?answer)\b"
    r"|\#\#\#\#|[^\n]*\\boxed",
    re.IGNORECASE,
)


def numbered_cuts(text: str, line_starts: Sequence[int], paragraphs: Sequence[int]) -> list[int]:
    """Return where numbered steps begin, or else headings, and the text after the last; empty if there are
    fewer than two of them.

    Args:
        text: The text.
        line_starts: Starts of lines at which a cut is legal, in order.
        paragraphs: The line starts that begin a paragraph.
    """
    steps: list[int] = []
    headings: list[int] = []
    items: dict[int, list[int]] = defaultdict(list)
    expected: dict[int, int] = {}
    for start in line_starts:
        head = _HEAD.match(text, start)
        assert head is not None, "every part of a head is optional"
        indent = len(head["indent"].expandtabs(4))
        if head["step"]:
            steps.append(start)
        elif head["item"]:
            number = int(head["item"])
            if number == expected.get(indent, number if number < 2 else None):
                items[indent].append(start)
                expected[indent] = number + 1
        elif "#" in head["mark"]:
            headings.append(start)
    lists = [starts for _, starts in sorted(items.items()) if len(starts) >= 2]
    for found in (steps, *lists, headings):
        if len(found) >= 2:
            return _with_tail(text, found, paragraphs, is_list=found is not steps and found is not headings)
    return []


def _with_tail(text: str, heads: list[int], paragraphs: Sequence[int], *, is_list: bool) -> list[int]:
    tail = paragraphs[bisect.bisect_right(paragraphs, heads[-1]) :]
    for position, cut in enumerate(tail):
        unindented = not text[cut].isspace()
        if _CONCLUSION.match(text, cut) or (is_list and unindented):
            tail = tail[position:]
            break
    else:
        tail = []
    return [*heads, *tail]


# Closing quotes, brackets and dollars still belong to the sentence; the next one does not begin with a
# lower-case letter or an operator. Chinese and Japanese sentences end without a blank, as does a displayed
# formula.
_CLOSING = r"(?:[\"'\u201d\u2019)\]*_$]|\\[)\]])*+"
_END = re.compile(
    rf"(?<![.!?])(?P<mark>[.!?]++){_CLOSING}\s++"
    r"(?=[\"'\u201c\u2018(\[*_$\\#]*+(?P<next>[^\W_]|[-\u2013\u2022]))"
    r"|[\u3002\uff01\uff1f][\"'\u201d\u2019\uff09\u300d]*+\s*+"
    r"|(?:\\\]|\$\$|\\end\{[a-z]{1,12}\*?\})\s*+(?=[A-Z])"
)
_LAST_WORD = re.compile(r"[^\s(\[{\"'\u201c\u2018$]*\Z")
_BEFORE = 40  # characters examined before the mark; no abbreviation with its context is longer

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
    """Yield the positions at which a sentence begins after another one, past any whitespace, in order."""
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
    """True if a capital is part of a name: ``J. Smith``, ``Donald E. Knuth``, but not ``at point D. The``."""
    following = re.match(r"\w*", text[match.end() : match.end() + _BEFORE])
    word = following[0] if following else ""
    if word.lower() in _STARTERS or not word[:1].isupper():
        return False
    previous = before.rpartition(" ")[2]
    return not previous or previous[0].isupper() or previous.lower() == "by" or previous.endswith(".")


# A line's end, with the blank lines after it: the next line keeps its indentation.
_LINE_END = re.compile(r"\n(?:[ \t\r]*\n)*")
_DISPLAY = re.compile(r"\s*(?:\\\[|\$\$|\\begin\b)")
_UNFINISHED = re.compile(r"[:,]\W*\Z|[A-Za-z,;]\s*\Z")
_WRAPPED_CHARS = 60  # a line of at least this length that ends within a sentence is wrapped, not finished
_DOMINANT = 2 / 3  # share of the text's characters from which on a piece is cut further


def split_steps(text: str, *, max_steps: int | None = None) -> tuple[str, ...]:
    """Cut a worked solution into steps.

    Args:
        text: The solution. Marks may be unbalanced; nothing is cut after one that is never closed.
        max_steps: Merge neighbours into at most this many steps of similar length; None merges nothing.

    Returns:
        The steps, whose concatenation is ``text``; empty for a blank text.
    """
    spans = protected_spans(text)
    line_ends = [match.span() for match in _LINE_END.finditer(text) if match.end() < len(text)]
    line_starts = legal_cuts([0, *(end for _, end in line_ends)], spans)
    lines = [start for start in line_starts if start and not _goes_on(text, start)]
    after_blank = {end for start, end in line_ends if end - start > 1}
    paragraphs = [start for start in lines if start in after_blank]
    numbered = numbered_cuts(text, line_starts, paragraphs)
    sentences = sorted({*lines, *legal_cuts(sentence_ends(text), spans)})
    cuts = list(_refined((0, len(text)), [numbered, paragraphs, lines, sentences], len(text)))
    return _merge(_pieces(text, cuts), max_steps)


def split_sentences(text: str) -> tuple[str, ...]:
    """Cut a text at its lines and sentences, with the guarantees of ``split_steps``."""
    ends = {match.end() for match in _LINE_END.finditer(text)} | set(sentence_ends(text))
    return _pieces(text, legal_cuts(sorted(ends), protected_spans(text)))


def join_steps(steps: Sequence[str], *, separator: str) -> tuple[str, ...]:
    """Make a source's own list of steps legal by merging steps until every cut between them is legal.

    Args:
        steps: The source's steps, which may include blank ones and parts of formulas.
        separator: Text between the steps in the original; it is appended to each step but the last.

    Returns:
        Steps whose concatenation is ``separator.join(steps)``; empty if all steps are blank.
    """
    text = separator.join(steps)
    ends = itertools.accumulate(len(step) + len(separator) for step in steps[:-1])
    return _pieces(text, legal_cuts(ends, protected_spans(text)))


def _pieces(text: str, cuts: Sequence[int]) -> tuple[str, ...]:
    """Return the text between the cuts; a blank piece joins the one before it, or else the one after it."""
    pieces: list[str] = []
    start = 0
    for cut in (*cuts, len(text)):
        piece = text[start:cut]
        if pieces and not piece.strip():
            pieces[-1] += piece
        elif piece.strip():
            pieces.append(piece)
        else:
            continue
        start = cut
    return tuple(pieces)


def _refined(span: tuple[int, int], levels: Sequence[Sequence[int]], total: int) -> Iterator[int]:
    """Yield the cuts of the first level that has any in ``span``, and those of later levels within a large
    piece that is not a numbered item.
    """
    start, end = span
    for depth, cuts in enumerate(levels):
        here = cuts[bisect.bisect_right(cuts, start) : bisect.bisect_left(cuts, end)]
        if here:
            for piece_start, piece_end in itertools.pairwise([start, *here, end]):
                if piece_start > start:
                    yield piece_start
                is_item = depth == 0 and cuts[bisect.bisect_left(cuts, piece_start)] == piece_start
                if not is_item and piece_end - piece_start >= _DOMINANT * total:
                    yield from _refined((piece_start, piece_end), levels[depth + 1 :], total)
            return


def _goes_on(text: str, cut: int) -> bool:
    """Return True if a cut at this line end would split a sentence, or separate it from its formula."""
    before = text[max(0, cut - _WRAPPED_CHARS - 20) : cut].rstrip()
    after = text[cut : cut + _WRAPPED_CHARS].lstrip()
    if _DISPLAY.match(after) or before.endswith(":"):
        return True
    last_line = before.rpartition("\n")[2]
    is_open = _UNFINISHED.search(before) is not None and len(last_line) >= _WRAPPED_CHARS
    return after[:1].islower() and (is_open or before.endswith((r"\]", "$$", "}", ",")))


def _merge(steps: tuple[str, ...], max_steps: int | None) -> tuple[str, ...]:
    """Merge neighbours into ``max_steps`` groups whose ends come closest to equal shares of the text."""
    if max_steps is None or len(steps) <= max_steps:
        return steps
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    ends = list(itertools.accumulate(map(len, steps)))
    groups, first = [], 0
    for group in range(1, max_steps):
        ideal = ends[-1] * group / max_steps
        # At least one step for this group, and one for each group to come.
        low, high = first + 1, len(steps) - (max_steps - group)
        last = min(max(bisect.bisect_left(ends, ideal), low), high)
        if last > low and ideal - ends[last - 2] < ends[last - 1] - ideal:
            last -= 1
        elif last < high and abs(ends[last] - ideal) < abs(ends[last - 1] - ideal):
            last += 1
        groups.append("".join(steps[first:last]))
        first = last
    return (*groups, "".join(steps[first:]))
