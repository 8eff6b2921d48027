r"""Milestones of a worked solution, and how far along them a response comes. Pure; linear in the text.

A *milestone* is a value that a step of the worked solution computes and that stands neither in the question
nor in an earlier step; the last one is the final answer. A response is walked from left to right: a result
``= 24`` with a milestone's value passes it, and the first sure error ends the walk. Two kinds of text:

* *chains* (``seele.data.tasks.chains``), ``7a+5=2``: the letter names the operation, so every value is
  compared with the solution's. Exact.
* *free text*, which may take another way to the answer. What is not a milestone's value is neither right
  nor wrong; an error is sure only where an equation is false by itself, however it is read: with and without
  precedence of signs, units, per cents, rounding of what goes in and what comes out, ``5 + 3 = 8 * 2 = 16``.

Segments, offsets and hints count characters; tokens are the caller's. What a milestone is worth does not
live here. What the walk finds in real text stands in docs/milestones.md.
"""

import functools
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seele.records import Instance, Milestone


class Segment(NamedTuple):
    """The part of a response that belongs to one milestone."""

    start: int
    """First character; where the segment before ends."""
    end: int
    """Behind its last character."""
    milestone_index: int
    passed: bool


@dataclass(frozen=True, slots=True)
class Walk:
    """What a response did with the milestones."""

    segments: tuple[Segment, ...]
    """In order, without gaps from 0 on. Milestones without a segment were skipped, or not come to."""
    first_error: int | None
    """Where the first wrong value begins, the last segment ending behind it; None where no error is sure."""


def milestones_of(instance: Instance) -> tuple[Milestone, ...]:
    """The stored milestones of a problem, or what ``find_milestones`` finds where nobody has looked."""
    if instance.milestones is not None:
        return instance.milestones
    return find_milestones(instance.question, instance.steps, instance.answer)


def num_shown(milestones: Sequence[Milestone], hint_chars: int) -> int:
    """How many leading milestones a hint of so many characters states (``walk``'s ``shown``)."""
    return sum(milestone.end <= hint_chars for milestone in milestones)


def find_milestones(question: str, steps: Sequence[str], answer: str) -> tuple[Milestone, ...]:
    """The milestones of a worked solution, in order; at most one a step, the last new value of it.

    A step whose value is the final answer's has none of its own: the last milestone stands for it.

    Args:
        question: The problem; its numbers are nobody's achievement.
        steps: The worked solution, cut anywhere; may be empty.
        answer: The reference answer, the value of the last milestone.
    """
    text = "".join(steps)
    if _CHAIN_QUESTION.fullmatch(question.strip()) and (links := list(_CHAIN_STEP.finditer(text))):
        found = [Milestone(link["value"], link.end(), link["left"]) for link in links[:-1]]
        return (*found, Milestone(answer, len(text), links[-1]["left"]))
    found, own_left = [], ""
    end = 0
    for step, stated in zip(steps, stated_values(question, steps), strict=True):
        for result in reversed(stated):
            if _same_value(result.value, answer):
                own_left = result.left
                break
            if result.is_new:
                found.append(Milestone(result.value, end + result.end, result.left))
                break
        end += len(step)
    return (*found, Milestone(answer, len(text), own_left))


class StatedValue(NamedTuple):
    """A value that a step computes."""

    value: str
    end: int
    """Characters of the step up to the end of the value."""
    left: str
    """The left side of its equation, blanks and units left out; empty where that is not all numbers."""
    is_new: bool
    """Whether it stands neither in the question nor in an earlier step."""


def stated_values(question: str, steps: Sequence[str]) -> list[list[StatedValue]]:
    """The results of each step's equations, in order."""
    known = _numbers(_tokens(question))
    found: list[list[StatedValue]] = []
    for step in steps:
        tokens = _tokens(step)
        results = [equation for equation in _equations(tokens) if equation.value is not None]
        found.append(
            [
                StatedValue(each.value, each.end, each.left, each.value not in known)
                for each in results
                if each.value is not None
            ]
        )
        known |= _numbers(tokens)
    return found


