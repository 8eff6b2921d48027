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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from seele.maths.boxed import canonical_number, last_boxed
from seele.records import Instance, Milestone, Segment, Walk


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
        found = [Milestone(link["value"], link.end(), (link[0],)) for link in links]
        return (*found[:-1], replace(found[-1], value=answer, end=len(text)))
    found, waiting, step_start = [], [], 0
    for step, stated in zip(steps, _stated(question, steps), strict=True):
        own: _Equation | None = None
        for equation, is_new in stated:
            waiting.append(equation)
            if is_new:
                own = equation
        if own is not None and own.value is not None and not _same_value(own.value, answer):
            behind = waiting.index(own) + 1
            found.append(Milestone(own.value, step_start + own.end, _written_of(waiting[:behind])))
            waiting = waiting[behind:]
        step_start += len(step)
    return (*found, Milestone(answer, len(text), _written_of(waiting)))


def _written_of(equations: Iterable["_Equation"]) -> tuple[str, ...]:
    return tuple(equation.written for equation in equations if equation.written)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many milestones there are to walk along: counts over problems or steps, the last steps left out."""

    problems: int = 0
    with_two: int = 0
    """Problems with at least two milestones, the final answer among them."""
    steps: int = 0
    stating: int = 0
    """Steps that state a value behind a sign of equality."""
    new: int = 0
    """Steps that state a value which stands neither in the question nor in an earlier step."""


def coverage(instances: Iterable[Instance]) -> Coverage:
    """Count the milestones of problems (``milestones_of``)."""
    problems = with_two = steps = stating = new = 0
    for instance in instances:
        problems += 1
        with_two += len(milestones_of(instance)) >= 2
        for stated in _stated(instance.question, instance.steps)[:-1]:
            steps += 1
            stating += bool(stated)
            new += any(is_new for _, is_new in stated)
    return Coverage(problems, with_two, steps, stating, new)


def _stated(question: str, steps: Sequence[str]) -> list[list[tuple["_Equation", bool]]]:
    """The equations of each step, in order, and whether their right sides are new values."""
    known = _numbers(_tokens(question))
    found = []
    for step in steps:
        tokens = _tokens(step)
        found.append(
            [(each, each.value is not None and each.value not in known) for each in _equations(tokens)]
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
    if correct is None and (box := last_boxed(text)) is not None and _same_value(box, milestones[-1].value):
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
        links = [_CHAIN_STEP.fullmatch("".join(milestone.equations)) for milestone in milestones]
        lefts = [link["left"] for link in links if link is not None]
        if len(lefts) < len(milestones):
            return None
        answer = milestones[-1].value
        places = [_place(left) for left in lefts]
        values = [*(milestone.value for milestone in milestones[:-1]), answer[-1:]]
        at_place = dict(zip(places, values, strict=True))
        operations = re.findall(r"[a-z]([-+*])(\d)", "".join(left[1:] for left in lefts))
        runs = [_run_chain(int(lefts[0][0]), operations, modulus) for modulus in range(3, 11)]
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
    stated: set[str] = set()
    for index, milestone in enumerate(milestones):
        by_value.setdefault(milestone.value, []).append(index)
        stated.update(milestone.equations)
        for own in milestone.equations[-1:]:
            by_left.setdefault(own.partition("=")[0], []).append(index)
    for equation in _equations(_tokens(text)):
        # What the worked solution says is no error, be it as it may.
        if equation.is_false and equation.written not in stated:
            left = equation.written.partition("=")[0]
            yield _Event(equation.start, equation.end, True, tuple(by_left.get(left, ())))
        elif equation.value in by_value:
            yield _Event(equation.start, equation.end, False, tuple(by_value[equation.value]))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class _Token(NamedTuple):
    kind: str
    """One character of ``_KINDS``."""
    text: str
    start: int
    end: int


# Blanks and dressing, what carries no name below, are left out.
_TOKEN = re.compile(
    r"[ \t\r\u00a0]+|\\(?:left|right|displaystyle|boxed|quad|qquad|mathbf)(?![a-zA-Z])|\\[,;:!()\[\] ]|&"
    r"|\\?[$]|[£€`]|<<|(?<!\d)\*\*|\*\*(?!\d)"
    r"|(?P<line>\n|\\\\)"
    r"|(?P<number>\d{1,9} \d{1,3}/\d{1,3}(?![\d/.,])"
    r"|\d{1,3}(?:(?:,|\{,\}|,?\\[,!])\d{3}){1,5}(?!\d)(?:\.\d{1,15})?|\d{1,15}(?:\.\d{1,15})?|\.\d{1,15})"
    r"|\\(?:text|textbf|mathrm|mbox|textit)\s?\{(?P<note>[^{}\n]{0,80})\}"
    r"|(?P<fraction>\\[dt]?frac(?![a-zA-Z]))"
    r"|(?P<word>(?:(?<=\d)-(?=[^\W\d_]{2}))?[^\W\d_]+(?:['\u2019][^\W\d_]+)*)"
    r"|(?P<sum>[-+\u2212\u2013\u2014])"
    r"|(?P<product>[*\u00d7·⋅∙]|\\(?:times|cdot)(?![a-zA-Z]))"
    r"|(?P<quotient>[/÷]|\\div(?![a-zA-Z]))"
    r"|(?P<power>\^)"
    r"|(?P<percent>\\?%)"
    r"|(?P<open>[({\[])|(?P<close>[)}\]])"
    r"|(?P<relation>[=<>!:]=+|=+[<>]|[≠<>≤≥→⇒⟹]+|\\(?:[lg]eq?|neq?|to|Rightarrow|implies)(?![a-zA-Z]))"
    r"|(?P<equals>=)"
    r"|(?P<about>[≈≃≅~]|\\(?:approx|sim|simeq|cong)(?![a-zA-Z]))"
    r"|(?P<bar>\|)"
    r"|(?P<punctuation>[.,;:!?\"'\u2019\u201c\u201d])"
    r"|(?P<other>\\[a-zA-Z]+|.)",
    re.DOTALL,
)
_KINDS = {
    "line": "\n",
    "number": "n",
    "note": "w",
    "fraction": "f",
    "word": "w",
    "sum": "+",
    "product": "*",
    "quotient": "/",
    "power": "^",
    "percent": "%",
    "open": "(",
    "close": ")",
    "relation": ">",
    "equals": "=",
    "about": "~",
    "bar": "|",
    "punctuation": ".",
    "other": "?",
}
# Words have further kinds: "w" may be a unit, "c" joins sentences, "v" is a letter that stands for a number
# or belongs to one, "q" is an "of" that takes no share; "x" and a share's "of" become signs.
_JOINING = _words("""
    and or so then is was are were be but which that because since if gives give get gets makes means leaves
    equals therefore thus hence has have had
    """)
_GLUED_UNITS = _words(
    "km cm mm kg mg ml mph ft lb lbs oz hrs hr min mins sec cents hours minutes miles inches g"
)


def _tokens(text: str) -> list[_Token]:
    found = [
        _Token(_KINDS[match.lastgroup], match[match.lastgroup], *match.span(match.lastgroup))
        for match in _TOKEN.finditer(text)
        if match.lastgroup is not None
    ]
    tokens: list[_Token] = []
    for token, after in zip(found, [*found, None][1:], strict=True):
        if token.kind == "w":
            token = token._replace(kind=_kind_of_word(token, tokens, after))
        elif token.kind == "(" and tokens and tokens[-1].kind in "n)" and tokens[-1].end == token.start:
            tokens += [] if _in_fraction(tokens) else [_Token("*", "*", token.start, token.start)]
        tokens.append(token)
    return tokens


def _in_fraction(tokens: Sequence[_Token]) -> bool:
    """Whether the bracket that was closed last is the upper half of a fraction."""
    depth = 0
    for back in range(len(tokens) - 1, max(len(tokens) - 20, 0), -1):
        depth += (tokens[back].kind == ")") - (tokens[back].kind == "(")
        if not depth:
            return tokens[back].kind == "(" and tokens[back - 1].kind == "f"
    return False


def _kind_of_word(word: _Token, before: Sequence[_Token], after: _Token | None) -> str:
    low = word.text.lower()
    last = before[-1] if before else None
    begins_number = after is not None and after.kind in "nf("
    is_glued = last is not None and last.end == word.start and last.kind in "n)"
    glued_behind = after is not None and after.start == word.end
    if low == "times" and begins_number:
        return "*"
    if low == "x" and begins_number and last is not None and last.kind in "n%)w":
        return "v" if glued_behind and after is not None and after.kind == "(" else "*"
    if low == "of" and last is not None and last.kind in "n%)":
        is_share = last.kind == "%" or (last.kind == "n" and "/" in last.text)
        is_share |= len(before) > 2 and before[-2].kind == "/" and before[-3].kind == "n"
        return "*" if is_share and begins_number else "q"
    if is_glued and not low.startswith("-") and low not in _GLUED_UNITS:
        return "v"
    if len(low) == 1 and not (low in "ai" and not is_glued and after is not None and after.kind in "wn"):
        return "v"
    return "c" if low in _JOINING else "w"


def _numbers(tokens: Sequence[_Token]) -> set[str]:
    return {_plain(token.text) for token in tokens if token.kind == "n"}


def _plain(digits: str) -> str:
    """``"1,230.50"`` as ``"1230.5"``; a fraction as it is."""
    return digits if "/" in digits else canonical_number(digits)


def _same_value(text: str, answer: str) -> bool:
    """Whether both are the same text, blanks and dressing of numbers aside."""
    return _undressed(text) == _undressed(answer)


@functools.lru_cache(maxsize=4096)
def _undressed(text: str) -> str:
    bare = re.sub(r"[\s$]|\\[$,!;]", "", text)
    return _plain(bare) if re.fullmatch(r"[\d,]*\.?\d+", bare) else bare


class _Side(NamedTuple):
    """An expression: numbers and signs, with or without units, in the kinds of tokens next to each other."""

    first: int
    stop: int
    """Behind its last token, a unit included where the expression goes on."""
    items: tuple[_Token, ...]
    """Without units."""


class _Equation(NamedTuple):
    """A sign of equality and the sides next to it."""

    start: int
    """Where the right side's first number begins."""
    end: int
    """Behind the right side, its unit left out."""
    written: str
    """Both sides, without blanks and units; empty where the left one has no numbers."""
    value: str | None
    """The right side where that is one number, else None."""
    is_false: bool
    """Whether no reading of it is true."""


