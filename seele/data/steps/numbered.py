r"""Numbered steps and headings: ``Step 2:``, ``**Step 3**``, ``## Step 4``, ``1.``, ``(2)``, ``### Title``.

A list counts from 0 or 1 without gaps, at one indentation, so that a list within an item does not count. What
follows the last item is cut at its paragraphs.
"""

import bisect
import re
from collections import defaultdict
from collections.abc import Sequence

_HEAD = re.compile(
    r"(?P<indent>[ \t]*)(?P<mark>(?:\#{1,6}[ \t]*|\*\*|__|>[ \t]*|\\textbf\{)*+)"
    r"(?:(?:step|part|stage|phase)[ \t]*\#?(?P<step>\d{1,3})\b|\(?(?P<item>\d{1,3})[.):](?=[\s*]))?",
    re.IGNORECASE,
)
_CONCLUSION = re.compile(
    # Within its line: from paragraph to paragraph, the rest of the text would be read every time.
    r"[^\w\n]*+(?:therefore|thus|hence|so|(?:in )?conclusion|(?:the )?(?:final )?answer)\b"
    r"|\#\#\#\#|[^\n]*\\boxed",
    re.IGNORECASE,
)


def numbered_cuts(text: str, line_starts: Sequence[int], paragraphs: Sequence[int]) -> list[int]:
    """Where numbered steps begin, or else headings, and what follows them; nothing where there are fewer than
    two of them.

    Args:
        text: The text.
        line_starts: Starts of lines at which a cut is legal, in order.
        paragraphs: Those of them that begin a paragraph.
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