def walk(milestones: Sequence[Milestone], text: str, *, correct: bool | None, shown: int = 0) -> Walk:
    r"""Walk a response along the milestones.

    Passed segments come first. Then one that ends with the text and belongs to the last milestone: passed
    where the final answer is right, failed where it is wrong and no error was sure, and left out where nobody
    knows. A sure error has a failed segment instead, which ends behind the wrong value.

    Args:
        milestones: Of ``find_milestones``; without any, nothing is walked.
        text: The response, without prompt and hint.
        correct: Whether its final answer is right; then nothing is an error. None where nobody knows: then
            the last ``\boxed{}`` counts if it is written as the answer is.
        shown: How many milestones the hint states. The others are still ahead.
    """
    if not milestones:
        return Walk((), None)
    last = len(milestones) - 1
    chain = _Chain.of(milestones)
    events = _free_events(milestones, text) if chain is None else chain.events(text)
    segments: list[Segment] = []
    start, ahead = 0, min(max(shown, 0), last)
    for event in events:
        if event.is_error:
            if correct:
                continue
            index = next((i for i in event.milestones if i >= ahead), ahead)
            segments.append(Segment(start, event.end, index, False))
            return Walk(tuple(segments), event.start)
        index = next((i for i in event.milestones if ahead <= i < last), last)
        if index < last:
            segments.append(Segment(start, event.end, index, True))
            start, ahead = event.end, index + 1
    if correct is None and (box := _last_box(text)) is not None and _same_value(box, milestones[-1].value):
        correct = True
    if correct is not None:
        segments.append(Segment(start, len(text), last, correct))
    return Walk(tuple(segments), None)


class _Event(NamedTuple):
    """A value that a response states."""

    start: int
    end: int
    is_error: bool
    milestones: tuple[int, ...]
    """Those whose value it is or, of an error, should have been."""


# --- Chains

_CHAIN_QUESTION = re.compile(r"\d(?: [a-z][-+*]\d)+")
_CHAIN_STEP = re.compile(r"(?<![\w+*-])(?P<left>\d(?:[a-z][-+*]\d)+)=(?P<value>\d+)")
_BOX = re.compile(r"\\boxed\{(?P<content>[^{}]*)\}")


def _last_box(text: str) -> str | None:
    start = text.rfind(r"\boxed{")
    box = _BOX.match(text, start) if start >= 0 else None
    return box["content"] if box else None


@dataclass(frozen=True, slots=True)
class _Chain:
    """The values of a chain after each of its operations, as its milestones tell them."""

    allowed: tuple[frozenset[str], ...]
    """By the number of operations: the values that are right under a modulus that the milestones allow. One
    each but where a step of the solution has several operations and several moduli are left."""
    index_of: dict[int, int]
    """The milestone that so many operations come to."""
    answer: str

    @classmethod
    def of(cls, milestones: Sequence[Milestone]) -> "_Chain | None":
        """None where the milestones are not a chain's."""
        if not all(re.fullmatch(r"\d(?:[a-z][-+*]\d)+", milestone.left) for milestone in milestones):
            return None
        answer = milestones[-1].value
        places = [_place(milestone.left) for milestone in milestones]
        values = [*(milestone.value for milestone in milestones[:-1]), answer[-1:]]
        at_place = dict(zip(places, values, strict=True))
        operations = re.findall(r"[a-z]([-+*])(\d)", "".join(milestone.left[1:] for milestone in milestones))
        runs = [_run_chain(int(milestones[0].left[0]), operations, modulus) for modulus in range(3, 11)]
        runs = [run for run in runs if all(run[p - 1 : p] == [v] for p, v in at_place.items())]
        allowed = (
            frozenset({at_place[place]}) if place in at_place else frozenset(run[place - 1] for run in runs)
            for place in range(1, len(operations) + 1)
        )
        return cls(tuple(allowed), {place: index for index, place in enumerate(places)}, answer)

    def events(self, text: str) -> Iterator[_Event]:
        for step in re.finditer(rf"{_CHAIN_STEP.pattern}|{_BOX.pattern}", text):
            if (content := step["content"]) is not None:
                last = len(self.index_of) - 1
                yield _Event(*step.span("content"), content.strip() != self.answer, (last,))
                continue
            place = _place(step["left"])
            # No value is right for an operation that the question does not have.
            allowed = self.allowed[place - 1] if place <= len(self.allowed) else frozenset()
            index = self.index_of.get(place)
            indices = () if index is None else (index,)
            yield _Event(*step.span("value"), step["value"] not in allowed, indices)