_ATOM = r"(?:n%?|f\([n+*/%]{1,15}\)\([n+*/%]{1,15}\)%?)"
_POWER = r"(?:\^(?:n|\(\+?n\)))?"
# "apples", "miles/hour", "/hour", where the expression goes on behind it.
_UNIT = r"(?:(?:w{1,4}(?:/w{1,2})?|/w{1,4})(?=\n?[=~]|[-+*/)^]))?"
_OPERAND = rf"\({{0,8}}\+?\({{0,8}}{_ATOM}{_POWER}{_UNIT}\){{0,8}}{_POWER}%?{_UNIT}"
# A leading sign only where nothing stands before that it may take from.
_EXPRESSION = re.compile(rf"(?:(?<![^\n=~.>(])[+*])?{_OPERAND}(?:[+*/]\n?{_OPERAND}){{0,59}}")


def _equations(tokens: Sequence[_Token]) -> Iterator[_Equation]:
    kinds = "".join(token.kind for token in tokens)
    by_start: dict[int, _Side] = {}
    by_stop: dict[int, _Side] = {}
    for match in _EXPRESSION.finditer(kinds):
        side = _Side(*match.span(), _without_units(tokens[match.start() : match.end()]))
        by_start[side.first] = by_stop[side.stop] = side
    for at in (match.start() for match in re.finditer("[=~]", kinds)):
        right = by_start.get(at + 1 + (kinds[at + 1 : at + 2] == "\n"))
        left = by_stop.get(at) or (by_stop.get(at - 1) if kinds[at - 1 : at] == "\n" else None)
        if right is None:
            continue
        stated = _balanced(right.items)
        numbers = [item for item in stated if item.kind == "n"]
        if not numbers:
            continue
        value = _plain(numbers[0].text) if {item.kind for item in stated} <= set("n()%") else None
        is_false = left is not None and kinds[at] == "=" and _is_surely_false(tokens, left, right)
        written = f"{_written(left.items)}={_written(right.items)}" if left else ""
        yield _Equation(numbers[0].start, stated[-1].end, written, value, is_false)


