"""From graded samples to scores: accuracy with its interval, response lengths, tables.

Pure: no model, no files.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

from seele.records import UNGRADED, Finish, GradeReason

# Two-sided 95 % quantile of the standard normal distribution.
Z_95 = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One graded sample of one problem: a line of predictions.jsonl."""

    benchmark: str
    temperature: float
    instance_id: str
    level: int
    sample: int
    question: str
    answer: str
    text: str
    correct: bool
    reason: GradeReason
    finish: Finish
    response_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one benchmark measured at one temperature. Shares are fractions of all samples, in [0, 1]."""

    benchmark: str
    temperature: float
    problems: int
    samples: int
    """Samples per problem."""
    accuracy: float
    """Mean over problems of the share of a problem's samples that are correct."""
    interval_95: tuple[float, float]
    mean_response_tokens: float
    truncated_share: float
    """Stopped by the token limit, not by the model."""
    no_answer_share: float
    """Without a ``\\boxed{}`` answer."""
    ungraded_share: float
    """Counted as wrong because the grader came to no verdict."""
    template: str


def wilson_interval(accuracy: float, num_samples: float) -> tuple[float, float]:
    """95 % score interval of a proportion measured on ``num_samples`` independent draws.

        (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)

    Never empty and never outside [0, 1], unlike the normal interval at p = 0 or 1 (Wilson, 1927).
    """
    z2_n = Z_95 * Z_95 / num_samples
    centre = accuracy + z2_n / 2
    half = Z_95 * math.sqrt(accuracy * (1 - accuracy) / num_samples + z2_n / (4 * num_samples))
    return max(0.0, (centre - half) / (1 + z2_n)), min(1.0, (centre + half) / (1 + z2_n))


def effective_sample_size(problem_accuracies: Sequence[float], *, samples: int) -> float:
    """Number of independent draws that would estimate the mean as precisely as these problems do.

        n_eff = p(1-p) n / Var(problem accuracies), within [n, n * samples]

    Samples of one problem are correlated, so they count for less than samples of different problems. One
    sample per problem gives exactly n.
    """
    num_problems = len(problem_accuracies)
    mean = fmean(problem_accuracies)
    between = pvariance(problem_accuracies)
    if between == 0:
        return num_problems
    return min(max(mean * (1 - mean) * num_problems / between, num_problems), num_problems * samples)


def score_predictions(predictions: Sequence[Prediction], *, template: str) -> Score:
    """Score of one benchmark at one temperature. Every problem has equally many samples."""
    correct_by_problem: dict[str, list[bool]] = defaultdict(list)
    for prediction in predictions:
        correct_by_problem[prediction.instance_id].append(prediction.correct)
    accuracies = [fmean(correct) for correct in correct_by_problem.values()]
    samples = len(predictions) // len(accuracies)
    accuracy = fmean(accuracies)
    return Score(
        benchmark=predictions[0].benchmark,
        temperature=predictions[0].temperature,
        problems=len(accuracies),
        samples=samples,
        accuracy=accuracy,
        interval_95=wilson_interval(accuracy, effective_sample_size(accuracies, samples=samples)),
        mean_response_tokens=fmean(p.response_tokens for p in predictions),
        truncated_share=fmean(p.finish is Finish.LENGTH for p in predictions),
        no_answer_share=fmean(p.reason is GradeReason.NO_ANSWER for p in predictions),
        ungraded_share=fmean(p.reason in UNGRADED for p in predictions),
        template=template,
    )


def markdown_table(scores: Sequence[Score]) -> str:
    """The scores as a Markdown table that is also readable as plain text."""
    rows = [_cells(score) for score in scores]
    columns = [(name, *(row[name] for row in rows)) for name in rows[0]]
    padded = []
    for index, column in enumerate(columns):
        width = max(len(cell) for cell in column)
        # Names are read from the left, numbers compared at their last digit.
        is_name = index < 2
        rule = f":{'-' * (width - 1)}" if is_name else f"{'-' * (width - 1)}:"
        cells = [cell.ljust(width) if is_name else cell.rjust(width) for cell in column]
        padded.append([cells[0], rule, *cells[1:]])
    return "".join(f"| {' | '.join(line)} |\n" for line in zip(*padded, strict=True))


def _cells(score: Score) -> dict[str, str]:
    """Cells of the table by column."""
    low, high = score.interval_95
    return {
        "benchmark": score.benchmark,
        "decoding": f"T={score.temperature:g}, {score.samples} samples" if score.temperature else "greedy",
        "problems": str(score.problems),
        "accuracy %": f"{100 * score.accuracy:.1f}",
        "95 % interval": f"{100 * low:.1f} to {100 * high:.1f}",
        "tokens": f"{score.mean_response_tokens:.1f}",
        "truncated %": f"{100 * score.truncated_share:.1f}",
        "no answer %": f"{100 * score.no_answer_share:.1f}",
    }
