"""How often a model solved each problem: the counts file, and the problems whose counts lie within a band.

The samples are drawn in ``seele_eval.difficulty``. A count belongs to a question and its answer, not to an
id, so it applies to the problem with any solution, however that is cut into steps.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from seele.data.storage.files import (
    check_output,
    file_sha256,
    manifest_beside,
    read_json_lines,
    write_atomically,
    write_manifest,
)
from seele.data.storage.parquet import copy_rows
from seele.data.storage.schema import read_problems
from seele.errors import ConfigError, DataError

COUNTS = "counts.jsonl"
"""File name of the counts in a folder of samples."""

SAMPLES = 8
"""Samples of each problem, as in the paper (arXiv:2509.06923, section 5.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Outcome counts of one problem's samples."""

    problem: str
    """``problem_key`` of its question and answer."""
    instance_id: str
    """Id under which the problem was sampled."""
    correct: int
    truncated: int
    """Samples that ended at the token limit: long is not the same as hard."""
    no_answer: int | None = None
    """Samples without an answer; None if unknown: a user's reward function judged, or the file is older."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """A counts file."""

    samples: int
    """Samples of each problem."""
    conditions: Mapping[str, Any]
    """What the counts depend on: model, temperature, template, limits, grader, versions."""
    by_problem: Mapping[str, Count]


@dataclass(frozen=True, slots=True)
class Band:
    """Range of the number of correct samples for which a problem is kept, both ends included."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``LEAST:MOST``.

        Raises:
            ConfigError: If ``text`` has another form.
        """
        least, colon, most = text.partition(":")
        if not (colon and least.isdecimal() and most.isdecimal() and int(least) <= int(most)):
            raise ConfigError(
                f"--band {text}: expected LEAST:MOST correct samples, both included, such as 0:0 or 1:7"
            )
        return cls(int(least), int(most))

    def check(self, samples: int) -> None:
        """Refuse a band whose number of correct samples exceeds the number of samples.

        Raises:
            ConfigError: If it does.
        """
        if self.most > samples:
            raise ConfigError(f"--band {self.least}:{self.most}: there are {samples} samples of each problem")

    def __contains__(self, correct: int) -> bool:
        return self.least <= correct <= self.most


def problem_key(question: str, answer: str) -> str:
    """Return the key of a problem, a hash of its question and answer: 32 hexadecimal digits."""
    return hashlib.sha256(f"{len(question)}:{question}{answer}".encode()).hexdigest()[:32]


def write_counts(path: Path, counts: Iterable[Count], *, samples: int, conditions: Mapping[str, Any]) -> None:
    """Write a counts file: samples and conditions first, then one problem per line, in their order."""
    lines: list[Mapping[str, Any]] = [{"samples": samples, "conditions": conditions}, *map(asdict, counts)]
    write_atomically(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def read_counts(path: Path) -> Counts:
    """Read a counts file.

    Raises:
        DataError: If it is missing or damaged.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; pass --model to sample the problems")
    (first, head), *rows = read_json_lines(path) or [(str(path), None)]
    if not isinstance(head, dict) or not isinstance(head.get("samples"), int) or "conditions" not in head:
        raise DataError(f"{first}: expected samples and conditions; sample the problems again")
    samples = head["samples"]
    counts = [_to_count(row, at, samples=samples) for at, row in rows]
    by_problem = {count.problem: count for count in counts}
    return Counts(samples=samples, conditions=head["conditions"], by_problem=by_problem)


def filter_file(file: Path, out: Path, counts_file: Path, band: Band) -> str:
    """Write the problems of ``file`` whose counts lie within ``band``, and a manifest beside them.

    All columns and the order are kept. The same file, counts and band give the same bytes.

    Returns:
        A summary for people.

    Raises:
        DataError: If ``file`` is not a file of problems, one of its problems was not sampled, or none lies in
            the band.
        ConfigError: If the band's correct samples exceed the number of samples, or ``out`` is ``file``.
    """
    check_output(file, out)
    manifest = manifest_beside(out, file)
    counts = read_counts(counts_file)
    band.check(counts.samples)
    found = _find_counts(file, counts, counts_file)
    keep = [count.correct in band for count in found]
    histogram = _histogram(found, counts.samples)
    summary = (
        f"{sum(keep)} of {len(keep)} problems have {band.least} to {band.most} correct of {counts.samples}"
    )
    listed = ", ".join(f"{correct}: {problems}" for correct, problems in histogram.items())
    shares = _shares(found, counts.samples)
    if not any(keep):
        raise DataError(
            f"{out}: not written, because {summary}. Problems by correct samples: {listed}. "
            f"{_describe_shares(shares)}"
        )
    # The manifest marks the file as complete.
    manifest.unlink(missing_ok=True)
    copy_rows(file, out, keep)
    written = {
        "file": out.name,
        "sha256": file_sha256(out),
        "source": {"file": file.name, "sha256": file_sha256(file)},
        "band": {"least": band.least, "most": band.most},
        "problems": len(keep),
        "kept": sum(keep),
        "samples": counts.samples,
        "by_correct_samples": histogram,
        **shares,
        "kept_with_all_samples_truncated": sum(
            kept and count.truncated == counts.samples for kept, count in zip(keep, found, strict=True)
        ),
        "counts": {"file": counts_file.name, "sha256": file_sha256(counts_file)},
        "conditions": counts.conditions,
    }
    write_manifest(manifest, written)
    return f"{out}: {summary}\nproblems by correct samples: {listed}\n{_describe_shares(shares)}"


def _to_count(row: Any, at: str, *, samples: int) -> Count:
    try:
        count = Count(**row)
        if not all(0 <= each <= samples for each in (count.correct, count.truncated, count.no_answer or 0)):
            raise ValueError(f"more than {samples} samples")
    except (TypeError, ValueError) as error:
        raise DataError(f"{at}: not the count of a problem ({error}); sample the problems again") from error
    return count


def _find_counts(file: Path, counts: Counts, counts_file: Path) -> list[Count]:
    """Return the count of each problem of a file."""
    found, missing = [], []
    for instance in read_problems(file):
        count = counts.by_problem.get(problem_key(instance.question, instance.answer))
        if count is None:
            missing.append(instance.instance_id)
        else:
            found.append(count)
    if missing:
        raise DataError(
            f"{file}: {len(missing)} problems, the first of them {missing[0]!r}, have no samples in "
            f"{counts_file}; pass --model to sample them"
        )
    return found


def _shares(counts: Sequence[Count], samples: int) -> dict[str, float | None]:
    """Return the shares of samples without an answer (None where that was not counted) and truncated."""
    silent = [count.no_answer for count in counts if count.no_answer is not None]
    return {
        "no_answer_share": fmean(silent) / samples if len(silent) == len(counts) else None,
        "truncated_share": fmean(count.truncated for count in counts) / samples,
    }


def _describe_shares(shares: Mapping[str, float | None]) -> str:
    """Describe the shares in one line, with a warning for each that hides what the model knows."""
    kinds = {"no_answer_share": "without an answer", "truncated_share": "truncated"}
    known = {kind: share for key, kind in kinds.items() if (share := shares[key]) is not None}
    said = "samples " + ", ".join(f"{kind}: {share:.1%}" for kind, share in known.items())
    if most := [kind for kind, share in known.items() if share > 0.5]:
        said += (
            f"; warning: most are {' and '.join(most)} and count as wrong whatever the model knows; "
            "sample again with another --template or --answers after --, or another --max-tokens "
            "(docs/evaluation.md)"
        )
    return said


def _histogram(counts: Sequence[Count], samples: int) -> dict[str, int]:
    """Return the number of problems by number of correct samples, with string keys for JSON."""
    problems = Counter(count.correct for count in counts)
    return {str(correct): problems[correct] for correct in range(samples + 1)}
