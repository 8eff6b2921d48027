"""A page of the answers on which two graders disagree, for a person to read. The caller does the grading."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seele.maths.tables import markdown_table
from seele.records import UNGRADED, Grade

# Of a long text only the end is shown.
_MAX_CHARS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class TwiceGraded:
    """One answer, and the verdicts of two graders on it."""

    name: str
    """A name by which a reader can find the answer."""
    answer: str
    gold: str
    first: Grade
    second: Grade

    @property
    def disagrees(self) -> bool:
        """True if one grader accepts the answer and the other rejects it or could not grade it."""
        return self.first.correct != self.second.correct


def disagreements_page(answers: Sequence[TwiceGraded], *, graders: tuple[str, str]) -> str:
    """Markdown: how often the two graders of these names agree, then each disagreement with its texts."""
    first, second = graders
    counts = Counter((answer.first.correct, answer.second.correct) for answer in answers)
    ungraded = Counter(
        name
        for answer in answers
        for name, grade in zip(graders, (answer.first, answer.second), strict=True)
        if grade.reason in UNGRADED
    )
    table = markdown_table(
        ("", f"{second} accepts", f"{second} rejects"),
        [
            (f"{first} accepts", str(counts[True, True]), str(counts[True, False])),
            (f"{first} rejects", str(counts[False, True]), str(counts[False, False])),
        ],
    )
    sections = [
        f"# {first} and {second}: {sum(answer.disagrees for answer in answers)} of {len(answers)} disagree",
        table.rstrip(),
        "Rejected for want of a verdict: "
        + ", ".join(f"{ungraded[name]} by {name}" for name in graders)
        + ". How to read this page: docs/grading.md.",
    ]
    for accepting, rejecting, first_accepts in ((first, second, True), (second, first, False)):
        sections.append(f"## {accepting} accepts, {rejecting} does not")
        sections += [
            _section(answer, answer.second if first_accepts else answer.first)
            for answer in answers
            if answer.disagrees and answer.first.correct is first_accepts
        ]
    return "\n\n".join(sections) + "\n"


def _section(answer: TwiceGraded, rejection: Grade) -> str:
    return "\n".join(
        [
            f"### {answer.name}: {rejection.reason.value}",
            "",
            *_quoted("gold  ", answer.gold),
            *_quoted("answer", answer.answer),
        ]
    )


def _quoted(label: str, text: str) -> list[str]:
    """The end of the text as an indented block, which the text cannot break out of."""
    shown = text if len(text) <= _MAX_CHARS else "... " + text[-_MAX_CHARS:]
    first, *others = shown.split("\n")
    return [
        f"    {label} {_printable(first)}",
        *(f"    {'':{len(label)}} {_printable(line)}" for line in others),
    ]


def _printable(line: str) -> str:
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in line
    )
