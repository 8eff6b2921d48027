"""From graded samples to scores: accuracies, votes, lengths and shares, each with its interval.

This module uses no model and no files. ``seele_eval.tables`` formats the scores.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from seele.maths.irt import Array
from seele.records import UNGRADED, Finish, GradeReason
from seele_eval.benchmarks import BENCHMARKS, GENERAL, LUFFY, MATH
from seele_eval.estimates import (
    Estimate,
    attempts,
    estimate,
    generator_for,
    majority,
    mean_of,
    pass_at_k,
)
from seele_eval.grading import BOX
from seele_eval.predictions import Prediction
from seele_eval.problems import NO_VALUE, values_in, vote_key

_NUMBER = re.compile(r"-?\d+(\.\d+)?")

AVERAGES = {"math": MATH, "general": GENERAL, "luffy": LUFFY}
"""Benchmarks of each average, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Score of the problems with one value of a column."""

    value: str
    problems: int
    accuracy: Estimate
    """avg@k, as in ``Score``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Score of one benchmark at one temperature. Shares are fractions of all samples, in [0, 1]."""

    benchmark: str
    temperature: float
    problems: int
    samples: int
    """Number of samples per problem."""
    accuracy: float
    """avg@k: mean over problems of the share of a problem's samples that are correct."""
    interval_95: tuple[float, float]
    mean_response_tokens: float
    truncated_share: float
    """Share of samples that the token limit stopped."""
    no_answer_share: float | None
    """Share of samples in which no answer was found where ``answers`` looks for one; None if a user's reward
    function judged, which alone knows where it looks.
    """
    ungraded_share: float
    """Share of samples counted as wrong because the grader reached no verdict."""
    template: str
    answers: str = BOX
    """Where to look for an answer (``seele_eval.grading.ANSWERS``)."""
    unboxed_share: float = 0.0
    """Share of samples whose answer was found without a box."""
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    """Accuracy and, with several samples, ``pass@k`` for k = 1, 2, 4, ... and all samples, and ``maj@k``
    unless a user's reward function judged; each with its interval over problems.
    """
    by_column: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    """One part for each value of each requested column, in order; ``NO_VALUE`` comes last."""


def score_predictions(
    predictions: Sequence[Prediction], *, template: str, answers: str = BOX, knows_answers: bool = True
) -> Score:
    """Score one benchmark at one temperature. Every problem has the same number of samples.

    ``knows_answers`` is false if a user's reward function judged.
    """
    first, by_problem = predictions[0], group_by_problem(predictions)
    samples = len(predictions) // len(by_problem)
    measures = {f"avg@{samples}": [accuracy_of(each) for each in by_problem]}
    if samples > 1:
        for k in attempts(samples):
            measures[f"pass@{k}"] = [pass_at_k(num_correct(each), samples, k) for each in by_problem]
        if knows_answers:
            measures[f"maj@{samples}"] = [_majority(each) for each in by_problem]
    measures["response_tokens"] = [fmean(p.response_tokens for p in each) for each in by_problem]
    measures["truncated"] = [fmean(p.finish is Finish.LENGTH for p in each) for each in by_problem]
    if knows_answers:
        measures["no_answer"] = [
            fmean(p.reason is GradeReason.NO_ANSWER for p in each) for each in by_problem
        ]
    estimates = {
        name: estimate(np.array(values), generator_for(first.benchmark), is_share=name != "response_tokens")
        for name, values in measures.items()
    }
    accuracy = estimates[f"avg@{samples}"]
    assert accuracy.interval_95 is not None, "a share has an interval"
    return Score(
        benchmark=first.benchmark,
        temperature=first.temperature,
        problems=len(by_problem),
        samples=samples,
        accuracy=accuracy.value,
        interval_95=accuracy.interval_95,
        mean_response_tokens=estimates["response_tokens"].value,
        truncated_share=estimates["truncated"].value,
        no_answer_share=estimates["no_answer"].value if knows_answers else None,
        ungraded_share=fmean(p.reason in UNGRADED for p in predictions),
        template=template,
        answers=answers,
        unboxed_share=fmean(p.is_unboxed for p in predictions),
        estimates=estimates,
        by_column=score_columns(by_problem),
    )


def score_columns(by_problem: Sequence[Sequence[Prediction]]) -> dict[str, tuple[Part, ...]]:
    """Accuracy on the problems with each value of each requested column.

    A problem whose value is a list of texts counts once for each text.

    Args:
        by_problem: Samples of each problem, all with the requested columns.
    """
    scored = {}
    for column in by_problem[0][0].columns:
        groups: dict[str, list[float]] = defaultdict(list)
        for samples in by_problem:
            for value in values_in(samples[0].columns[column]):
                groups[value].append(accuracy_of(samples))
        scored[column] = tuple(
            Part(
                value=value,
                problems=len(groups[value]),
                accuracy=estimate(np.array(groups[value]), generator_for(f"{column}/{value}")),
            )
            for value in sorted(groups, key=_in_order)
        )
    return scored


def _in_order(value: str) -> tuple[bool, bool, float, str]:
    """Sort key: numbers by size, then texts, then ``NO_VALUE``."""
    is_number = _NUMBER.fullmatch(value) is not None
    return (value == NO_VALUE, not is_number, float(value) if is_number else 0.0, value)


def average_scores(predictions_by_benchmark: Mapping[str, Sequence[Prediction]]) -> dict[str, Estimate]:
    """Averages of groups with all benchmarks: plain means of accuracies, as in both papers."""
    return {
        name: mean_of(
            [
                estimate(problem_accuracies(predictions_by_benchmark[benchmark]), generator_for(benchmark))
                for benchmark in members
            ]
        )
        for name, members in AVERAGES.items()
        if all(benchmark in predictions_by_benchmark for benchmark in members)
    }


def is_partial(name: str, problems: int) -> bool:
    """Return True if a known benchmark has another number of problems."""
    benchmark = BENCHMARKS.get(name)
    return benchmark is not None and problems not in (benchmark.rows, benchmark.hub_rows)


def group_by_decoding(predictions: Sequence[Prediction]) -> dict[tuple[str, float], list[Prediction]]:
    """Group samples by benchmark and temperature, in order of appearance."""
    groups: dict[tuple[str, float], list[Prediction]] = {}
    for prediction in predictions:
        groups.setdefault((prediction.benchmark, prediction.temperature), []).append(prediction)
    return groups


def group_by_problem(predictions: Sequence[Prediction]) -> list[list[Prediction]]:
    """Group samples by problem, problems sorted by id and samples by number."""
    groups: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in sorted(predictions, key=lambda each: (each.instance_id, each.sample)):
        groups[prediction.instance_id].append(prediction)
    return list(groups.values())


def problem_accuracies(predictions: Sequence[Prediction]) -> Array:
    """(N,) share of each problem's samples that are correct, problems in order of their ids."""
    return np.array([accuracy_of(each) for each in group_by_problem(predictions)])


def accuracy_of(predictions: Sequence[Prediction]) -> float:
    """Share of the samples that are correct."""
    return fmean(prediction.correct for prediction in predictions)


def num_correct(predictions: Sequence[Prediction]) -> int:
    """Number of correct samples."""
    return sum(prediction.correct for prediction in predictions)


def _majority(predictions: Sequence[Prediction]) -> float:
    votes = [None if p.extracted is None else vote_key(p.extracted) or None for p in predictions]
    return majority(votes, [p.correct for p in predictions])
