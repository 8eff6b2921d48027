r"""Worked solutions as steps, the places where a hint may end.

``"".join(steps)`` is the solution's text, so a step carries its own trailing blanks; no step is blank; every
cut is legal (``seele.data.steps.protected``): never within maths, code, a table or braces. Which cuts are
made follows from how the text is laid out: numbered steps or headings, else paragraphs, else lines, else
sentences; a piece that holds most of the text is looked at once more. docs/steps.md has examples.
"""

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence

from seele.data.steps.numbered import numbered_cuts
from seele.data.steps.protected import legal_cuts, protected_spans
from seele.data.steps.sentences import sentence_ends

# A line's end, with the blank lines after it: the next line keeps its indentation.
_LINE_END = re.compile(r"\n(?:[ \t\r]*\n)*")
_DISPLAY = re.compile(r"\s*(?:\\\[|\$\$|\\begin\b)")
_UNFINISHED = re.compile(r"[:,]\W*\Z|[A-Za-z,;]\s*\Z")
_WRAPPED_CHARS = 60  # a line at least so long that ends within a sentence is wrapped, not finished
_DOMINANT = 2 / 3  # of the text's characters; a piece of at least so many is cut further


def split_steps(text: str, *, max_steps: int | None = None) -> tuple[str, ...]:
    """Cut a worked solution into steps.

    Args:
        text: The solution. Marks may be unbalanced; nothing is cut after one that is never closed.
        max_steps: Merge neighbours into at most so many steps of similar length; None leaves them.

    Returns:
        The steps, whose concatenation is ``text``. None for a blank text.
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
    """Cut a text at its lines and sentences, with the promises of ``split_steps``."""
    ends = {match.end() for match in _LINE_END.finditer(text)} | set(sentence_ends(text))
    return _pieces(text, legal_cuts(sorted(ends), protected_spans(text)))


def join_steps(steps: Sequence[str], *, separator: str) -> tuple[str, ...]:
    """Make a source's own list of steps legal: pieces are merged until every cut between them is.

    Args:
        steps: The source's steps, blank ones and halves of formulas among them.
        separator: What stood between them in the original text; each step gets its own at its end.

    Returns:
        Steps whose concatenation is ``separator.join(steps)``. None where all steps are blank.
    """
    text = separator.join(steps)
    ends = itertools.accumulate(len(step) + len(separator) for step in steps[:-1])
    return _pieces(text, legal_cuts(ends, protected_spans(text)))


def _pieces(text: str, cuts: Sequence[int]) -> tuple[str, ...]:
    """The text between the cuts; a blank piece goes to the one before it, or else to the one after it."""
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
    """The cuts of the first level that has some within ``span``, and of later ones within a large piece that
    is no numbered item.
    """
    start, end = span
    for depth, cuts in enumerate(levels):
        here = cuts[bisect.bisect_right(cuts, start) : bisect.bisect_left(cuts, end)]
        if here:
            for piece_start, piece_end in itertools.pairwise([start, *here, end]):
                if piece_start > start:
                    yield piece_start
                is_item = depth == 0 and piece_start in cuts
                if not is_item and piece_end - piece_start >= _DOMINANT * total:
                    yield from _refined((piece_start, piece_end), levels[depth + 1 :], total)
            return


def _goes_on(text: str, cut: int) -> bool:
    """Whether a cut at this end of a line would tear a sentence from its rest or from its formula."""
    before = text[max(0, cut - _WRAPPED_CHARS - 20) : cut].rstrip()
    after = text[cut : cut + _WRAPPED_CHARS].lstrip()
    if _DISPLAY.match(after) or before.endswith(":"):
        return True
    last_line = before.rpartition("\n")[2]
    is_open = _UNFINISHED.search(before) is not None and len(last_line) >= _WRAPPED_CHARS
    return after[:1].islower() and (is_open or before.endswith((r"\]", "$$", "}", ",")))


def _merge(steps: tuple[str, ...], max_steps: int | None) -> tuple[str, ...]:
    """Neighbours merged into ``max_steps`` groups whose ends come closest to equal shares of the text."""
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