def _without_units(tokens: Sequence[_Token]) -> tuple[_Token, ...]:
    nexts = [*(token.kind for token in tokens[1:]), ""]
    return tuple(
        token
        for token, after in zip(tokens, nexts, strict=True)
        if token.kind not in "w\n" and not (token.kind == "/" and after == "w")
    )


def _balanced(items: tuple[_Token, ...]) -> tuple[_Token, ...]:
    """Without brackets at the beginning that are closed later, and at the end that were opened before."""
    unclosed = sum(item.kind == "(" for item in items) - sum(item.kind == ")" for item in items)
    while unclosed > 0 and items and items[0].kind == "(":
        items, unclosed = items[1:], unclosed - 1
    while unclosed < 0 and items and items[-1].kind == ")":
        items, unclosed = items[:-1], unclosed + 1
    return items


def _written(items: Sequence[_Token]) -> str:
    return "".join(_plain(item.text) if item.kind == "n" else _sign(item) for item in _balanced(tuple(items)))


def _sign(item: _Token) -> str:
    if item.kind == "+":
        return "+" if item.text == "+" else "-"
    return item.text if item.kind in "()" else item.kind


# --- What is sure

_ABOUT = "about approximately approx roughly around nearly almost rounded rounding round estimate"
_OTHER_ARITHMETIC = "mod modulo base binary remainder am pm o'clock clock"
_DENIED = "not wrong incorrect mistake cannot isn't doesn't"
_DOUBTFUL = _words(f"{_ABOUT} {_OTHER_ARITHMETIC} {_DENIED}")