def _place(left: str) -> int:
    """Operations done after a step, by the letter of its last one."""
    return ord(left[-3]) - ord("a") + 1


def _run_chain(value: int, operations: Sequence[tuple[str, str]], modulus: int) -> list[str]:
    values = []
    for sign, operand in operations:
        right = int(operand)
        value = {"+": value + right, "-": value - right, "*": value * right}[sign] % modulus
        values.append(str(value))
    return values


# --- Free text


def _free_events(milestones: Sequence[Milestone], text: str) -> Iterator[_Event]:
    by_value: dict[str, list[int]] = {}
    by_left: dict[str, list[int]] = {}
    for index, milestone in enumerate(milestones):
        by_value.setdefault(milestone.value, []).append(index)
        by_left.setdefault(milestone.left, []).append(index)
    for equation in _equations(_tokens(text)):
        if equation.is_false:
            own = by_left.get(equation.left, []) if equation.left else []
            yield _Event(equation.start, equation.end, True, tuple(own))
        elif equation.value in by_value:
            yield _Event(equation.start, equation.end, False, tuple(by_value[equation.value]))


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


_MOST_TOKENS = 60
"""Of a side of an equation; longer ones are not read."""

# One character a kind: n number, w word, + sign, ( ) brackets, f fraction, % per cent, = equals, ~ about, | other
# relations and ends, \n end of line, . punctuation, ? anything else. Blanks and dressing are left out.
_TOKEN = re.compile(
    r"(?P<blank>[ \t\r\u00a0]+|\\(?:left|right|displaystyle|boxed|quad|qquad|mathbf)(?![a-zA-Z])"
    r"|\\[,;:!()\[\] ]|&|\\?[$]|[£€]|<<|(?<!\d)\*\*|\*\*(?!\d)|`)"
    r"|(?P<line>\n|\\\\)"
    r"|(?P<number>\d{1,3}(?:(?:,|\{,\}|\\,)\d{3}){1,5}(?!\d)(?:\.\d{1,15})?|\d{1,15}(?:\.\d{1,15})?|\.\d{1,15})"
    r"|\\(?:text|textbf|mathrm|mbox|textit)\s?\{(?P<note>[^{}\n]{0,80})\}"
    r"|(?P<fraction>\\[dt]?frac(?![a-zA-Z]))"
    r"|(?P<sign>[-+*/^×·⋅∙÷−–—]|\\(?:times|cdot|div)(?![a-zA-Z]))"
    r"|(?P<percent>\\?%)"
    r"|(?P<word>[^\W\d_]+(?:['’][^\W\d_]+)*)"
    r"|(?P<open>[({\[])|(?P<close>[)}\]])"
    r"|(?P<end>[=<>!:]=+|=+[<>]|[≠<>≤≥→⇒⟹|]+|\\(?:[lg]eq?|neq?|to|Rightarrow|implies)(?![a-zA-Z]))"
    r"|(?P<equals>=)"
    r"|(?P<about>[≈≃≅~]|\\(?:approx|sim|simeq|cong)(?![a-zA-Z]))"
    r"|(?P<punctuation>[.,;:!?\"'“”])"
    r"|(?P<other>\\[a-zA-Z]+|.)",
    re.DOTALL,
)
_KINDS = {
    "number": "n",
    "fraction": "f",
    "sign": "+",
    "percent": "%",
    "word": "w",
    "note": "w",
    "open": "(",
    "close": ")",
    "end": "|",
    "equals": "=",
    "about": "~",
    "punctuation": ".",
    "line": "\n",
    "other": "?",
}
_SIGNS = {**dict.fromkeys("*×·⋅∙xX", "*"), **dict.fromkeys(("\\times", "\\cdot", "times"), "*")}
_SIGNS |= {**dict.fromkeys("/÷", "/"), "\\div": "/", **dict.fromkeys("-−–—", "-"), "+": "+", "^": "^"}


def _tokens(text: str) -> list[_Token]:
    return [
        _Token(_KINDS[match.lastgroup], match[match.lastgroup], *match.span(match.lastgroup))
        for match in _TOKEN.finditer(text)
        if match.lastgroup is not None and match.lastgroup != "blank"
    ]


def _numbers(tokens: Sequence[_Token]) -> set[str]:
    return {_plain(token.text) for token in tokens if token.kind == "n"}


