"""Milestones of a worked solution, and how far along them a response gets. Pure; linear in the text.

A *milestone* is a value that a step of the worked solution computes and that is neither in the question nor
in an earlier step; the last one is the final answer. A response is walked from left to right: a result ``=
24`` with a milestone's value passes it, and the first sure error ends the walk. There are two kinds of text:

* *chains* (``seele.data.tasks.chains``), ``7a+5=2``: the letter names the operation, so every value is
  compared with the solution's. Exact.
* *free text*, which may reach the answer another way: a value that is not a milestone's is neither correct
  nor wrong. An error is an equation that is false by itself (``seele.maths.equations``), or one with the left
  side of a milestone's own equation and another value.

Segments, offsets and hints count characters; the caller converts them to tokens. Another module gives credit
for milestones. docs/milestones.md reports what the walk finds in real text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from seele.maths.boxed import canonical_number, last_boxed
from seele.maths.equations import Equation, equations, numbers_of
from seele.records import Instance, Milestone, Segment, Walk


def milestones_of(instance: Instance) -> tuple[Milestone, ...]:
    """The stored milestones of a problem, or those of ``find_milestones`` if none are stored."""
    if instance.milestones is not None:
        return instance.milestones
    return find_milestones(instance.question, instance.steps, instance.answer)


def num_shown(milestones: Sequence[Milestone], hint_chars: int) -> int:
    """How many leading milestones a hint of this many characters states (``walk``'s ``shown``)."""
    return sum(milestone.end <= hint_chars for milestone in milestones)


def find_milestones(question: str, steps: Sequence[str], answer: str) -> tuple[Milestone, ...]:
    """The milestones of a worked solution, in order; at most one per step, the step's last new value.

    A step whose value is the final answer has no milestone of its own: the last milestone represents it.

    Args:
        question: The problem; its numbers are not milestones.
        steps: The worked solution, cut anywhere; may be empty.
        answer: The reference answer, the value of the last milestone.
    """
    text = "".join(steps)
    if _CHAIN_QUESTION.fullmatch(question.strip()) and (links := list(_CHAIN_STEP.finditer(text))):
        found = [Milestone(link["value"], link.end(), (link[0],)) for link in links]
        return (*found[:-1], replace(found[-1], value=answer, end=len(text)))
    found, step_start = [], 0
    # What the question gives is never an error, even if it is false.
    written = [equation.written for equation in equations(question) if equation.written]
    for step, stated in zip(steps, _stated(question, steps), strict=True):
        new = [equation for equation, is_new in stated if is_new]
        for equation, _ in stated:
            if equation.written:
                written.append(equation.written)
            value = equation.value
            if new and equation is new[-1] and value is not None and not _same_value(value, answer):
                found.append(Milestone(value, step_start + equation.end, tuple(written)))
                written = []
        step_start += len(step)
    return (*found, Milestone(answer, len(text), tuple(written)))


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts of problems and steps with milestones to walk along, excluding the last steps."""

    problems: int = 0
    with_two: int = 0
    """Problems with at least two milestones, including the final answer."""
    steps: int = 0
    holding: int = 0
    """Steps with a milestone."""
    stating: int = 0
    """Steps that state a value after an equals sign."""
    new: int = 0
    """Steps that state a value that is neither in the question nor in an earlier step."""


def coverage(instances: Iterable[Instance]) -> Coverage:
    """Count the milestones of problems (``milestones_of``)."""
    problems = with_two = steps = holding = stating = new = 0
    for instance in instances:
        problems += 1
        milestones = milestones_of(instance)
        with_two += len(milestones) >= 2
        start = 0
        for step, stated in zip(
            instance.steps[:-1], _stated(instance.question, instance.steps), strict=False
        ):
            steps += 1
            end = start + len(step)
            holding += any(start < milestone.end <= end for milestone in milestones)
            stating += any(equation.value is not None for equation, _ in stated)
            new += any(is_new for _, is_new in stated)
            start = end
    return Coverage(problems, with_two, steps, holding, stating, new)


def _stated(question: str, steps: Sequence[str]) -> list[list[tuple[Equation, bool]]]:
    """The equations of each step, in order, and whether their right sides are new values."""
    known, found = numbers_of(question), []
    for step in steps:
        found.append([(each, each.value is not None and each.value not in known) for each in equations(step)])
        known |= numbers_of(step)
    return found


def _same_value(text: str, answer: str) -> bool:
    """Return True if both texts are the same, apart from blanks and the formatting of numbers."""
    one, other = (re.sub(r"[\s$]|\\[$,!;]", "", each) for each in (text, answer))
    is_number = all(re.fullmatch(r"[0-9,]*\.?[0-9]+", each) for each in (one, other))
    return canonical_number(one) == canonical_number(other) if is_number else one == other


def walk(
    milestones: Sequence[Milestone], text: str, *, correct: bool | None, shown: int = 0, hint: str = ""
) -> Walk:
    r"""Walk a response along the milestones.

    Passed segments come first. Then one that ends with the text and belongs to the last milestone: passed if
    the final answer is correct, failed if it is wrong without a sure error, and omitted if it is unknown. A
    sure error gives a failed segment instead, which ends after the wrong value.

    Args:
        milestones: From ``find_milestones``; without any, nothing is walked.
        text: The response, without prompt and hint.
        correct: Whether its final answer is correct; if so, nothing is an error. None if unknown: then the
            last ``\boxed{}`` counts if it is written like the answer.
        shown: How many milestones the hint states. The others are still ahead.
        hint: The text right before the response, which continues it. An equation that begins there counts if
            its value begins in the response. Chains need none: a letter tells where an operation belongs.
    """
    if not milestones:
        return Walk((), None)
    last = len(milestones) - 1
    runs = _chain_runs(milestones)
    segments: list[Segment] = []
    start, ahead = 0, min(max(shown, 0), last)
    for event in _chain_events(milestones, runs, text) if runs else _free_events(milestones, text, hint):
        if event.is_error:
            if correct:
                continue
            index = next((i for i in event.milestones if i >= ahead), ahead)
            return Walk((*segments, Segment(start, event.end, index, False)), event.start)
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
    milestones: list[int]
    """The milestones whose value it is or, for an error, should have been."""


def _free_events(milestones: Sequence[Milestone], text: str, hint: str) -> Iterator[_Event]:
    by_value: dict[str, list[int]] = {}
    by_left: dict[str, list[int]] = {}
    known: dict[str, list[str]] = {}
    stated: set[str] = set()
    for index, milestone in enumerate(milestones):
        by_value.setdefault(milestone.value, []).append(index)
        stated.update(milestone.equations)
        for left, _, value in (own.partition("=") for own in milestone.equations[-1:]):
            if _same_value(value, milestone.value):
                by_left.setdefault(left, []).append(index)
                known.setdefault(left, []).append(value)
    for equation in equations(hint + text, known):
        start, end = equation.start - len(hint), equation.end - len(hint)
        if start < 0:
            continue
        # An equation of the question or the worked solution is never an error, even if it is false.
        if equation.is_false and equation.written not in stated:
            left = equation.written.partition("=")[0]
            yield _Event(start, end, True, by_left.get(left, []))
        elif equation.value in by_value:
            yield _Event(start, end, False, by_value[equation.value])


# --- Chains

_CHAIN_QUESTION = re.compile(r"[0-9](?: [a-z][-+*][0-9])+")
_CHAIN_STEP = re.compile(r"(?<![\w+*-])(?P<left>[0-9](?:[a-z][-+*][0-9])+)=(?P<value>[0-9]+)")
_CHAIN_STEP_OR_BOX = re.compile(rf"{_CHAIN_STEP.pattern}|\\boxed\{{(?P<content>[^{{}}]*)\}}")


def _place(left: str) -> int:
    """The number of operations done after a step, from the letter of its last one."""
    return ord(left[-3]) - ord("a") + 1


def _chain_runs(milestones: Sequence[Milestone]) -> list[dict[int, str]]:
    """A chain's values after each operation, by its place, once for each modulus that its milestones allow.

    The runs differ only where a step of the solution has several operations. They begin with the first
    milestone's operations. None are found in free text.
    """
    links = [_CHAIN_STEP.fullmatch("".join(milestone.equations)) for milestone in milestones]
    lefts = [link["left"] for link in links if link is not None]
    if len(lefts) < len(milestones):
        return []
    values = [*(milestone.value for milestone in milestones[:-1]), milestones[-1].value[-1:]]
    operations = re.findall(r"[a-z]([-+*])([0-9])", "".join(left[1:] for left in lefts))
    first = _place(lefts[0][:4])
    runs = []
    for modulus in range(3, 11):
        run, value = {}, int(lefts[0][0])
        for place, (sign, operand) in enumerate(operations, start=first):
            right = int(operand)
            value = {"+": value + right, "-": value - right, "*": value * right}[sign] % modulus
            run[place] = str(value)
        if [run.get(_place(left)) for left in lefts] == values:
            runs.append(run)
    return runs


def _chain_events(
    milestones: Sequence[Milestone], runs: Sequence[Mapping[int, str]], text: str
) -> Iterator[_Event]:
    index_of = {
        _place(milestone.equations[-1].partition("=")[0]): i for i, milestone in enumerate(milestones)
    }
    first = min(runs[0])
    for step in _CHAIN_STEP_OR_BOX.finditer(text):
        if (content := step["content"]) is not None:
            is_error = content.strip() != milestones[-1].value
            yield _Event(*step.span("content"), is_error, [len(milestones) - 1])
            continue
        place = _place(step["left"])
        # What comes before the first milestone is not known.
        if place < first:
            continue
        # No value is correct for an operation that the question does not have.
        allowed = {run[place] for run in runs if place in run}
        indices = [index_of[place]] if place in index_of else []
        yield _Event(*step.span("value"), step["value"] not in allowed, indices)