# "half of 30 + 2", "5 more than 3 * 4", "the price of 3 shirts + 5"
_FACTORS_IN_WORDS = _words("""
    half halves twice double triple thrice times third thirds quarter quarters fourth fourths fifth fifths
    sixth sixths seventh eighth eighths ninth tenth tenths average mean median square squared cube cubed root
    percent percentage fraction ratio product difference log ln sin cos tan pi choose factorial dozen
    """)
_TAKING_WORDS = _words(
    "than as minus plus less more by over into from under negative between divided multiplied per"
)
_TOTALS = _words("total sum amount number cost distance weight profit height width length")
_LINKS = _words("to with from at for of by")
_PREPOSITIONS = _words("of for in per on at with after before to by")


def _is_surely_false(tokens: Sequence[_Token], left: _Side, right: _Side) -> bool:
    """Whether an equation is false however it is read, and nothing around it may change what it says."""
    items = _balanced(left.items)
    signs = [
        item for before, item in itertools.pairwise(items) if item.kind in "+*/^" and before.kind in "n)%"
    ]
    if not signs or _agree_plainly(items, right.items):
        return False
    if not _begins_freely(tokens, left) or not _ends_freely(tokens, right) or _is_range(items):
        return False
    # "gcd(12, 5 + 3) = (4"
    if items[-1:] != left.items[-1:] or _balanced(right.items)[:1] != right.items[:1]:
        return False
    words = _words_of_clause(tokens, left, right)
    factors = _factors(words, has_percent=any(item.kind == "%" for item in (*items, *right.items)))
    if words & _DOUBTFUL or factors is None:
        return False
    known, stated = _readings(items, is_left=True), _readings(_balanced(right.items), is_left=False)
    if not known or not stated:
        return False
    return not any(_agree(one, other, places, factors) for one, _ in known for other, places in stated)


