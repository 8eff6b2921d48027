"""Benchmarks by name: the table's, and a user's own as a YAML file or an import path."""

import json
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from inspect import getfile, iscoroutinefunction, isfunction, ismethod, signature, unwrap
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from seele.config.build import from_mapping
from seele.data.sources import OpenSplit, SourceSettings, open_split
from seele.data.sources.reference import HubReference, beside, parse_reference
from seele.data.storage.files import file_sha256, read_yaml
from seele.errors import ConfigError, DataError, PluginError, did_you_mean
from seele.plugins import blame, find_part, installed_names, is_import_path, where, where_in
from seele.records import Grade, GradeReason
from seele.rollout.templates import QUESTION
from seele_eval.benchmarks import BENCHMARKS, GROUPS, Benchmark
from seele_eval.grading import Grader, Judge, extract_boxed, extract_option, judge_all, judge_option
from seele_eval.problems import Problem
from seele_eval.rows import RowColumns, read_columns

ENTRY_POINTS = "benchmarks"
"""Installed packages name benchmarks in this group of ``seele.plugins``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFile:
    """The keys of a benchmark's YAML file."""

    reference: str
    """Location of the rows, as of a data source (``SourceSettings``); paths are relative to the YAML file."""
    split: str = "test"
    """The source's name for the split, if the reference does not give it."""
    columns: RowColumns = field(default_factory=RowColumns)
    prompt: str = QUESTION
    """Text around the question and its options; the template wraps this text."""
    judge: str | None = None
    """``path/to/file.py:function`` that takes an answer and the reference answer and returns True if it
    is right, in place of the evaluation's grader.
    """
    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    samples: int = 1
    """Completions per problem at a temperature above 0."""
    rows: int | None = None
    """Number of problems in the whole set; any number if not given."""
    may_be_published: bool = True
    """True if questions may appear in result files."""

    def __post_init__(self) -> None:
        if QUESTION not in self.prompt:
            raise ValueError(f"prompt needs {QUESTION} where the question goes, got {self.prompt!r}")
        if not 0.0 <= self.temperature < inf or self.samples < 1:
            raise ValueError(
                f"expected a finite temperature >= 0 and samples >= 1, got {self.temperature} and "
                f"{self.samples}"
            )


def find_benchmarks(names: Sequence[str]) -> dict[str, Benchmark]:
    """Return the benchmarks with these names; groups are expanded.

    Args:
        names: Names in ``BENCHMARKS`` and ``GROUPS``; YAML files, named by their stem; import paths of a
            ``Benchmark``, named by the object; entry points of ``seele.benchmarks``.

    Raises:
        ConfigError: For an unknown name, a file with a mistake, or two benchmarks with the same name.
    """
    spelt_out = dict.fromkeys(each for name in names for each in GROUPS.get(name, (name,)))
    found: dict[str, Benchmark] = {}
    unknown = []
    for spec in spelt_out:
        if spec in BENCHMARKS:
            found[spec] = BENCHMARKS[spec]
            continue
        if not _is_own(spec):
            unknown.append(spec)
            continue
        name, benchmark = _own(spec)
        if name in found or name in BENCHMARKS or name in GROUPS:
            raise ConfigError(f"--benchmarks {spec}: another benchmark is named {name!r}; rename one")
        found[name] = benchmark
    if unknown:
        known = [*BENCHMARKS, *installed_names(ENTRY_POINTS)]
        near = did_you_mean(unknown[0], [*known, *GROUPS])
        raise ConfigError(
            f"--benchmarks: unknown {unknown}{near}; known are {known}, the groups {list(GROUPS)}, and your "
            "own as FILE.yaml, FILE.py:NAME or package.module:NAME (docs/evaluation.md)"
        )
    return found


def _is_own(spec: str) -> bool:
    return spec.endswith((".yaml", ".yml")) or is_import_path(spec) or spec in installed_names(ENTRY_POINTS)


def _own(spec: str) -> tuple[str, Benchmark]:
    if spec.endswith((".yaml", ".yml")):
        path = Path(spec).expanduser()
        return path.stem, _of_file(spec, path)
    part = find_part(spec, key="--benchmarks", group=ENTRY_POINTS, built_in={})
    if not isinstance(part, Benchmark):
        raise ConfigError(
            f"--benchmarks {spec}: expected a seele_eval.benchmarks.Benchmark, got {type(part).__name__}"
        )
    checked = _checked(f"--benchmarks {spec}", part)
    return spec.rpartition(":")[2], replace(checked, version=part.version or _version_of(spec, part))


