"""Find training problems that occur in benchmarks: ``python -m seele_eval.contamination FILE... [options]``.

FILE is a parquet file of problems. ``seele.data.contamination`` defines an overlap. This module
reads the benchmarks with the loaders of ``seele_eval``, writes the report, and copies files without the
overlapping problems.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from seele.data.contamination import COMMON, DEFAULT_N, Contaminated, Questions, find_contaminated
from seele.data.storage.files import check_output, check_writable, file_sha256, write_atomically
from seele.data.storage.parquet import copy_rows
from seele.data.storage.schema import iterate_problems
from seele.errors import ConfigError, DataError
from seele.rollout.templates import QUESTION
from seele_eval.arguments import names
from seele_eval.command import run_command
from seele_eval.own_benchmarks import find_benchmarks
from seele_eval.problems import Problem
from seele_eval.sources import Task, load_benchmark
from seele_eval.tables import table

_SHOWN_CHARS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Overlaps of one file with the benchmarks."""

    file: Path
    problems: int
    contaminated: tuple[Contaminated, ...]
    tasks: tuple[Task, ...]
    examples: int

    def text(self) -> str:
        """A Markdown table by benchmark, with examples; unpublishable questions are left out."""
        share = len(self.contaminated) / self.problems
        lines = [
            f"{self.file.name}: {len(self.contaminated)} of {self.problems} problems ({share:.2%}) overlap "
            "with a benchmark.\n"
        ]
        lines.append(table([self._cells(task) for task in self.tasks], num_names=1))
        lines += [example for task in self.tasks for example in self._examples(task)]
        return "\n".join(lines).rstrip("\n") + "\n"

    def as_json(self) -> dict[str, Any]:
        """Every overlap, without the texts of questions."""
        return {
            "file": self.file.name,
            "sha256": file_sha256(self.file),
            "problems": self.problems,
            "contaminated": [asdict(each) for each in self.contaminated],
            "benchmarks": {
                task.name: {"questions": len(task.problems), **task.source} for task in self.tasks
            },
        }

    def _cells(self, task: Task) -> dict[str, str]:
        best = [
            max(each.shared + each.is_exact for each in problem.overlaps if each.benchmark == task.name)
            for problem in self.contaminated
            if any(each.benchmark == task.name for each in problem.overlaps)
        ]
        asked = {
            each.question
            for problem in self.contaminated
            for each in problem.overlaps
            if each.benchmark == task.name
        }
        return {
            "benchmark": task.name,
            "questions": str(len(task.problems)),
            "problems, exact": str(sum(share > 1.0 for share in best)),
            "half of the n-grams": str(sum(0.5 <= share <= 1.0 for share in best)),
            "fewer": str(sum(share < 0.5 for share in best)),
            "questions met": f"{len(asked)} ({len(asked) / len(task.problems):.1%})",
        }

    def _examples(self, task: Task) -> list[str]:
        met = [
            (problem, each)
            for problem in self.contaminated
            for each in problem.overlaps
            if each.benchmark == task.name
        ]
        shown = []
        for problem, each in met[: self.examples]:
            question = (
                _shortened(task.problems[each.question].question) if task.may_be_published else "(not shown)"
            )
            kind = "exact" if each.is_exact else f"{each.shared:.0%} of its n-grams"
            shown.append(
                f"- row {problem.row}, {problem.instance_id}: {task.name} {each.question}, {kind}: {question}"
            )
        return shown


def check(
    file: Path, tasks: Sequence[Task], questions: Questions, *, min_shared: float = 0.0, examples: int = 2
) -> Report:
    """Check every problem of a file against the questions.

    Raises:
        DataError: As ``seele.data.storage.schema.read_problems``.
    """
    num_problems = 0

    def asked() -> Any:
        nonlocal num_problems
        for instance in iterate_problems(file):
            num_problems += 1
            yield instance.instance_id, instance.question

    found = find_contaminated(asked(), questions, min_shared=min_shared)
    return Report(
        file=file, problems=num_problems, contaminated=tuple(found), tasks=tuple(tasks), examples=examples
    )