def _agree_plainly(items: Sequence[_Token], stated: Sequence[_Token]) -> bool:
    """Whether the first reading of both sides is true: of nearly every equation there is."""
    left, right = (_Reader(side, "usual", "share").whole() for side in (items, stated))
    return left is not None and right is not None and left.value == right.value


def _is_range(items: Sequence[_Token]) -> bool:
    """Whether this may be "Weeks 3-4"."""
    return "".join(item.kind for item in items) == "n+n" and (
        items[0].end == items[1].start and _sign(items[1]) == "-" and len(items[0].text) <= len(items[2].text)
    )


def _words_of_clause(tokens: Sequence[_Token], left: _Side, right: _Side) -> set[str]:
    """The words of both sides and of what stands around them, up to the next sign, number or stop."""
    first, stop = left.first, right.stop
    while first > 0 and left.first - first < 8 and tokens[first - 1].kind in "wc":
        first -= 1
    while stop < len(tokens) and stop - right.stop < 12 and tokens[stop].kind in "wc/(":
        stop += 1
    return {
        word
        for token in tokens[first:stop]
        if token.kind in "wc"
        for word in re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", token.text.lower())
    }


def _begins_freely(tokens: Sequence[_Token], side: _Side) -> bool:
    """Whether what stands before a left side leaves its value alone."""
    if side.first == 0:
        return True
    begin, before = tokens[side.first], tokens[side.first - 1]
    earlier = tokens[side.first - 2].kind if side.first > 1 else "\n"
    is_glued = before.end == begin.start
    if _balanced(side.items)[:1] != side.items[:1]:
        # "(5 + 3 = 8)" is an equation in brackets, "f(5 + 3 = 8" is not.
        return not is_glued and before.kind not in "+*/^"
    if before.kind == "\n":
        # Perhaps the line goes on with what the line before began.
        return begin.kind not in "+*" or earlier not in "n)%w"
    if before.kind == ".":
        cuts_number = earlier == "n" and (is_glued or (before.text == "," and len(begin.text) == 3))
        return (
            before.text not in "'!?" and not cuts_number and earlier not in "+*/" and begin.kind not in "+*"
        )
    if before.kind not in "wc":
        return before.kind in "=~>"
    return not is_glued and begin.kind not in "+*" and not _is_taken(tokens, side)


def _is_taken(tokens: Sequence[_Token], side: _Side) -> bool:
    """Whether the words before an expression belong to it."""
    last = tokens[side.first - 1].text.lower()
    first = side.first
    while first > 0 and side.first - first < 4 and tokens[first - 1].kind in "wc":
        first -= 1
    words = [token.text.lower() for token in tokens[first : side.first]]
    if last in _TAKING_WORDS or _FACTORS_IN_WORDS.intersection(words):
        return True
    if last == "of":
        return not _TOTALS.intersection(words[-2:-1])
    earlier = tokens[first - 1].kind if first > 0 else "\n"
    if earlier == "n" and first > 1 and tokens[first - 2].kind in "=~":
        # "48/2 = 24 and 24 + 48 = 72"
        return False
    if earlier in "%v?+*/^" or (earlier in "n)" and (words[0] == "and" or _LINKS.intersection(words))):
        # "3 and 4 + 5", "20 + 10 added to the 5 + 3", "4 at 5 - 2"
        return True
    has_units = any(token.kind == "w" for token in tokens[side.first : side.stop])
    return has_units and last in _PREPOSITIONS