def _plain(digits: str) -> str:
    """``"1,230.50"`` as ``"1230.5"``."""
    whole, _, part = re.sub(r"[^\d.]", "", digits).partition(".")
    return f"{whole.lstrip('0') or '0'}.{part.rstrip('0')}".rstrip(".")


def _same_value(text: str, answer: str) -> bool:
    """Whether both are the same text, blanks and dressing of numbers aside."""
    return _undressed(text) == _undressed(answer)


@functools.lru_cache(maxsize=4096)
def _undressed(text: str) -> str:
    bare = re.sub(r"[\s$]|\\[$,!;]", "", text)
    return _plain(bare) if re.fullmatch(r"[\d,]*\.?\d+", bare) else bare


class _Equation(NamedTuple):
    """One sign of equality and the sides next to it."""

    start: int
    """Where the right side's first number begins."""
    end: int
    """Behind the right side."""
    left: str
    """The left side's numbers and signs; empty where it has others."""
    value: str | None
    """The right side where that is one number, else None."""
    is_false: bool
    """Whether no reading of it is true."""


class _Side(NamedTuple):
    """A side of an equation as far as it consists of numbers and signs."""

    items: tuple[_Token, ...]
    words: frozenset[str]
    """What else stands there, in small letters."""
    is_sure: bool
    """Whether nothing next to it may change its value."""


def _equations(tokens: Sequence[_Token]) -> Iterator[_Equation]:
    for at, relation in enumerate(tokens):
        if relation.kind not in "=~":
            continue
        right = _right_side(tokens, at)
        if not right.items:
            continue
        left = _left_side(tokens, at)
        numbers = [token for token in right.items if token.kind == "n"]
        value = _plain(numbers[0].text) if len(numbers) == 1 and len(right.items) == 1 else None
        is_false = relation.kind == "=" and _is_surely_false(left, right)
        written = "".join(
            _plain(item.text) if item.kind == "n" else _SIGNS.get(item.text, item.text) for item in left.items
        )
        yield _Equation(numbers[0].start, right.items[-1].end, written, value, is_false)


def _left_side(tokens: Sequence[_Token], at: int) -> _Side:
    """What stands before the relation at ``at``: the longest expression that ends there."""
    end = at - (at > 0 and tokens[at - 1].kind == "\n")
    start = end
    while start > 0 and end - start < _MOST_TOKENS:
        before = tokens[start - 1]
        if before.kind in "=~|?." or (before.kind == "\n" and tokens[start - 2].kind != "+"):
            break
        start -= 1
    else:
        if start > 0:
            return _Side((), frozenset(), False)
    part = [token for token in tokens[start:end] if token.kind != "\n"]
    scan = _scan(part, from_left=False)
    is_sure = scan.is_sure and scan.stop == len(part)
    if start > 0 and scan.start == 0 and part:
        border = tokens[start - 1]
        glued = border.end == part[0].start and start > 1 and tokens[start - 2].end == border.start
        is_sure &= border.kind != "?" and not (glued and border.kind == "." and tokens[start - 2].kind == "n")
        # Perhaps the line goes on with what the line before began.
        goes_on = border.kind == "\n" and start > 1 and tokens[start - 2].kind in "n)%"
        is_sure &= not (goes_on and part[0].kind == "+")
    context = [token.text.lower() for token in part[: scan.start] if token.kind == "w"]
    before_words = part[: scan.start]
    is_sure &= not _is_hazardous(context, before_words, has_units=scan.has_units)
    if scan.items and scan.items[0].kind == "+" and scan.start > 0:
        is_sure = False
    words = frozenset(token.text.lower() for token in part if token.kind == "w")
    return _Side(scan.items, words, is_sure)


def _right_side(tokens: Sequence[_Token], at: int) -> _Side:
    """What stands behind the relation at ``at``: the longest expression that begins there."""
    start = at + 1 + (at + 1 < len(tokens) and tokens[at + 1].kind == "\n")
    end = start
    while end < len(tokens) and end - start < _MOST_TOKENS:
        token = tokens[end]
        if token.kind in "=~|?." or (token.kind == "\n" and tokens[end - 1].kind != "+"):
            break
        end += 1
    part = [token for token in tokens[start:end] if token.kind != "\n"]
    scan = _scan(part, from_left=True)
    if scan.start > 0:
        return _Side((), frozenset(), False)
    is_sure = scan.is_sure
    if scan.stop == len(part) and end < len(tokens):
        border = tokens[end]
        glued = border.end == tokens[end + 1].start if end + 1 < len(tokens) else False
        touches = part and border.start == part[-1].end
        is_sure &= border.kind != "?" and border.text not in "?!"
        is_sure &= not (border.kind == "." and touches and glued and tokens[end + 1].kind == "n")
        is_sure &= not (border.text == "'" and touches)
    words = frozenset(token.text.lower() for token in part if token.kind == "w")
    return _Side(scan.items, words, is_sure)


