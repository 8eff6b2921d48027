r"""``seele grade``: grade a file of answers with the graders that training uses."""

import json
import os
import reprlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from seele.cli.outputs import writable_file
from seele.config import RewardConfig, from_mapping
from seele.errors import ConfigError, DataError
from seele.records import Grade

_DEFAULTS = RewardConfig()
_SETTABLE = ("correct_from", "isolation", "memory_limit_mb")
_CROSS_CHECKED = ("mathruler", "math_verify")

# A process takes 100 MB, and a second to start.
_WORKERS = min(8, os.cpu_count() or 1)
_MAX_CHARS = 10_000


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the file, its location, and what is graded in it."""

    at: str
    row: dict[str, Any]
    answer: str | None
    gold: str

    @property
    def data_source(self) -> str:
        """Source of the row's problem, or an empty text; some data sources have a checker."""
        return str(self.row.get("data_source", ""))


def grade_command(
    cases: Annotated[
        Path, typer.Argument(help='File with one {"gold": text, "pred": text} per line.', show_default=False)
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="File of the same rows with `correct` and `reason`.",
            dir_okay=False,
            show_default=False,
            callback=writable_file,
        ),
    ],
    grader: Annotated[
        str,
        typer.Option(
            help="mathruler, math_verify, strict+, multiple_choice, or a reward function of your own, "
            "path/to/file.py:function or package.module:function."
        ),
    ] = _DEFAULTS.grader,
    cross_check: Annotated[
        Path | None,
        typer.Option(
            help="Page of the rows that MathRuler and Math-Verify disagree on.",
            show_default=False,
            callback=writable_file,
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(help="Grading processes.", show_default="one per core, at most 8")
    ] = _WORKERS,
    time_limit_s: Annotated[
        float, typer.Option(help="CPU time for one answer, in seconds.")
    ] = _DEFAULTS.time_limit_s,
    max_chars: Annotated[
        int | None,
        typer.Option(
            help="Longer answers are not graded, nor are longer texts for math_verify; your own reward "
            "function gets texts of any length.",
            show_default=f"{_MAX_CHARS}",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="KEY=VALUE of seele.reward for your own function: kwargs.NAME, correct_from, isolation or "
            "memory_limit_mb.",
        ),
    ] = None,
) -> None:
    r"""Compare each prediction with its reference answer.

    The last \boxed{} of a text counts; Math-Verify reads the whole text. A text without a box is itself the
    answer, while in training it counts as no answer. Numbers are read as text; any other prediction counts
    as no answer. multiple_choice reads the texts of a row's options, if given, from the list `options`. A row
    whose `data_source` is countdown, zebra or arc_1d is graded by that task's checker, whichever built-in
    grader is chosen. Your own reward function grades every row. It finds the problem in `question` and
    `level`, and its solution in the list `steps`, of which `hint_steps` were shown (0 by default); its reward
    and its other values are written as `reward` and `reward_extra`.
    """
    from seele.data.storage.files import check_output, read_json_lines, write_atomically
    from seele.reward.graders import GRADERS
    from seele.reward.reasoning import CHECKERS

    _refuse_other_formats(cases)
    check_output(cases, out)
    if cross_check is not None:
        check_output(cases, cross_check, option="--cross-check")
        check_output(out, cross_check, option="--cross-check")
    is_function = grader not in GRADERS
    if is_function and max_chars is not None and cross_check is None:
        raise ConfigError(
            f"--max-chars {max_chars}: a reward function of your own gets texts of any length; leave it out"
        )
    if settings and not is_function:
        raise ConfigError(
            f"--set {settings[0]}: has no effect on the grader {grader!r}, which is not your own"
        )
    reward = _reward_settings(settings or [])

    def settings_of(name: str, **limits: int) -> RewardConfig:
        given = {"grader": name, "num_workers": workers, "time_limit_s": time_limit_s}
        return from_mapping(RewardConfig, reward | given | limits, "seele.reward")

    read = [_read_case(at, row) for at, row in read_json_lines(cases)]
    if not read:
        raise DataError(f'{cases}: no rows; expected one {{"gold": text, "pred": text}} per line')

    def grade_by(name: str) -> Sequence[Grade]:
        others = [case for case in read if case.data_source not in CHECKERS]
        if name == "multiple_choice":
            graded = iter([_choose(case) for case in others])
        else:
            most = _MAX_CHARS if max_chars is None else max_chars
            graded = iter(_grade(others, settings_of(name, max_answer_chars=most)))
        return [_check(case) if case.data_source in CHECKERS else next(graded) for case in read]

    if is_function:
        grades: Sequence[Grade] = _call_function(read, settings_of(grader))
    else:
        grades = grade_by(grader)
    graded = [
        case.row
        | {"correct": grade.correct, "reason": grade.reason.value}
        | ({"reward": grade.reward, "reward_extra": dict(grade.extra)} if is_function else {})
        for case, grade in zip(read, grades, strict=True)
    ]
    write_atomically(out, "".join(json.dumps(row) + "\n" for row in graded))
    reasons = Counter(grade.reason.value for grade in grades if not grade.correct).most_common()
    why = f" ({', '.join(f'{count} {reason}' for reason, count in reasons)})" if reasons else ""
    mean = f"; mean reward {fmean(grade.reward for grade in grades):.3g}" if is_function else ""
    typer.echo(f"{out}: {sum(grade.correct for grade in grades)} of {len(grades)} correct{why}{mean}")
    if cross_check is not None:
        first, second = (grades if name == grader else grade_by(name) for name in _CROSS_CHECKED)
        typer.echo(_write_cross_check(cross_check, read, first, second))