def _ends_freely(tokens: Sequence[_Token], side: _Side) -> bool:
    """Whether what stands behind a right side leaves its value alone."""
    after = tokens[side.stop : side.stop + 2]
    if not after:
        return True
    is_glued = after[0].start == tokens[side.stop - 1].end
    if after[0].kind == "/":
        return len(after) > 1 and after[1].kind == "w"
    if after[0].kind == ".":
        cuts_number = len(after) > 1 and after[1].kind == "n" and is_glued and after[1].start == after[0].end
        return after[0].text not in "?!" and not cuts_number and not (is_glued and after[0].text in "'")
    return after[0].kind in "wc\n=~>|()" and not (after[0].kind == "(" and is_glued)


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
_MOST_POWER = 40


def _factors(words: set[str], *, has_percent: bool) -> list[float] | None:
    """By what the sides may differ for their units; None where several units make that anybody's guess."""
    # Thousands and millions are often left out.
    factors: list[float] = [1, 1e3, 1e6, 100] if has_percent else [1, 1e3, 1e6]
    bare = {word[:-1] if word.endswith("s") else word for word in words}
    for names, known in _UNITS:
        if found := names & bare:
            if len(found) > 1:
                return None
            factors += known
    return factors


def _agree(known: _Value, stated: _Value, decimals: int | None, factors: Sequence[float]) -> bool:
    # Shares are often said as per cents.
    for factor in (*factors, 100) if abs(known.value) <= 1 else factors:
        for scale in (factor, 1 / factor):
            low, value, high = (part * scale for part in known)
            slack = 1e-9 * max(1.0, abs(stated.value))
            if factor != 1:
                slack = max(slack, 0.02 * abs(value))
            if low - slack <= stated.high and stated.low <= high + slack:
                return True
            if decimals is None or factor != 1:
                continue
            last_place = 10.0**-decimals
            is_whole = abs(value / last_place - round(value / last_place)) < 1e-6
            if not is_whole and low - last_place <= stated.value <= high + last_place:
                return True
            is_round = decimals == 0 and stated.value >= 1000 and stated.value % 10 == 0
            if is_round and abs(stated.value - value) < 0.005 * stated.value:
                return True
    return False


def _readings(items: tuple[_Token, ...], *, is_left: bool) -> list[tuple[_Value, int | None]]:
    """The values that an expression may be meant to have, with the decimals of a lone number.

    Empty where the whole has none, or more readings than are worth listing (``7/12 / 1/12``).
    """
    kinds = "".join(item.kind for item in items)
    if not items or kinds.count("/") > 1 or kinds.count("(") > _MOST_BRACKETS:
        return []
    parts, depth = [items], 0
    for index, item in enumerate(items):
        depth += (item.kind == "(") - (item.kind == ")")
        if depth or not index or item.kind not in "+*/":
            continue
        if not is_left:
            # 5 + 3 = 8 * 2
            parts.append(items[:index])
        elif (
            _sign(item) == "-"
            and items[index - 1].end < item.start
            and re.search(r"[n)%][+*/]", kinds[index:])
        ):
            # Day 2 - 5 * 3 = 15
            parts.append(items[index + 1 :])
        if item.kind == "/" and not {"(", "f"} & set(kinds):
            # 8+6/120+80, with a sign for a bar
            opened, closed = item._replace(kind="("), item._replace(kind=")")
            parts.append((opened, *items[:index], closed, item, opened, *items[index + 1 :], closed))
    if kinds[0] in "+*":
        # A list's mark.
        parts.append(items[1:])
    percents = _PERCENTS if "%" in kinds else _PERCENTS[:1]
    has_difference = is_left and any(_sign(item) == "-" for item in items)
    found: list[tuple[_Value, int | None]] = []
    for part in parts:
        places = len(part[0].text.partition(".")[2]) if len(part) == 1 or kinds == "n%" else None
        values = [_Reader(part, *reading).whole() for reading in itertools.product(_GROUPINGS, percents)]
        if part is items and kinds[0] != "*" and None in values:
            return []
        for value in filter(None, values):
            found.append((value, places))
            if has_difference:
                # Written in the wrong order.
                found.append((_negative(value), places))
    return found