class _Scan(NamedTuple):
    items: tuple[_Token, ...]
    start: int
    """Of the part's tokens, the first that belongs to the expression."""
    stop: int
    """Behind the last one, units included."""
    is_sure: bool
    has_units: bool


def _scan(part: Sequence[_Token], *, from_left: bool) -> _Scan:
    """The expression at the beginning of ``part`` (``from_left``) or at its end.

    Units, such as ``pandas`` in ``16 pandas / 2``, are left out.
    """
    items: list[_Token] = []
    opened: list[tuple[int, int]] = []
    start, is_sure, has_units = 0, True, False
    waiting = 0  # words since the last item
    at = 0
    while at < len(part):
        token, after = part[at], part[at + 1] if at + 1 < len(part) else None
        is_operand = bool(items) and items[-1].kind in "n)%"
        is_glued = at > 0 and part[at - 1].end == token.start
        kind = token.kind
        if kind == "w":
            low = token.text.lower()
            begins_operand = after is not None and after.kind in "n(f"
            if is_operand and not waiting and low in ("x", "times") and begins_operand:
                items.append(token._replace(kind="+"))
            elif is_operand and low == "of" and begins_operand and _is_share(items):
                items.append(token._replace(kind="+", text="*"))
                waiting = 0
            else:
                if len(token.text) == 1 and not (low in "ai" and not is_glued) and (items or from_left):
                    is_sure = False
                waiting += 1
                has_units |= is_operand
                if items and not is_operand:
                    # "/hour" and "-page" are units; "+ apples" is not.
                    unit = items[-1].text in ("/", "÷") or (
                        items[-1].kind == "+" and is_glued and waiting == 1
                    )
                    unit &= len(items) > 1 and items[-2].kind in "n)%"
                    if unit:
                        items.pop()
                        has_units = True
                    else:
                        is_sure = False
        elif kind == "+":
            if waiting and (not is_operand or waiting > 4):
                if from_left:
                    break
                # Words stand where a number should.
                items, opened, start, is_sure, has_units = [], [], at, False, False
            waiting = 0
            if is_operand and not from_left and after is None:
                is_sure = False
            items.append(token)
        elif kind in "nf(":
            if waiting or (is_operand and kind != "("):
                if from_left:
                    is_sure &= bool(waiting)
                    if not waiting and (mixed := _mixed(items, part, at)):
                        items[-1:] = mixed
                        at += 3
                        is_sure = True
                        continue
                    break
                if not waiting and (mixed := _mixed(items, part, at)):
                    items[-1:] = mixed
                    at += 3
                    continue
                is_sure = bool(waiting) and (not items or is_operand)
                if kind == "(" and is_glued:
                    is_sure = False
                items, opened, start, has_units = [], [], at, False
                waiting = 0
            elif kind == "(" and is_operand:
                if not is_glued:
                    if from_left:
                        break
                    is_sure = False
                items.append(token._replace(kind="+", text="*"))
            if kind == "(":
                opened.append((len(items), at))
            items.append(token)
        elif kind == "%":
            if not is_operand or waiting:
                is_sure = False
                if from_left:
                    break
                items, opened, start = [], [], at + 1
            else:
                items.append(token)
        elif kind == ")":
            if not opened:
                if from_left:
                    break
                items, opened, start, is_sure, has_units = [], [], at + 1, True, False
                waiting = 0
            else:
                opened.pop()
                waiting = 0
                items.append(token)
        at += 1
    if opened:
        first, where = opened[-1] if not from_left else opened[0]
        if from_left:
            del items[first:]
        else:
            # "(5 + 3 = 8)" is an equation in brackets; "f(5 + 3 = 8" is not.
            glued = where > 0 and part[where - 1].end == part[where].start and part[where - 1].kind in "nw)"
            is_sure &= not glued
            items, start = items[first + 1 :], where + 1
    while items and items[-1].kind in "+f":
        if not from_left:
            is_sure = False
        if from_left and len(items) > 1 and items[-1].kind == "+" and at >= len(part):
            is_sure = False
        items.pop()
    return _Scan(tuple(items), start if items else len(part), at, is_sure, has_units)


