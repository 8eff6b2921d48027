"""LIMR (arXiv:2502.11886): keep the problems whose learning curve is close to the mean curve."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from seele.data.storage.files import check_output
from seele.data.storage.parquet import copy_rows
from seele.data.storage.schema import read_problems
from seele.errors import DataError


def alignment_scores(accuracies: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the alignment of each problem's learning curve with the mean curve (LIMR, Eq. 2).

        s_i = 1 - sum_k (r_i^k - mean^k)^2 / sum_k (1 - mean^k)^2

    The score is 1 if the curve equals the mean curve, and below 0 if it is further from it than the curve of
    a problem that is always solved.

    Args:
        accuracies: Problem -> accuracy of each of its visits; every problem has the same number of visits.

    Raises:
        DataError: If all problems were solved in every visit, because the scale is then 0.
    """
    mean_K = [fmean(visit) for visit in zip(*accuracies.values(), strict=True)]
    scale = sum((1.0 - mean) ** 2 for mean in mean_K)
    if scale == 0.0:
        raise DataError("all problems were solved in every visit, so no learning curve differs")

    def distance(accuracy_K: Sequence[float]) -> float:
        return sum((own - mean) ** 2 for own, mean in zip(accuracy_K, mean_K, strict=True))

    return {problem: 1.0 - distance(accuracy_K) / scale for problem, accuracy_K in accuracies.items()}


def first_visits(visits: Iterable[tuple[str, float]], count: int) -> dict[str, list[float]]:
    """Return problem -> accuracies of its first ``count`` visits, for problems with at least that many.

    Args:
        visits: Problem and accuracy of each visit, in chronological order.
        count: At least 1.
    """
    curves: dict[str, list[float]] = {}
    for problem, accuracy in visits:
        curves.setdefault(problem, []).append(accuracy)
    return {problem: curve[:count] for problem, curve in curves.items() if len(curve) >= count}


def keep_aligned(file: Path, out: Path, accuracies: Mapping[str, Sequence[float]], threshold: float) -> str:
    """Write the problems of ``file`` that score at least ``threshold``, keeping all columns and the order.

    Returns:
        A summary for people.

    Raises:
        DataError: If no problem of the file has a curve, or none is kept.
        ConfigError: If ``out`` is ``file``.
    """
    check_output(file, out)
    names = [instance.instance_id for instance in read_problems(file)]
    known = {name: accuracies[name] for name in names if name in accuracies}
    if not known:
        raise DataError(f"{file}: none of its problems has enough visits in the run")
    scores = alignment_scores(known)
    keep = [name in scores and scores[name] >= threshold for name in names]
    visits = len(next(iter(known.values())))
    summary = (
        f"{sum(keep)} of {len(names)} problems have a score of {threshold:g} or more; {len(known)} had "
        f"{visits} visits, the best score is {max(scores.values()):.2f}"
    )
    if not any(keep):
        raise DataError(f"{out}: not written, because {summary}")
    copy_rows(file, out, keep)
    return f"{out}: {summary}"