def _reward_settings(settings: list[str]) -> dict[str, Any]:
    """Return settings of ``RewardConfig`` by name."""
    from seele.cli.data_prepare import parse_settings

    reward: dict[str, Any] = {"kwargs": {}}
    for key, value in parse_settings(settings).items():
        section, _, name = key.partition(".")
        if section == "kwargs" and name:
            reward["kwargs"][name] = value
        elif key in _SETTABLE:
            reward[key] = value
        else:
            raise ConfigError(
                f"--set {key}: expected kwargs.NAME, {', '.join(_SETTABLE[:-1])} or {_SETTABLE[-1]}"
            )
    return reward


def _grade(cases: Sequence[Case], settings: RewardConfig) -> list[Grade]:
    from seele.reward.grader import GraderPool

    with GraderPool(settings) as pool:
        return pool.grade_answers((case.answer, case.gold) for case in cases)


def _call_function(cases: Sequence[Case], settings: RewardConfig) -> list[Grade]:
    from seele.records import Instance
    from seele.reward.function_grader import FunctionGrader

    problems = [
        (
            case.answer or "",
            Instance(
                instance_id=str(case.row.get("id", case.at)),
                data_source=case.data_source,
                question=str(case.row.get("question", "")),
                steps=_steps_of(case),
                answer=case.gold,
                level=_level_of(case),
            ),
        )
        for case in cases
    ]
    with FunctionGrader(settings) as grader:
        return grader.grade_problems(problems, hint_steps=[_hint_steps_of(case) for case in cases])


def _steps_of(case: Case) -> tuple[str, ...]:
    steps = case.row.get("steps", [])
    if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        raise DataError(f"{case.at}, key 'steps': expected a list of texts, got {reprlib.repr(steps)}")
    return tuple(steps)


def _hint_steps_of(case: Case) -> int:
    shown, most = case.row.get("hint_steps", 0), len(case.row.get("steps", []))
    if not isinstance(shown, int) or isinstance(shown, bool) or not 0 <= shown <= most:
        raise DataError(
            f"{case.at}, key 'hint_steps': expected a number of steps from 0 to {most}, got {shown!r}"
        )
    return shown


def _level_of(case: Case) -> int:
    level = case.row.get("level", 0)
    if not isinstance(level, int) or isinstance(level, bool):
        raise DataError(f"{case.at}, key 'level': expected a whole number, got {reprlib.repr(level)}")
    return level


def _check(case: Case) -> Grade:
    from seele.reward.extract import answer_in
    from seele.reward.reasoning import check_answer

    try:
        return check_answer(
            None if case.answer is None else answer_in(case.answer), case.gold, case.data_source
        )
    except DataError as error:
        raise DataError(f"{case.at}: {error}") from error


def _choose(case: Case) -> Grade:
    from seele.reward.multiple_choice import UNKNOWN_OPTIONS, grade_choice

    options = case.row.get("options", UNKNOWN_OPTIONS)
    if not isinstance(options, list | tuple) or not all(isinstance(option, str) for option in options):
        raise DataError(f"{case.at}, key 'options': expected a list of texts, got {reprlib.repr(options)}")
    try:
        return grade_choice(case.answer, case.gold, options)
    except DataError as error:
        raise DataError(f"{case.at}: {error}") from error


def _write_cross_check(
    path: Path, cases: Sequence[Case], first: Sequence[Grade], second: Sequence[Grade]
) -> str:
    """Write the page and return a one-line summary."""
    from seele.data.storage.files import write_atomically
    from seele.reward.cross_check import TwiceGraded, disagreements_page

    answers = [
        TwiceGraded(
            name=" ".join(filter(None, (case.at, str(case.row.get("id", ""))))),
            answer=case.answer or "",
            gold=case.gold,
            first=one,
            second=other,
        )
        for case, one, other in zip(cases, first, second, strict=True)
    ]
    write_atomically(path, disagreements_page(answers, graders=_CROSS_CHECKED))
    return f"{path}: {sum(answer.disagrees for answer in answers)} of {len(answers)} disagree"


def _refuse_other_formats(cases: Path) -> None:
    if not cases.is_file():
        return
    with cases.open("rb") as stream:
        is_parquet = stream.read(4) == b"PAR1"
    if is_parquet or cases.suffix == ".csv":
        kind, reader = (
            ("parquet", "read_parquet(FILE)") if is_parquet else ("CSV", "read_csv(FILE, dtype=str)")
        )
        raise DataError(
            f'{cases}: {kind}, but cases are JSON lines such as {{"gold": "7", "pred": "8"}}; '
            f"write them with pandas: {reader}.to_json(CASES, orient='records', lines=True)"
        )


def _read_case(at: str, row: Any) -> Case:
    from seele.data.sources.mapping import as_text

    if not isinstance(row, dict):
        raise DataError(f'{at}: expected an object {{"gold": text, "pred": text}}, got {reprlib.repr(row)}')
    if "gold" not in row:
        raise DataError(
            f"{at}: no key 'gold', the reference answer; it has {reprlib.repr(list(row))}; expected "
            '{"gold": text, "pred": text}'
        )
    gold = as_text(row["gold"])
    if gold is None:
        raise DataError(f"{at}, key 'gold': expected a text, got {reprlib.repr(row['gold'])}")
    if "pred" not in row:
        raise DataError(f"{at}: no key 'pred', the answer to grade; use null for no answer")
    return Case(at, row, answer=as_text(row["pred"]), gold=gold)