def _is_share(items: Sequence[_Token]) -> bool:
    """Whether a per cent or a fraction stands last: what "of" takes its share by."""
    return items[-1].kind in "%)" or (len(items) > 2 and items[-2].text in ("/", "÷"))


def _mixed(items: Sequence[_Token], part: Sequence[_Token], at: int) -> list[_Token]:
    """``3 1/2`` as ``(3 + 1 / 2)``; empty where that is not what stands at ``at``."""
    three = part[at : at + 3]
    if len(three) < 3 or not items or items[-1].kind != "n" or three[1].text != "/":
        return []
    whole, above, below = items[-1], three[0], three[2]
    if above.kind != "n" or below.kind != "n" or not all(t.text.isdecimal() for t in (whole, above, below)):
        return []
    if whole.end == above.start or above.end != three[1].start or three[1].end != below.start:
        return []
    bracket = whole._replace(kind="(", text="(", end=whole.start)
    plus = whole._replace(kind="+", text="+", start=whole.end)
    return [bracket, whole, plus, *three, below._replace(kind=")", text=")", start=below.end)]


_ABOUT = frozenset(
    "about approximately approx roughly around nearly almost rounded rounding round estimate".split()
)
_OTHER_ARITHMETIC = frozenset(
    "mod modulo base binary remainder am pm o'clock clock not wrong incorrect mistake cannot isn't".split()
)
_FACTORS_IN_WORDS = frozenset(
    "half halves twice double triple thrice times third thirds quarter quarters fourth fourths fifth fifths "
    "sixth sixths seventh eighth eighths ninth tenth tenths average mean median square squared cube cubed root "
    "percent percentage fraction ratio product difference log ln sin cos tan choose factorial dozen".split()
)
_BEFORE_NO_EXPRESSION = frozenset(
    "than as minus plus less more by over into from under negative between divided multiplied per".split()
)
_TAKES_OF = frozenset("total sum amount number cost distance weight profit height width length".split())
_OF_SOMETHING = frozenset("of for in per on at with after before to by".split())


def _is_hazardous(context: Sequence[str], before: Sequence[_Token], *, has_units: bool) -> bool:
    """Whether the words before an expression may belong to it, as in "half of 30 + 2"."""
    if not context or not before or before[-1].kind != "w":
        return bool(before) and before[-1].kind in "n%+"
    last = context[-1]
    if last in _BEFORE_NO_EXPRESSION or _FACTORS_IN_WORDS.intersection(context[-4:]):
        return True
    if last == "of" and not _TAKES_OF.intersection(context[-2:-1]):
        return True
    if last == "and" and len(before) > 1 and before[-2].kind in "n%)":
        return True
    if len(last) == 1 and last not in "ai":
        return True
    return has_units and last in _OF_SOMETHING


# --- Values


class _Value(NamedTuple):
    """A number with what rounding may have hidden."""

    low: float
    value: float
    high: float


_UNITS: tuple[tuple[frozenset[str], tuple[float, ...]], ...] = tuple(
    (frozenset(words.split()), factors)
    for words, factors in (
        (
            "second sec minute min hour hr day night week weekend month year decade century mph",
            (60, 3600, 24, 7, 2, 5, 4, 30, 31, 28, 29, 12, 52, 365, 366, 360, 10, 100, 1440, 168, 48),
        ),
        (
            "inch inche foot feet ft yard mile mm cm m km meter metre kilometer centimeter millimeter",
            (12, 3, 36, 5280, 1760, 10, 100, 1000, 100000, 2.54, 1.6, 1.609, 0.3048, 144, 9, 10000),
        ),
        ("ounce oz pound lb ton gram g kg kilogram milligram mg", (16, 2000, 1000, 2.2, 28, 28.35, 454, 14)),
        (
            "cup pint quart gallon liter litre ml milliliter tablespoon teaspoon ounce",
            (2, 3, 4, 8, 16, 32, 48, 64, 128, 1000),
        ),
        ("cent dollar penny pennie dime nickel quarter buck", (100, 25, 10, 5, 20, 4, 50)),
        ("dozen", (12, 6, 24, 144)),
        ("pair half couple each twice both double team twin", (2, 4)),
        ("percent percentage percentage percents", (100,)),
        ("hundred thousand million billion k trillion", (100, 1e3, 1e6, 1e9, 1e5)),
        ("degree radian", (180, 90, 360)),
    )
)
_MOST_POWER = 20


