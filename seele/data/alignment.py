"""LIMR (arXiv:2502.11886): keep the problems on which a model learns as it learns on average."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from seele.data.storage.files import check_output
from seele.data.storage.parquet import copy_rows
from seele.data.storage.schema import read_problems
from seele.errors import DataError


def alignment_scores(accuracies: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Alignment of each problem's learning curve with the mean curve (LIMR, Eq. 2).

        s_i = 1 - sum_k (r_i^k - mean^k)^2 / sum_k (1 - mean^k)^2

    1 where the curve is the mean one; below 0 where it is further away than that of a problem which is always
    solved.

    Args:
        accuracies: Problem -> accuracy of each of its visits, as many for each.

    Raises:
        DataError: All problems were solved throughout, so that the mean curve tells nothing.
    """
    mean_K = [fmean(visit) for visit in zip(*accuracies.values(), strict=True)]
    scale = sum((1.0 - mean) ** 2 for mean in mean_K)
    if scale == 0.0:
        raise DataError("all problems were solved in every visit, so that no learning curve differs")

    def distance(accuracy_K: Sequence[float]) -> float:
        return sum((own - mean) ** 2 for own, mean in zip(accuracy_K, mean_K, strict=True))

    return {problem: 1.0 - distance(accuracy_K) / scale for problem, accuracy_K in accuracies.items()}


def first_visits(visits: Iterable[tuple[str, float]], count: int) -> dict[str, list[float]]:
    """Problem -> accuracies of its first ``count`` visits, of problems that had as many.

    Args:
        visits: Problem and accuracy of each visit, in order of time.
        count: At least 1.
    """
    curves: dict[str, list[float]] = {}
    for problem, accuracy in visits:
        curves.setdefault(problem, []).append(accuracy)
    return {problem: curve[:count] for problem, curve in curves.items() if len(curve) >= count}


def keep_aligned(file: Path, out: Path, accuracies: Mapping[str, Sequence[float]], threshold: float) -> str:
    """Write the problems of ``file`` whose score is at least ``threshold``, with all columns, in their order.

    Returns:
        A summary for people.

    Raises:
        DataError: No problem of the file has a curve, or none is kept.
        ConfigError: ``out`` is ``file``.
    """
    check_output(file, out)
    names = [instance.instance_id for instance in read_problems(file)]
    known = {name: accuracies[name] for name in names if name in accuracies}
    if not known:
        raise DataError(f"{file}: no problem of it has enough visits in the run")
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
