"""Scores of an evaluation: intervals, aggregation, tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seele.records import Finish, GradeReason
from seele_eval.scores import (
    Prediction,
    effective_sample_size,
    markdown_table,
    score_predictions,
    wilson_interval,
)


def prediction(problem=0, sample=0, *, correct=False, **changes):
    values = {
        "benchmark": "heldout",
        "temperature": 0.0,
        "instance_id": f"p{problem}",
        "level": 2,
        "sample": sample,
        "question": "?",
        "answer": "1",
        "text": "\\boxed{1}",
        "correct": correct,
        "reason": GradeReason.CORRECT if correct else GradeReason.WRONG,
        "finish": Finish.STOP,
        "response_tokens": 10,
    }
    return Prediction(**values | changes)


def test_wilson_interval_of_a_published_example():
    # 10 of 20: p = .5, z² / n = .19207; centre .5, half width sqrt(.0125 + .0024) / 1.19207 * 1.96 = .2007.
    low, high = wilson_interval(0.5, 20)
    assert (low, high) == pytest.approx((0.2993, 0.7007), abs=1e-4)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_contains_its_accuracy_stays_in_bounds_and_is_never_empty(counts):
    correct, total = counts
    low, high = wilson_interval(correct / total, total)
    assert 0.0 <= low <= correct / total + 1e-12
    assert correct / total - 1e-12 <= high <= 1.0
    assert high - low > 1e-3


def test_one_sample_a_problem_counts_for_one():
    assert effective_sample_size([1.0, 0.0, 0.0, 1.0, 1.0], samples=1) == pytest.approx(5)


def test_samples_that_always_agree_add_nothing_and_unrelated_ones_add_much():
    # Four problems, always right or always wrong: four independent draws whatever the number of samples.
    assert effective_sample_size([1.0, 0.0, 1.0, 0.0], samples=8) == pytest.approx(4)
    # p = .5, variance of the problems' means .25 / 8: .25 * 4 / .03125 = 32 draws.
    spread = (0.25 / 8) ** 0.5
    assert effective_sample_size([0.5 + spread, 0.5 - spread] * 2, samples=8) == pytest.approx(32)
    assert effective_sample_size([0.5] * 4, samples=8) == 4


def test_accuracy_is_the_mean_over_problems_and_shares_count_samples():
    predictions = [
        prediction(0, 0, correct=True, response_tokens=4),
        prediction(0, 1, finish=Finish.LENGTH, reason=GradeReason.NO_ANSWER, response_tokens=8),
        prediction(1, 0, reason=GradeReason.TIMEOUT, response_tokens=0),
        prediction(1, 1, response_tokens=0),
    ]
    score = score_predictions(predictions, template="plain")
    assert (score.problems, score.samples, score.accuracy) == (2, 2, 0.25)
    assert (score.truncated_share, score.no_answer_share, score.ungraded_share) == (0.25, 0.25, 0.25)
    assert score.mean_response_tokens == 3.0
    assert score.interval_95[0] < 0.25 < score.interval_95[1]


def test_the_table_names_the_decoding_and_aligns_its_columns():
    greedy = score_predictions([prediction(0, correct=True), prediction(1)], template="plain")
    sampled = score_predictions(
        [prediction(0, sample, benchmark="a long name", temperature=0.6) for sample in (0, 1)],
        template="plain",
    )
    lines = markdown_table([greedy, sampled]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].startswith("| benchmark   | decoding")
    assert "| greedy" in lines[2] and "50.0" in lines[2]
    assert "| T=0.6, 2 samples" in lines[3]