def _is_surely_false(left: _Side, right: _Side) -> bool:
    signs = sum(item.kind == "+" for item in left.items[1:])
    if not (left.is_sure and right.is_sure and signs):
        return False
    words = left.words | right.words
    if words & _ABOUT or words & _OTHER_ARITHMETIC:
        return False
    known = _readings(left.items, is_left=True)
    stated = _readings(right.items, is_left=False)
    if not known or not stated:
        return False
    factors = _factors(words, has_percent=any(item.kind == "%" for item in (*left.items, *right.items)))
    return factors is not None and not any(
        _agree(one, other, decimals, factors) for one, _ in known for other, decimals in stated
    )


def _factors(words: frozenset[str], *, has_percent: bool) -> list[float] | None:
    """By what the sides may differ for their units; None where several units make that anybody's guess."""
    factors: list[float] = [1, 100] if has_percent else [1]
    bare = {word[:-1] if word.endswith("s") else word for word in words}
    for names, known in _UNITS:
        if found := names & bare:
            if len(found) > 1:
                return None
            factors += known
    return factors


def _agree(known: _Value, stated: _Value, decimals: int | None, factors: Sequence[float]) -> bool:
    for factor in factors:
        for scale in (factor, 1 / factor):
            low, value, high = (part * scale for part in known)
            slack = 1e-9 * max(1.0, abs(stated.value))
            if factor != 1:
                slack = max(slack, 0.005 * abs(value))
            if low - slack <= stated.high and stated.low <= high + slack:
                return True
            if decimals is None:
                continue
            last_place = 10.0**-decimals
            is_whole = abs(value / last_place - round(value / last_place)) < 1e-6
            if not is_whole and low - last_place <= stated.value <= high + last_place:
                return True
            is_round = decimals == 0 and stated.value >= 1000 and stated.value % 10 == 0
            if is_round and abs(stated.value - value) < 0.005 * stated.value:
                return True
    return False


def _readings(items: Sequence[_Token], *, is_left: bool) -> list[tuple[_Value, int | None]]:
    """The values that an expression may be meant to have, with the decimals of a lone number."""
    parts = [tuple(items)]
    depth = 0
    for index, item in enumerate(items):
        depth += (item.kind in "(f") - (item.kind == ")") if item.kind in "()" else 0
        if item.kind != "+" or depth or not index:
            continue
        if not is_left:
            # 5 + 3 = 8 * 2
            parts.append(tuple(items[:index]))
        elif item.text in "-–—" and items[index - 1].end < item.start:
            # "Day 2 - 5 + 3 = 8"
            rest = tuple(items[index + 1 :])
            parts += [rest] if any(each.kind == "+" for each in rest[1:]) else []
    if items and items[0].kind == "+":
        # A list's mark.
        parts.append(tuple(items[1:]))
    has_percent = any(item.kind == "%" for item in items)
    has_difference = is_left and any(item.kind == "+" and _SIGNS[item.text] == "-" for item in items)
    found: list[tuple[_Value, int | None]] = []
    for part in parts:
        decimals = (
            len(_plain(part[0].text).partition(".")[2])
            if len(part) < 3 and part and part[0].kind == "n"
            else None
        )
        if decimals is not None:
            decimals = max(decimals, len(part[0].text.partition(".")[2]))
        for grouping, percents in itertools.product(_GROUPINGS, _PERCENTS if has_percent else _PERCENTS[:1]):
            value = _Reader(part, grouping, percents).whole()
            if value is None:
                continue
            found.append((value, decimals))
            if has_difference:
                found.append((_Value(-value.high, -value.value, -value.low), decimals))
    return found


_GROUPINGS = ("usual", "in turn", "below")
"""Signs by their strength; from left to right; and ``6/2*3`` as 6 over 2 * 3."""
_PERCENTS = ("share", "bare", "change")
"""``20%`` as 0.2, as 20, and behind + or - as a share of what stands before."""