def _checked(key: str, benchmark: Benchmark) -> Benchmark:
    """Return the benchmark with its own functions wrapped: an exception of one, or a result of another type,
    is an error that names its file and line, and the problem. ``load_benchmark`` checks ``read``.
    """

    def opened() -> OpenSplit:
        function = benchmark.open
        assert function is not None, "only then it is called"
        with blame(function, "open", key=key, error=ConfigError):
            split = function()
        if not isinstance(split, OpenSplit):
            raise _wrong_type(key, function, "open", "a seele.data.sources.OpenSplit", split)
        with blame(function, "rows and origin of open", key=key, error=ConfigError):
            rows = list(split.rows)
            json.dumps(dict(split.origin))  # scores.json holds it
        for row in rows:
            if not isinstance(row, tuple | list) or len(row) != 2:
                raise _wrong_type(key, function, "rows of open", "pairs of a location and a row", row)
        return replace(split, rows=rows)

    def extract(text: str, problem: Problem) -> str | None:
        doing = f"extract, problem {problem.instance_id}"
        with blame(benchmark.extract, doing, key=key):
            answer = benchmark.extract(text, problem)
        if not isinstance(answer, str | None):
            raise _wrong_type(key, benchmark.extract, doing, "a text or None", answer)
        return answer

    def judge(grader: Grader, problem: Problem, answer: str | None) -> Grade:
        doing = f"judge, problem {problem.instance_id}"
        with blame(benchmark.judge, doing, key=key):
            grade = benchmark.judge(grader, problem, answer)
        if not isinstance(grade, Grade):
            raise _wrong_type(key, benchmark.judge, doing, "a seele.records.Grade", grade)
        return grade

    return replace(
        benchmark,
        open=opened if benchmark.open else None,
        extract=extract if _is_users(benchmark.extract) else benchmark.extract,
        judge=judge if _is_users(benchmark.judge) else benchmark.judge,
    )


def _wrong_type(key: str, function: Any, doing: str, expected: str, got: Any) -> PluginError:
    return PluginError(f"{key}: {where(function)}: {doing}: must return {expected}, got {reprlib.repr(got)}")


def _is_users(function: Any) -> bool:
    return not str(getattr(function, "__module__", "")).startswith(f"{__package__}.")


def _version_of(spec: str, benchmark: Benchmark) -> str:
    """Return a version of the user's own functions that decide a verdict; "" if there are none."""
    own = [function for function in (benchmark.extract, benchmark.judge) if _is_users(function)]
    if not all(_has_file(function) for function in own):
        raise ConfigError(
            f"--benchmarks {spec}: extract and judge must be functions that begin with def, because the "
            "checksum of their file is a condition of the scores; or set version=..., and change it with them"
        )
    return sha256("".join(map(_checksum, own)).encode()).hexdigest() if own else ""


def _of_file(spec: str, path: Path) -> Benchmark:
    keys: Mapping[str, Any] = read_yaml(path)
    settings = from_mapping(BenchmarkFile, keys, spec)
    judge: Judge
    judge, version = (judge_option if settings.columns.options else judge_all), ""
    if settings.judge is not None:
        judge, version = _own_judge(f"{spec}.judge", beside(path.parent, settings.judge))
    return Benchmark(
        open=partial(_open, beside(path.parent, settings.reference), settings.split),
        read=read_columns(settings.columns, judged_one_by_one=settings.judge is None),
        rows=settings.rows,
        extract=extract_option if settings.columns.options else extract_boxed,
        judge=judge,
        prompt=settings.prompt,
        version=version,
        temperature=settings.temperature,
        samples=settings.samples,
        may_be_published=settings.may_be_published,
    )


def _open(reference: str, split: str) -> OpenSplit:
    parsed = parse_reference(reference)
    if isinstance(parsed, HubReference) and parsed.split:
        split = parsed.split
    # Whole rows, because scores may be split by any column.
    settings = SourceSettings(data_source="benchmark", reference=reference)
    return open_split(settings, split, all_columns=True)


def _own_judge(key: str, spec: str) -> tuple[Judge, str]:
    """Return the judge and a checksum of its file and name."""
    function: Callable[[str, str], Any] = find_part(spec, key=key, group="judges", built_in={})
    if not _has_file(function):
        raise ConfigError(
            f"{key}: {spec!r} must be a function of an answer and the gold that begins with def, because the "
            f"checksum of its file is a condition of the scores; got {type(function).__name__}; call it from "
            "such a function"
        )
    try:
        signature(function).bind("", "")
    except TypeError as error:
        raise ConfigError(
            f"{key}: {where(function)}: {spec!r} cannot be called with an answer and the gold: {error}; give "
            "it two parameters"
        ) from error
    if iscoroutinefunction(unwrap(function)):
        raise ConfigError(
            f"{key}: {where(function)}: {spec!r} is a coroutine function, whose verdict would have to be "
            "awaited; begin it with def, and await inside with asyncio.run"
        )

    def judge(grader: Grader, problem: Problem, answer: str | None) -> Grade:
        if answer is None or not answer.strip():
            return Grade(False, GradeReason.NO_ANSWER)
        try:
            right = function(answer, problem.answer)
        except Exception as error:
            raise DataError(
                f"{where_in(function, error)}: problem {problem.instance_id}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(right, int | np.bool_) or right not in (True, False):
            raise DataError(
                f"{where(function)}: problem {problem.instance_id}: a judge must return True or False, "
                f"got {right!r}"
            )
        return Grade(True, GradeReason.CORRECT) if right else Grade(False, GradeReason.WRONG)

    return judge, _checksum(function)


def _has_file(function: Callable[..., Any]) -> bool:
    return isfunction(unwrap(function)) or ismethod(function)


def _checksum(function: Callable[..., Any]) -> str:
    """Return a checksum of the function's file and name."""
    defined = unwrap(function)
    return sha256(f"{file_sha256(Path(getfile(defined)))}:{defined.__qualname__}".encode()).hexdigest()