_MOST_BRACKETS = 20
_GROUPINGS = ("usual", "in turn", "below")
"""Signs by their strength; from left to right; and ``6/2*3`` as 6 over 2 * 3."""
_PERCENTS = ("share", "bare", "change")
"""``20%`` as 0.2, as 20, and behind + or - as a share of what stands before."""


class _Reader:
    """Evaluates items from left to right, with one method per rule of the grammar."""

    def __init__(self, items: Sequence[_Token], grouping: str, percents: str) -> None:
        self._items = items
        self._grouping = grouping
        self._percents = percents
        self._place = 0

    def whole(self) -> _Value | None:
        """None for what is no expression or has no value."""
        try:
            value = self._sum()
        except (_NoValueError, ArithmeticError):
            return None
        return value if self._place == len(self._items) and all(map(math.isfinite, value)) else None

    def _sum(self) -> _Value:
        in_turn = self._grouping == "in turn"
        value = self._product()
        while sign := self._take("+-*/" if in_turn else "+-"):
            begin = self._place
            right = self._signed() if in_turn else self._product()
            is_share = self._place - begin == 2 and self._items[begin + 1].kind == "%"
            if is_share and self._percents == "change" and sign in "+-":
                right = _apply("*", value, right)
            value = _apply(sign, value, right)
        return value

    def _product(self) -> _Value:
        value = self._signed()
        while self._grouping != "in turn" and (sign := self._take("*/")):
            right = self._product() if sign == "/" and self._grouping == "below" else self._signed()
            value = _apply(sign, value, right)
        return value

    def _signed(self) -> _Value:
        return _negative(self._power()) if self._take("-") else self._power()

    def _power(self) -> _Value:
        value = self._atom()
        if not self._take("^"):
            return value
        exponent = self._signed().value
        if exponent != int(exponent) or not 0 <= exponent <= _MOST_POWER:
            raise _NoValueError
        return _Value(*(part ** int(exponent) for part in value))

    def _atom(self) -> _Value:
        token = self._next("n(f")
        if token.kind == "n":
            value = _number(token.text, is_percent=self._has("%"))
        elif token.kind == "(":
            value = self._closed()
        else:
            above, _, below = self._next("(") and self._closed(), self._next("("), self._closed()
            value = _apply("/", above, below)
        if self._has("%"):
            self._place += 1
            if self._percents != "bare":
                value = _Value(*(part / 100 for part in value))
        return value

    def _closed(self) -> _Value:
        value = self._sum()
        self._next(")")
        return value

    def _has(self, kinds: str) -> bool:
        return self._place < len(self._items) and self._items[self._place].kind in kinds

    def _next(self, kinds: str) -> _Token:
        if not self._has(kinds):
            raise _NoValueError
        self._place += 1
        return self._items[self._place - 1]

    def _take(self, signs: str) -> str:
        """The next token's sign if it is one of these, else nothing."""
        if self._has("+*/^") and (sign := _sign(self._items[self._place])) in signs:
            self._place += 1
            return sign
        return ""


class _NoValueError(Exception):
    """What is read is no expression."""


def _number(digits: str, *, is_percent: bool) -> _Value:
    """A number as it stands; one that may have been rounded, between what may have been meant."""
    if re.match(r"0\d", digits):
        # An hour, a code.
        raise _NoValueError
    if "/" in digits:
        whole, above, below = map(int, re.split("[ /]", digits))
        return _Value(*[whole + above / below] * 3)
    value = float(_plain(digits) or 0)
    places = len(digits.partition(".")[2])
    is_rounded = value % 5 != 0 if is_percent and not places else places > 0
    if is_rounded and places <= 2 and digits[-1] in "05":
        is_rounded = False
    last_place = 10.0**-places
    return _Value(value - 0.5 * last_place, value, value + last_place) if is_rounded else _Value(*[value] * 3)


def _negative(value: _Value) -> _Value:
    return _Value(-value.high, -value.value, -value.low)


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