class _Reader:
    """Evaluates items from left to right; None for what is no expression or has no value."""

    def __init__(self, items: Sequence[_Token], grouping: str, percents: str) -> None:
        self._items = items
        self._grouping = grouping
        self._percents = percents
        self._place = 0

    def whole(self) -> _Value | None:
        try:
            value = self._sum()
        except (_NoValueError, ArithmeticError):
            return None
        is_whole = self._place == len(self._items) and all(map(math.isfinite, value))
        return value if is_whole else None

    def _sum(self) -> _Value:
        value = self._product()
        while sign := self._take("+-*/" if self._grouping == "in turn" else "+-"):
            begin = self._place
            right = self._signed() if self._grouping == "in turn" else self._product()
            ended = self._items[self._place - 1].kind == "%" and self._place - begin == 2
            if ended and self._percents == "change" and sign in "+-":
                right = _apply("*", value, right)
            value = _apply(sign, value, right)
        return value

    def _product(self) -> _Value:
        value = self._signed()
        if self._grouping == "in turn":
            return value
        while sign := self._take("*/"):
            right = self._product() if sign == "/" and self._grouping == "below" else self._signed()
            value = _apply(sign, value, right)
        return value

    def _signed(self) -> _Value:
        negative = False
        while sign := self._take("+-"):
            negative ^= sign == "-"
        value = self._power()
        return _Value(-value.high, -value.value, -value.low) if negative else value

    def _power(self) -> _Value:
        value = self._atom()
        if self._take("^"):
            exponent = self._signed().value
            if exponent != int(exponent) or not 0 <= exponent <= _MOST_POWER:
                raise _NoValueError
            result = _Value(1.0, 1.0, 1.0)
            for _ in range(int(exponent)):
                result = _apply("*", result, value)
            return result
        return value

    def _atom(self) -> _Value:
        token = self._next()
        if token.kind == "n":
            value = _number(token.text, is_percent=self._is_percent())
        elif token.kind == "(":
            value = self._closed()
        elif token.kind == "f":
            parts = []
            for _ in range(2):
                if self._next().text != "{":
                    raise _NoValueError
                parts.append(self._closed())
            value = _apply("/", *parts)
        else:
            raise _NoValueError
        if self._is_percent():
            self._place += 1
            if self._percents != "bare":
                value = _Value(*(part / 100 for part in value))
        return value

    def _closed(self) -> _Value:
        value = self._sum()
        if self._next().kind != ")":
            raise _NoValueError
        return value

    def _next(self) -> _Token:
        if self._place == len(self._items):
            raise _NoValueError
        self._place += 1
        return self._items[self._place - 1]

    def _is_percent(self) -> bool:
        return self._place < len(self._items) and self._items[self._place].kind == "%"

    def _take(self, signs: str) -> str:
        """The next token's sign if it is one of these, else nothing."""
        if self._place < len(self._items) and self._items[self._place].kind == "+":
            sign = _SIGNS[self._items[self._place].text]
            if sign in signs:
                self._place += 1
                return sign
        return ""


class _NoValueError(Exception):
    """What is read is no expression."""


def _number(digits: str, *, is_percent: bool) -> _Value:
    """A number as it stands; one that may have been rounded, between what may have been meant."""
    value = float(re.sub(r"[^\d.]", "", digits))
    places = len(digits.partition(".")[2])
    is_rounded = places > 0 and not (places <= 2 and digits[-1] in "05")
    if not places and is_percent:
        is_rounded = value % 5 != 0
    last_place = 10.0**-places
    return (
        _Value(value - 0.5 * last_place, value, value + last_place)
        if is_rounded
        else _Value(value, value, value)
    )


def _apply(sign: str, left: _Value, right: _Value) -> _Value:
    match sign:
        case "+":
            return _Value(*map(float.__add__, left, right))
        case "-":
            return _Value(left.low - right.high, left.value - right.value, left.high - right.low)
        case "*":
            ends = [one * other for one in (left.low, left.high) for other in (right.low, right.high)]
            return _Value(min(ends), left.value * right.value, max(ends))
    if right.low <= 0 <= right.high:
        raise _NoValueError
    ends = [one / other for one in (left.low, left.high) for other in (right.low, right.high)]
    return _Value(min(ends), left.value / right.value, max(ends))
