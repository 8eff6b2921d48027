r"""``seele grade``: verdicts on a file of answers, by the graders that training uses."""

import json
import reprlib
from pathlib import Path
from typing import Annotated, Any

import typer

from seele.config.settings import RewardConfig
from seele.errors import DataError

_DEFAULTS = RewardConfig()


def grade_command(
    cases: Annotated[
        Path, typer.Argument(help='One {"gold": text, "pred": text} a line.', show_default=False)
    ],
    out: Annotated[
        Path, typer.Option(help="Where the same rows go, with `correct` and `reason`.", show_default=False)
    ],
    grader: Annotated[str, typer.Option(help="mathruler or math_verify.")] = _DEFAULTS.grader,
    workers: Annotated[int, typer.Option(help="Grading processes.")] = 2,
    time_limit_s: Annotated[
        float, typer.Option(help="Processor time for one answer.")
    ] = _DEFAULTS.time_limit_s,
) -> None:
    r"""Compare each prediction with its reference answer.

    The last \boxed{} of a text counts. A text without any box is taken as the answer itself, unlike in
    training, where it is no answer.
    """
    from seele.data.files import read_json_lines, write_atomically
    from seele.reward.grader import GraderPool

    rows = [_check(row, at) for at, row in read_json_lines(cases)]
    with GraderPool(grader=grader, num_workers=workers, time_limit_s=time_limit_s) as pool:
        grades = pool.grade_answers((_answer(row["pred"]), _answer(row["gold"]) or "") for row in rows)
    graded = [
        row | {"correct": grade.correct, "reason": grade.reason.value}
        for row, grade in zip(rows, grades, strict=True)
    ]
    write_atomically(out, "".join(json.dumps(row) + "\n" for row in graded))
    typer.echo(f"{out}: {sum(grade.correct for grade in grades)} of {len(grades)} correct")


def _check(row: Any, at: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DataError(f'{at}: expected an object {{"gold": text, "pred": text}}, got {reprlib.repr(row)}')
    for key in ("gold", "pred"):
        if not isinstance(row.get(key), str):
            raise DataError(
                f"{at}, key {key!r}: expected a text, got {row.get(key)!r}; write numbers as text"
            )
    return row


def _answer(text: str) -> str | None:
    from seele.reward.extract import last_boxed

    return last_boxed(text) if r"\boxed{" in text else text