def stem(problem: Problem) -> str:
    """The question without its options."""
    lines = [f"{label}) {text}" for label, text in zip(problem.labels, problem.options, strict=True)]
    return problem.question.removesuffix("\n\n" + "\n".join(lines)) if lines else problem.question


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit status as ``run_command``."""
    parser = argparse.ArgumentParser(prog="seele_eval.contamination", description=__doc__.splitlines()[0])
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="parquet files of problems")
    parser.add_argument(
        "--benchmarks",
        type=names,
        default=("all",),
        help="comma-separated names, groups or your own (default: all nine)",
    )
    parser.add_argument("--data-dir", type=Path, help="folder with the benchmarks' files (default: the hub)")
    parser.add_argument("--any-row-count", action="store_true", help="accept incomplete benchmarks")
    parser.add_argument("--n", type=int, default=DEFAULT_N, help="words per n-gram (default: %(default)s)")
    parser.add_argument(
        "--common",
        type=int,
        default=COMMON,
        help="word sequences in at least this many questions are common wording (default: %(default)s)",
    )
    parser.add_argument(
        "--min-shared",
        type=_portion,
        default=0.0,
        help="smallest share of a question's n-grams that counts, from 0 to 1 (default: any)",
    )
    parser.add_argument("--examples", type=_count, default=2, help="per benchmark (default: %(default)s)")
    parser.add_argument(
        "--remove", type=Path, metavar="OUT", help="folder for copies without the overlapping problems"
    )
    parser.add_argument("--json", type=Path, help="write every overlap to this file")
    return run_command(lambda: _run(parser.parse_args(argv)))


def _portion(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be from 0 to 1, got {text}")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, got {text}")
    return value


def _run(arguments: argparse.Namespace) -> str:
    if arguments.remove is not None:
        _check_targets(arguments.files, arguments.remove)
        check_writable(arguments.remove, option="--remove", is_folder=True)
    if arguments.json is not None:
        check_writable(arguments.json, option="--json")
        copies = [arguments.remove / file.name for file in arguments.files if arguments.remove]
        for file in (*arguments.files, *copies):
            check_output(file, arguments.json, option="--json")
    if missing := [file for file in arguments.files if not file.is_file()]:
        raise DataError(f"{missing[0]}: no such file; expected parquet files of problems")
    benchmarks = find_benchmarks(arguments.benchmarks)
    tasks = [
        load_benchmark(
            name,
            # Only questions are compared, not the text that a benchmark puts around them.
            replace(each, prompt=QUESTION),
            data_dir=arguments.data_dir,
            any_row_count=arguments.any_row_count,
        )
        for name, each in benchmarks.items()
    ]
    try:
        questions = Questions(
            {task.name: [stem(problem) for problem in task.problems] for task in tasks},
            with_options={task.name: [problem.question for problem in task.problems] for task in tasks},
            n=arguments.n,
            common=arguments.common,
        )
    except ValueError as error:
        raise ConfigError(f"--n, --common: {error}") from error
    texts, reports = [], []
    for file in arguments.files:
        report = check(file, tasks, questions, min_shared=arguments.min_shared, examples=arguments.examples)
        reports.append(report)
        texts.append(report.text())
        if arguments.remove is not None:
            texts.append(_remove(report, arguments.remove / file.name))
            write_atomically(
                (arguments.remove / file.name).with_suffix(".contamination.json"),
                json.dumps(report.as_json(), indent=1) + "\n",
            )
    if arguments.json is not None:
        write_atomically(arguments.json, json.dumps([each.as_json() for each in reports], indent=1) + "\n")
    return "\n".join(texts)


def _check_targets(files: Sequence[Path], folder: Path) -> None:
    names = [file.name for file in files]
    if len(set(names)) < len(names):
        raise ConfigError(f"--remove {folder}: {names} would overwrite each other; run once per file")
    for file in files:
        if (folder / file.name).resolve() == file.resolve():
            raise ConfigError(f"--remove {folder}: {file} is in this folder; name another folder")


def _remove(report: Report, target: Path) -> str:
    rows = {each.row for each in report.contaminated}
    copy_rows(report.file, target, (row not in rows for row in range(report.problems)))
    return f"{target}: {report.problems - len(rows)} problems\n"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + " ..."


if __name__ == "__main__":
    raise SystemExit(main())
