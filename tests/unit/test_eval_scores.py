"""From scores to tables: estimates, intervals, and evaluations side by side."""

import itertools
import json
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seele.errors import CheckpointError, ConfigError, DataError
from seele.maths.bootstrap import bootstrap_interval, sign_flip_p_value, t_interval
from seele.records import Finish, GradeReason
from seele_eval.benchmarks import GENERAL, LUFFY, MATH
from seele_eval.compare import compare
from seele_eval.compare import main as compare_main
from seele_eval.compare_seeds import compare_seeds
from seele_eval.compare_seeds import main as compare_seeds_main
from seele_eval.curve import curve_table, read_steps
from seele_eval.curve import curves_of as curves_over_training
from seele_eval.curve import main as curve_main
from seele_eval.estimates import (
    Estimate,
    attempts,
    effective_sample_size,
    estimate,
    generator_for,
    majority,
    mean_of,
    pass_at_k,
    random_flips_p_value,
    wilson_interval,
)
from seele_eval.harness import agree, greedy_by_prompt, main, read_samples
from seele_eval.predictions import Ledger, Prediction, read_predictions
from seele_eval.scores import average_scores, group_by_decoding, is_partial, score_predictions
from seele_eval.tables import (
    LUFFY_COLUMNS,
    column_tables,
    curves_of,
    details_table,
    draw_panels,
    pass_table,
    results_table,
)

# --- Scores of an evaluation: aggregation, averages, tables


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
        "extracted": "1" if correct else "2",
        "correct": correct,
        "reason": GradeReason.CORRECT if correct else GradeReason.WRONG,
        "finish": Finish.STOP,
        "response_tokens": 10,
    }
    return Prediction(**values | changes)


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
    assert score.interval_95[0] <= 0.25 <= score.interval_95[1]


def test_pass_and_majority_at_k_are_worked_out_by_hand():
    # One problem with 1 of 4 correct: pass@2 = 1 - C(3,2)/C(4,2) = 1/2, and the vote goes to a wrong answer.
    # Another with 2 of 4 correct and two different wrong answers: pass@2 = 1 - 1/6, and the vote is right.
    predictions = [prediction(0, n, correct=n == 0) for n in range(4)]
    predictions += [prediction(1, n, correct=n < 2, extracted=["1", "$1$", "2", "3"][n]) for n in range(4)]
    estimates = score_predictions(predictions, template="plain").estimates
    assert estimates["avg@4"].value == pytest.approx(3 / 8)
    assert estimates["pass@2"].value == pytest.approx((1 / 2 + 5 / 6) / 2)
    assert estimates["pass@4"].value == 1.0
    assert estimates["maj@4"].value == 0.5


def test_a_reward_function_of_ones_own_has_no_vote():
    predictions = [prediction(0, n, correct=True, extracted=None) for n in range(4)]
    score = score_predictions(predictions, template="plain", knows_answers=False)
    assert score.estimates["pass@4"].value == 1.0 and "maj@4" not in score.estimates
    head, _, row = (line.split("|") for line in details_table([score]).strip().splitlines())
    assert row[[cell.strip() for cell in head].index("maj@k %")].strip() == "-"


def test_every_measure_has_an_interval_that_holds_it():
    predictions = [
        prediction(p, n, correct=(p + n) % 3 == 0, response_tokens=p) for p in range(9) for n in range(6)
    ]
    estimates = score_predictions(predictions, template="plain").estimates
    assert set(estimates) == {
        *("avg@6", "pass@1", "pass@2", "pass@4", "pass@6", "maj@6"),
        *("response_tokens", "truncated", "no_answer"),
    }
    for each in estimates.values():
        low, high = each.interval_95
        assert low <= each.value + 1e-12 and each.value <= high + 1e-12


def test_the_order_in_which_samples_came_changes_nothing():
    predictions = [prediction(p, n, correct=(p * n) % 2 == 0) for p in range(20) for n in range(3)]
    shuffled = random.Random(0).sample(predictions, len(predictions))
    assert score_predictions(predictions, template="plain") == score_predictions(shuffled, template="plain")


def test_one_greedy_sample_needs_neither_pass_nor_majority():
    score = score_predictions([prediction(0, correct=True), prediction(1)], template="plain")
    assert [name for name in score.estimates if "@" in name] == ["avg@1"]


def test_a_curve_runs_through_powers_of_two_to_all_samples_and_never_falls():
    predictions = [
        prediction(p, n, correct=n < p, benchmark=name, temperature=0.6)
        for name, samples in (("six", 6), ("four", 4))
        for p in range(5)
        for n in range(samples)
    ]
    scores = [score_predictions(group, template="") for group in group_by_decoding(predictions).values()]
    curves = curves_of([*scores, score_predictions([prediction()], template="")])
    assert {name: list(curve) for name, curve in curves.items()} == {"six": [1, 2, 4, 6], "four": [1, 2, 4]}
    for score, curve in zip(scores, curves.values(), strict=True):
        values = [each.value for each in curve.values()]
        assert values == sorted(values) and values[0] == pytest.approx(score.accuracy)
        # Problem 0 is never solved, every other one is with all of its samples.
        assert values[-1] == pytest.approx(4 / 5)
    lines = pass_table(curves).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["1", "2", "4", "6"]
    # (0 + 1 + 2 + 3 + 4) of 6 are right, over five problems; only this benchmark has six samples.
    assert lines[2].split("|")[2].strip().startswith("33.3 (")
    assert lines[5].split("|")[3].strip() == "-"


def test_a_benchmark_at_several_temperatures_has_a_curve_for_each():
    scores = [
        score_predictions([prediction(0, n, temperature=t) for n in range(2)], template="")
        for t in (0.6, 1.0)
    ]
    curves = curves_of(scores)
    assert list(curves) == ["heldout at T=0.6", "heldout at T=1"]
    for panels in ({"": curves}, {f"panel {n}": curves for n in range(4)}):
        assert draw_panels(panels).startswith(b"\x89PNG")


def test_values_come_in_order_and_a_list_counts_for_each_of_its_texts():
    columns = [{"level": 10}, {"level": 2}, {"level": "hard"}, {"level": None}, {"level": ["2", "hard", "2"]}]
    predictions = [
        prediction(p, n, correct=(p + n) % 2 == 0, columns=each)
        for p, each in enumerate(columns)
        for n in range(2)
    ]
    found = score_predictions(predictions, template="plain").by_column["level"]
    assert [(part.value, part.problems, part.accuracy.value) for part in found] == [
        ("2", 2, 0.5), ("10", 1, 0.5), ("hard", 2, 0.5), ("(none)", 1, 0.5),
    ]  # fmt: skip
    for part in found:
        assert part.accuracy.interval_95[0] <= part.accuracy.value <= part.accuracy.interval_95[1]
    assert score_predictions([prediction()], template="plain").by_column == {}


def test_a_value_cannot_break_the_table():
    score = score_predictions([prediction(columns={"kind": "a|b\nc"})], template="plain")
    assert "| a\\|b c |" in column_tables(score)


def test_averages_are_plain_means_of_complete_groups():
    by_benchmark = {
        name: [prediction(p, correct=p < index, benchmark=name) for p in range(10)]
        for index, name in enumerate(MATH)
    }
    averages = average_scores(by_benchmark)
    assert averages["math"].value == pytest.approx((0 + 1 + 2 + 3 + 4 + 5) / 60)
    assert "general" not in averages
    assert average_scores({name: by_benchmark[name] for name in MATH[:5]}) == {}


def test_the_results_stand_in_the_columns_of_the_seele_readme():
    values = dict.fromkeys((*MATH, *GENERAL), 0.924) | {"math": 0.59}
    head, rule, row = results_table([("SEELE", values)]).splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        "Model", "GSM8K", "MATH500", "Minerva", "Olympiad", "AIME24", "AMC23", "Avg.(Math)",
        "ARC-C", "GPQA-D", "MMLU-Pro", "Avg.(Gen)",
    ]  # fmt: skip
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "SEELE", *["92.4"] * 6, "59.0", *["92.4"] * 3, "-",
    ]  # fmt: skip
    assert len(head) == len(rule) == len(row)


def test_the_average_of_luffy_is_the_plain_mean_of_its_six():
    by_benchmark = {
        name: [prediction(p, correct=p < index, benchmark=name) for p in range(10)]
        for index, name in enumerate(LUFFY)
    }
    averages = average_scores(by_benchmark)
    assert averages.keys() == {"luffy"}
    assert averages["luffy"].value == pytest.approx((0 + 1 + 2 + 3 + 4 + 5) / 60)
    assert average_scores({name: by_benchmark[name] for name in LUFFY[1:]}) == {}


def test_the_results_stand_in_the_columns_of_luffys_readme_too():
    values = dict.fromkeys(LUFFY, 0.25) | {"luffy": 0.501}
    head, _, row, *_ = results_table([("m", values)], partial={"gsm8k"}, columns=LUFFY_COLUMNS).splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        "Model", "AIME24", "AIME25", "AMC (83)", "MATH500", "Minerva", "Olympiad", "Avg.(LUFFY)",
    ]  # fmt: skip
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["m", *["25.0"] * 6, "50.1"]


def test_what_was_measured_on_a_part_is_marked():
    table = results_table([("m", {"gsm8k": 0.5, "math500": 0.25, "math": 0.4})], partial={"gsm8k", "math"})
    cells = [cell.strip() for cell in table.splitlines()[2].strip("|").split("|")]
    assert (cells[1], cells[2], cells[7]) == ("50.0*", "25.0", "40.0*")
    assert table.endswith("\\* not measured on all problems\n")
    assert is_partial("gsm8k", 1) and not is_partial("gsm8k", 1319)
    assert not is_partial("mine", 1)


def test_the_details_name_the_decoding_and_align_their_columns():
    greedy = score_predictions([prediction(0, correct=True), prediction(1)], template="plain")
    sampled = score_predictions(
        [prediction(0, sample, benchmark="a long name", temperature=0.6) for sample in (0, 1)],
        template="plain",
    )
    lines = details_table([greedy, sampled]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].startswith("| benchmark   | decoding")
    assert "| greedy" in lines[2] and "50.0 (" in lines[2]
    assert "| T=0.6, 2 samples" in lines[3]


# --- Accuracies at k, votes and intervals: hand-worked, enumerated, simulated


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
    # Problems that agree in a share between say the same as ones that nearly do.
    assert effective_sample_size([0.5] * 199 + [0.53], samples=32) == 200 * 32
    assert effective_sample_size([0.5] * 200, samples=32) == 200 * 32
    assert effective_sample_size([0.0] * 4, samples=8) == effective_sample_size([1.0] * 4, samples=8) == 4


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_all_choices_of_k_that_hold_a_correct_sample(numbers):
    correct, total, k = numbers
    samples = [True] * correct + [False] * (total - correct)
    choices = list(itertools.combinations(samples, k))
    assert pass_at_k(correct, total, k) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_a_curve_has_powers_of_two_and_all_samples():
    assert [attempts(n) for n in (1, 2, 3, 8, 20)] == [
        [1], [1, 2], [1, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8, 16, 20],
    ]  # fmt: skip


def test_pass_at_k_is_unbiased():
    # Problems solved with chance .2: four new samples solve one with 1 - .8^4 = .5904.
    generator = np.random.default_rng(0)
    counts = generator.binomial(8, 0.2, size=40_000)
    mean = np.mean([pass_at_k(int(count), 8, 4) for count in counts])
    # Standard deviation of one estimate is below .4, of the mean below .002.
    assert mean == pytest.approx(0.5904, abs=0.008)


def test_the_most_frequent_answer_wins_and_a_tie_is_shared():
    assert majority(["4", "5", "4"], [True, False, True]) == 1.0
    assert majority(["4", "5", "5"], [True, False, False]) == 0.0
    assert majority(["4", "5"], [True, False]) == 0.5
    # Samples without an answer have no vote, however many.
    assert majority([None, None, "4"], [False, False, True]) == 1.0
    assert majority([None, None], [False, False]) == 0.0


def test_an_interval_is_over_problems_and_agrees_with_theory():
    values = np.array([1.0] * 30 + [0.0] * 70)
    found = estimate(values, generator_for("x"))
    # Standard error sqrt(.3 * .7 / 100) = .0458: .3 -+ 1.96 * .0458.
    assert found.value == pytest.approx(0.3)
    assert found.interval_95 == pytest.approx((0.21, 0.39), abs=0.015)


def test_where_all_problems_agree_resampling_is_not_believed():
    assert estimate(np.zeros(30), generator_for("x")).interval_95 == pytest.approx(wilson_interval(0.0, 30))
    assert estimate(np.full(3, 12.0), generator_for("x"), is_share=False).interval_95 is None


def test_the_mean_of_benchmarks_weighs_them_equally_and_combines_their_intervals():
    found = mean_of([Estimate(0.5, (0.2, 0.9)), Estimate(0.1, (0.06, 0.4))])
    assert found.value == pytest.approx(0.3)
    # sqrt(.3^2 + .04^2) / 2 = .1513 below, sqrt(.4^2 + .3^2) / 2 = .25 above.
    assert found.interval_95 == pytest.approx((0.3 - 0.1513, 0.3 + 0.25), abs=1e-4)
    # Two benchmarks of which no problem was solved.
    low, high = mean_of([estimate(np.zeros(size), generator_for("x")) for size in (30, 40)]).interval_95
    assert low == 0.0 and high == pytest.approx(math.hypot(0.1135, 0.0876) / 2, abs=1e-4)
    assert mean_of([found, Estimate(0.0, None)]) == Estimate(found.value / 2, None)


def test_the_same_name_gives_the_same_interval():
    values = np.random.default_rng(1).random(50)
    assert estimate(values, generator_for("gsm8k")) == estimate(values, generator_for("gsm8k"))
    assert estimate(values, generator_for("gsm8k")) != estimate(values, generator_for("math500"))


def test_flips_agree_with_the_exact_test():
    # Ten of ten in one direction: 2 / 2^10.
    assert random_flips_p_value(np.ones(10), generator_for("x")) == pytest.approx(2 / 1024, abs=0.0015)
    # Eight against two: sums of +-1 with |sum| >= 6: 2 * (1 + 10 + 45) / 1024.
    eight = np.array([1.0] * 8 + [-1.0] * 2)
    assert random_flips_p_value(eight, generator_for("x")) == pytest.approx(112 / 1024, abs=0.01)
    assert random_flips_p_value(np.zeros(5), generator_for("x")) == 1.0
    # Their sum is 0, and 3e-17 in floating point.
    assert random_flips_p_value(np.array([0.2, 0.2, -0.2, 0.1, -0.2, -0.1]), generator_for("x")) == 1.0


@settings(max_examples=30)
@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=30))
def test_problems_on_which_nothing_differs_do_not_matter(differences):
    with_ties = np.array([*differences, 0.0, 0.0])
    assert random_flips_p_value(with_ties, generator_for("x")) == random_flips_p_value(
        np.array(differences), generator_for("x")
    )


# --- Intervals and tests over a few repetitions: against hand-worked cases, enumeration and simulation


def generator(seed=0):
    return np.random.default_rng(seed)


def enumerated_p_value(differences):
    """The definition, one choice of signs after the other."""
    bound = abs(sum(differences)) - 1e-9
    sums = [
        sum(sign * each for sign, each in zip(signs, differences, strict=True))
        for signs in itertools.product((-1, 1), repeat=len(differences))
    ]
    return sum(abs(total) >= bound for total in sums) / len(sums)


@pytest.mark.parametrize(
    ("differences", "p_value"),
    [
        pytest.param([0.1], 1.0, id="one pair says nothing"),
        pytest.param([0.1, 0.2], 2 / 4, id="two of one sign"),
        # |sum| >= 0.3 only with all signs alike.
        pytest.param([0.1, 0.1, 0.1], 2 / 8, id="three of one sign"),
        # Sums of 1, 2, 4 are 7, 5, 3, 1 and their negatives; observed 5.
        pytest.param([-1.0, 2.0, 4.0], 4 / 8, id="one against two"),
        pytest.param([0.3, 0.1, 0.2, 0.4, 0.5], 2 / 32, id="five of one sign: the smallest p of five"),
        pytest.param([1.0, -1.0], 1.0, id="they cancel"),
        pytest.param([0.0, 0.0, 0.0], 1.0, id="no difference at all"),
        # A zero has no sign to flip: both flips of it count.
        pytest.param([0.2, 0.2, 0.0], 2 / 4, id="a zero among them"),
    ],
)
def test_p_values_worked_out_by_hand(differences, p_value):
    assert sign_flip_p_value(np.array(differences)) == p_value


@given(st.lists(st.integers(-20, 20).map(lambda number: number / 10), min_size=1, max_size=9))
def test_the_p_value_is_the_share_of_all_flips_whatever_their_rounding(differences):
    assert sign_flip_p_value(np.array(differences)) == enumerated_p_value(differences)


def test_neither_order_nor_sign_nor_scale_matters_to_the_p_value():
    differences = np.array([0.03, -0.01, 0.04, 0.015, 0.02, 0.01])
    p_value = sign_flip_p_value(differences)
    assert {sign_flip_p_value(other) for other in (differences[::-1], -differences, 100 * differences)} == {
        p_value
    }


def test_thirty_pairs_are_no_burden():
    assert sign_flip_p_value(np.ones(30)) == 2 / 2**30


def test_the_test_holds_its_level_where_there_is_no_difference():
    draws = generator().standard_normal((2000, 8))
    rejected = np.mean([sign_flip_p_value(row) <= 0.05 for row in draws])
    # 12 of 256 flips are the largest number within 5 %; two standard deviations of 2000 draws are 0.01.
    assert rejected == pytest.approx(12 / 256, abs=0.01)


def test_an_interval_lies_around_the_mean_and_within_the_values():
    values_N = np.array([0.2, 0.3, 0.4, 0.7])
    low, high = bootstrap_interval(values_N, generator())
    assert values_N.min() <= low < values_N.mean() < high <= values_N.max()


def test_three_repetitions_span_nearly_all_they_can():
    # Of the 27 resamples of 0, 1, 2 one has the mean 0: 3.7 %, more than the 2.5 % left out at either end.
    low, high = bootstrap_interval(np.array([0.0, 1.0, 2.0]), generator())
    assert (low, high) == (0.0, 2.0)


def test_equal_values_have_an_interval_without_width():
    low, high = bootstrap_interval(np.full(7, 0.1), generator())
    assert low == high == 0.1


def test_a_higher_level_is_a_wider_interval():
    values_N = generator().standard_normal(10)
    (low_50, high_50), (low_95, high_95) = (
        bootstrap_interval(values_N, generator(), level=level) for level in (0.5, 0.95)
    )
    assert low_95 < low_50 < high_50 < high_95


def test_several_values_of_a_repetition_are_drawn_together():
    values_N = generator().standard_normal(5)
    low_K, high_K = bootstrap_interval(np.stack([values_N, 2 * values_N], axis=1), generator())
    low, high = bootstrap_interval(values_N, generator())
    np.testing.assert_allclose(low_K, [low, 2 * low])
    np.testing.assert_allclose(high_K, [high, 2 * high])


def test_the_same_generator_gives_the_same_interval():
    values_N = generator().standard_normal(6)
    assert bootstrap_interval(values_N, generator(3)) == bootstrap_interval(values_N, generator(3))
    assert bootstrap_interval(values_N, generator(3), resamples=99) != bootstrap_interval(
        values_N, generator(4), resamples=99
    )


@pytest.mark.parametrize(("num_seeds", "coverage"), [(3, 0.75), (5, 0.84), (10, 0.91)])
def test_the_interval_covers_as_often_as_the_documentation_says(num_seeds, coverage):
    draws = generator()
    ends = [bootstrap_interval(draws.standard_normal(num_seeds), draws, resamples=500) for _ in range(2000)]
    # Two standard deviations of 2000 draws are 0.02.
    assert np.mean([low <= 0.0 <= high for low, high in ends]) == pytest.approx(coverage, abs=0.025)


def test_students_interval_worked_out_by_hand():
    # Standard deviation 1 and t(2, 0.975) = 4.3027: half a width of 4.3027 / sqrt(3).
    assert t_interval(np.array([1.0, 2.0, 3.0])) == pytest.approx((-0.4841, 4.4841), abs=1e-4)
    assert t_interval(np.array([0.0, 2.0]), level=0.5) == pytest.approx((0.0, 2.0))
    assert t_interval(np.full(4, 0.25)) == (0.25, 0.25)


@pytest.mark.parametrize("num_seeds", [3, 5])
def test_students_interval_covers_as_often_as_it_says(num_seeds):
    ends = [t_interval(values) for values in generator().standard_normal((4000, num_seeds))]
    assert np.mean([low <= 0.0 <= high for low, high in ends]) == pytest.approx(0.95, abs=0.01)


@settings(max_examples=50)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_no_interval_leaves_the_values(values):
    low, high = bootstrap_interval(np.array(values), generator(), resamples=50)
    assert min(values) <= low <= high <= max(values)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_test_of_what_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match="differences must be finite, got"):
        sign_flip_p_value(np.array([0.1, value, 0.3]))


def test_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one repetition"):
        bootstrap_interval(np.array([]), generator())
    with pytest.raises(ValueError, match="at least one pair"):
        sign_flip_p_value(np.array([]))
    with pytest.raises(ValueError, match="at least two repetitions, got 1"):
        t_interval(np.array([0.5]))


# --- Two evaluations side by side, and one model over its training


def write(folder, corrects, *, benchmark="b", temperature=0.0, question="?", finished=True, **conditions):
    """An evaluation whose problem n has the given verdicts; a sample without one is yet to be drawn."""
    with Ledger(folder, {"seed": 0, "weights_sha256": folder.name} | conditions) as ledger:
        for problem, verdicts in corrects.items():
            for sample, correct in enumerate(verdicts):
                if correct is None:
                    continue
                ledger.append(
                    Prediction(
                        benchmark=benchmark, temperature=temperature, instance_id=problem, level=0,
                        sample=sample, question=question, answer="1", text="", extracted=None,
                        correct=bool(correct),
                        reason=GradeReason.CORRECT if correct else GradeReason.WRONG, finish=Finish.STOP,
                        response_tokens=1,
                    )
                )  # fmt: skip
    if finished:
        write_scores(folder)
    return folder


def write_scores(folder, order=None):
    """Score all samples, in order of appearance or of these benchmarks and temperatures."""
    groups = group_by_decoding(read_predictions(folder).predictions)
    scores = [
        {"benchmark": key[0], "temperature": key[1], "samples": 1 + max(each.sample for each in groups[key])}
        for key in order or groups
    ]
    (folder / "scores.json").write_text(json.dumps({"scores": scores}))


def test_differences_are_taken_problem_by_problem(tmp_path):
    first = write(tmp_path / "a", {"p": [1, 0], "q": [0, 0], "r": [1, 1], "s": [0, 0]})
    second = write(tmp_path / "b", {"s": [0, 0], "p": [1, 1], "q": [1, 0], "r": [0, 1]})
    [row] = compare(first, second).differences
    assert (row.problems, row.first, row.second) == (4, 3 / 8, 4 / 8)
    # +1/2, +1/2, -1/2, 0
    assert row.difference.value == pytest.approx(1 / 8)
    assert (row.better, row.worse) == (2, 1)
    assert row.difference.interval_95[0] < 0 < row.difference.interval_95[1]
    assert row.p_value > 0.5


def test_pairing_sees_what_two_separate_intervals_do_not(tmp_path):
    # Half of the problems are easy for both; the second model solves five more.
    easy = {f"p{n}": [n < 50] for n in range(100)}
    first = write(tmp_path / "a", easy)
    second = write(tmp_path / "b", easy | {f"p{n}": [True] for n in range(50, 58)})
    [row] = compare(first, second).differences
    assert row.difference.interval_95[0] > 0
    # Eight of eight in one direction: 2 / 2^8.
    assert row.p_value == pytest.approx(2 / 256, abs=0.004)
    assert row.difference.interval_95[1] - row.difference.interval_95[0] < 0.12


def test_an_evaluation_does_not_differ_from_itself(tmp_path):
    folder = write(tmp_path / "a", {"p": [1], "q": [0]})
    [row] = compare(folder, folder).differences
    assert (row.difference.value, row.difference.interval_95, row.p_value) == (0.0, None, 1.0)
    assert compare(folder, folder).notes == ()
    assert "| +0.0 (-) |" in compare(folder, folder).text()


def test_other_conditions_and_unpaired_problems_are_noted(tmp_path):
    first = write(tmp_path / "a", {"p": [1], "q": [0]})
    second = write(tmp_path / "b", {"p": [1], "x": [0], "y": [0]}, seed=1, template="qwen")
    comparison = compare(first, second)
    assert comparison.differences[0].problems == 1
    assert comparison.notes == (
        "seed was 0 and is 1",
        "template was None and is 'qwen'",
        "b: 3 problems were answered by only one of the two and are left out",
    )
    assert "- seed was 0 and is 1" in comparison.text()


def test_problems_that_lack_samples_are_left_out(tmp_path):
    """Short responses come back first, and are right more often."""
    drawn = {f"p{n}": [n % 2, 0, 1, n % 2] for n in range(20)}
    first = write(tmp_path / "a", drawn)
    killed = {name: [verdict or None for verdict in verdicts] for name, verdicts in drawn.items()}
    second = write(tmp_path / "b", killed | {"p0": drawn["p0"], "p1": drawn["p1"]}, finished=False)
    comparison = compare(first, second)
    [row] = comparison.differences
    assert (row.problems, row.difference.value) == (2, 0.0)
    assert comparison.notes == (
        f"{second}: unfinished: it has no scores.json",
        "b: 18 problems lack samples and are left out",
    )


def test_samples_of_a_killed_command_beside_those_scored_do_not_count(tmp_path):
    scored = {f"p{n}": [n % 2, 0] for n in range(6)}
    first, second = (write(tmp_path / name, scored) for name in "ab")
    scores = (first / "scores.json").read_text()
    write(first, {"p1": [None, None, 1, 1]}, finished=False)
    write(first, {"q": [1]}, benchmark="killed", finished=False)
    (first / "scores.json").write_text(scores)
    write(second, {"q": [0], "r": [0]}, benchmark="killed")
    comparison = compare(first, second)
    assert [(row.benchmark, row.problems) for row in comparison.differences] == [("b", 6)]
    assert comparison.notes == ()


def test_pass_at_k_is_compared_on_the_same_problems_up_to_the_smaller_number_of_samples(tmp_path):
    first = write(tmp_path / "a", {"p": [1, 0, 0, 0], "q": [0, 0, 0, 0], "only": [1, 1, 1, 1]})
    second = write(tmp_path / "b", {"p": [1, 1], "q": [1, 0]})
    comparison = compare(first, second)
    # A: p is solved by one of four, q never. B: p by both, q by one of two.
    assert [(each.k, each.first.value, each.second.value) for each in comparison.attempts] == [
        (1, 1 / 8, 3 / 4), (2, 1 / 4, 1.0),
    ]  # fmt: skip
    assert [each.difference.value for each in comparison.attempts] == [5 / 8, 3 / 4]
    assert "B pass@k % |" in comparison.text()
    assert compare_main([str(first), str(second), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/pass_at_k.png").read_bytes().startswith(b"\x89PNG")
    assert compare(first, write(tmp_path / "c", {"p": [1]})).attempts == ()


def test_other_numbers_of_samples_are_compared_and_noted(tmp_path):
    first = write(tmp_path / "a", {"p": [1, 0, 1, 0], "q": [0, 0, 0, 0]})
    comparison = compare(first, write(tmp_path / "b", {"p": [1, 1], "q": [0, 0]}))
    assert comparison.differences[0].difference.value == pytest.approx(0.25)
    assert comparison.notes == ("b: A has 4 samples of each problem, B 2",)


def test_a_part_of_a_benchmark_is_noted(tmp_path):
    first, second = (
        write(tmp_path / name, {"p": [1], "q": [0]}, benchmark="gsm8k", weights_sha256="") for name in "ab"
    )
    assert compare(first, second).notes == ("gsm8k: 2 of its problems, as in every average with it",)


def test_other_problems_with_the_same_ids_are_left_out(tmp_path):
    first = write(tmp_path / "a", {"p": [1], "q": [0]})
    second = write(tmp_path / "b", {"p": [1], "q": [0]}, question="another?")
    with pytest.raises(
        DataError, match=r"in common.*b: 2 problems have another question or reference answer"
    ):
        compare(first, second)


def test_averages_need_all_benchmarks_of_their_group(tmp_path):
    for folder, verdict in ((tmp_path / "a", 0), (tmp_path / "b", 1)):
        for name in GENERAL[:2]:
            write(folder, {"p": [verdict], "q": [1]}, benchmark=name)
    assert compare(tmp_path / "a", tmp_path / "b").averages == {}
    for folder in (tmp_path / "a", tmp_path / "b"):
        write(folder, {"p": [1], "q": [1]}, benchmark=GENERAL[2])
    assert compare(tmp_path / "a", tmp_path / "b").averages["general"].value == pytest.approx(
        (0.5 + 0.5 + 0) / 3
    )


@pytest.mark.parametrize("drawn_first", [0.0, 0.6])
def test_averages_are_of_the_first_temperature_that_was_scored(tmp_path, drawn_first):
    for folder in (tmp_path / "a", tmp_path / "b"):
        for temperature in sorted((0.0, 0.6), key=lambda each: each != drawn_first):
            for name in GENERAL:
                solved = folder.name == "b" and temperature == 0.6
                write(folder, {"p": [solved]}, benchmark=name, temperature=temperature)
        write_scores(folder, [(name, each) for name in GENERAL for each in (0.6, 0.0)])
    assert compare(tmp_path / "a", tmp_path / "b").averages["general"].value == 1.0
    (tmp_path / "a/scores.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"a/scores.json: is damaged"):
        compare(tmp_path / "a", tmp_path / "b")


def test_no_average_mixes_temperatures(tmp_path):
    for folder in (tmp_path / "a", tmp_path / "b"):
        for name, temperature in ((name, each) for name in GENERAL for each in (0.6, 0.0)):
            # B lacks one benchmark at A's first temperature.
            if folder.name == "a" or (name, temperature) != (GENERAL[0], 0.6):
                write(folder, {"p": [1]}, benchmark=name, temperature=temperature)
        write_scores(folder)
    comparison = compare(tmp_path / "a", tmp_path / "b")
    assert len(comparison.differences) == 5 and comparison.averages == {}


def test_nothing_in_common_is_refused(tmp_path):
    first = write(tmp_path / "a", {"p": [1]})
    with pytest.raises(DataError, match="no problem at the same temperature in common"):
        compare(first, write(tmp_path / "b", {"p": [1]}, temperature=0.6))
    with pytest.raises(DataError, match="no problem at the same temperature in common"):
        compare(first, write(tmp_path / "c", {"q": [1]}))
    with pytest.raises(CheckpointError, match="expected the output folder of an evaluation"):
        compare(first, tmp_path / "none")


def test_the_command_prints_a_table_and_writes_what_it_is_asked_to(tmp_path, capsys):
    first, second = write(tmp_path / "a", {"p": [1]}), write(tmp_path / "b", {"p": [0]})
    assert compare_main([str(first), str(second), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "| benchmark |  T | problems |" in printed and "-100.0" in printed
    text = (tmp_path / "out/comparison.md").read_text()
    assert text.startswith(printed) and "## Conditions of B" in text
    written = json.loads((tmp_path / "out/comparison.json").read_text())
    assert written["differences"][0]["worse"] == 1
    assert [each["weights_sha256"] for each in written["conditions"]] == ["a", "b"]
    assert compare_main([str(first), str(tmp_path / "none")]) == 2
    assert compare_main([str(first), str(second), "--out", str(tmp_path / "out/comparison.md")]) == 2
    assert "comparison.md: is a file; give a folder" in capsys.readouterr().err
    (second / "pass_at_k.png").write_bytes(b"its own")
    assert compare_main([str(first), str(second), "--out", str(second)]) == 2
    assert "b: has an evaluation" in capsys.readouterr().err
    assert (second / "pass_at_k.png").read_bytes() == b"its own"


def test_methods_are_compared_over_their_seeds(tmp_path, capsys):
    # Right out of four problems, for the seeds of A and of B.
    right = {"a": (1, 2, 1), "b": (3, 3, 2)}
    folders = {
        method: [
            str(write(tmp_path / f"{method}{seed}", {f"p{n}": [n < count] for n in range(4)}))
            for seed, count in enumerate(counts)
        ]
        for method, counts in right.items()
    }
    both = ["--a", *folders["a"], "--b", *folders["b"]]
    assert compare_seeds_main([*both, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    [row] = json.loads((tmp_path / "out/comparison.json").read_text())["rows"]
    assert row["differences"] == [0.5, 0.25, 0.25]
    assert (row["first"]["value"], row["second"]["value"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    # Student's t with two degrees of freedom is 4.303; the standard deviation is 0.1443.
    assert row["difference"]["value"] == pytest.approx(1 / 3)
    assert row["difference"]["interval_95"] == pytest.approx([-0.0253, 0.6919], abs=1e-3)
    assert "+33.3 (-2.5 to +69.2)" in printed and "+50.0, +25.0, +25.0" in printed
    assert (tmp_path / "out/comparison.md").read_text() == printed
    assert compare_seeds_main(["--a", *folders["a"][:2], "--b", *folders["b"][:2]]) == 0
    printed = capsys.readouterr().out
    assert "+37.5 (-)" in printed and "- fewer than 3 seeds, so no interval" in printed
    assert compare_seeds_main(["--a", *folders["a"], "--b", folders["b"][0]]) == 2
    assert "--a has 3 folders and --b has 1; give one of each per seed" in capsys.readouterr().err
    assert compare_seeds_main(["--a", folders["a"][0], "--b", folders["a"][0]]) == 2
    assert "is given twice" in capsys.readouterr().err
    copy = write(tmp_path / "copy", {f"p{n}": [n < 1] for n in range(4)}, weights_sha256="a0")
    assert compare_seeds_main(["--a", folders["a"][0], str(copy), "--b", *folders["b"][:2]]) == 2
    assert f"{folders['a'][0]} and {copy} evaluate the same weights" in capsys.readouterr().err


def test_seeds_that_agree_have_no_interval_and_other_conditions_are_noted(tmp_path):
    a, b = (
        [
            write(
                tmp_path / f"{side}{seed}",
                {f"p{n}": [n < count] for n in range(4)},
                max_tokens=100 if seed else 4000,
            )
            for seed in range(3)
        ]
        for side, count in (("a", 1), ("b", 2))
    )
    compared = compare_seeds(a, b)
    [row] = compared.rows
    assert (row.difference.value, row.difference.interval_95, row.problems) == (0.25, None, 4)
    assert [note for note in compared.notes if "max_tokens" in note] == [
        f"{a[1]}, beside {a[0]}: max_tokens was 4000 and is 100",
        f"{a[2]}, beside {a[0]}: max_tokens was 4000 and is 100",
    ]


def test_what_a_pair_of_seeds_lacks_is_left_out_and_named(tmp_path):
    pairs = [
        [write(tmp_path / f"{each}{seed}", {"p": [1], "r": [0]} if seed else {"p": [1]}) for seed in range(2)]
        for each in "ab"
    ]
    for folder in (pairs[0][0], pairs[1][0]):
        write(folder, {"q": [0]}, benchmark="second", weights_sha256=folder.name)
    compared = compare_seeds(*pairs)
    assert [row.benchmark for row in compared.rows] == ["b"]
    assert {
        "second: only 1 of 2 pairs have it, so it is left out",
        "b: the pairs have 1, 2 problems, and each pair counts the same",
    } <= {*compared.notes}


# Several checkpoints


def write_step(folder, step, accuracy, **averages):
    path = folder / f"step_{step}" / "scores.json"
    path.parent.mkdir(parents=True)
    score = {
        "benchmark": "b", "temperature": 0.0, "accuracy": accuracy,
        "interval_95": [accuracy - 0.1, accuracy + 0.1], "problems": 40, "samples": 1,
    }  # fmt: skip
    written = {"scores": [score], "averages": {}, "conditions": {"seed": 0, "name": f"step {step}"}}
    for name, value in averages.items():
        written["averages"][name] = {"value": value, "interval_95": [value, value]}
    path.write_text(json.dumps(written))


def test_a_curve_is_in_order_of_steps_and_shows_gaps(tmp_path):
    for step, accuracy in ((100, 0.5), (20, 0.3), (3, 0.2)):
        write_step(tmp_path, step, accuracy, **({"math": 0.4} if step == 100 else {}))
    curves = curves_over_training(read_steps(tmp_path))
    assert [each.value for each in curves["b"].values()] == [0.2, 0.3, 0.5]
    lines = curve_table(curves).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["3", "20", "100"]
    assert lines[2].split("|")[3].strip() == "-" and "40.0" in lines[4]


def test_the_command_writes_table_numbers_and_picture(tmp_path, capsys):
    write_step(tmp_path, 1, 0.2)
    write_step(tmp_path, 2, 0.3)
    assert curve_main([str(tmp_path)]) == 0
    assert "20.0 (10.0 to 30.0)" in capsys.readouterr().out
    written = json.loads((tmp_path / "curve.json").read_text())
    assert written["curves"]["b"][1]["accuracy"] == 0.3
    assert written["conditions"]["step 2"] == {"seed": 0, "name": "step 2"}
    assert '- step 2: {"seed": 0, "name": "step 2"}' in (tmp_path / "curve.md").read_text()
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_step_evaluated_unlike_the_last_one_is_noted(tmp_path, capsys):
    for step in (1, 2, 3):
        write_step(tmp_path, step, 0.2)
    other = (path := tmp_path / "step_1" / "scores.json").read_text()
    path.write_text(other.replace('"problems": 40', '"problems": 5').replace('"seed": 0', '"seed": 7'))
    assert curve_main([str(tmp_path)]) == 0
    noted = (
        "- step 1 differs from step 3: seed was 7 and is 0\n"
        "- step 1 differs from step 3: b at T=0 had 5 x 1 and has 40 x 1 samples\n"
    )
    assert capsys.readouterr().err == noted and noted in (tmp_path / "curve.md").read_text()


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"scores": [{}]}'])
def test_damaged_scores_are_named(tmp_path, capsys, damage):
    write_step(tmp_path, 1, 0.2)
    (tmp_path / "step_1" / "scores.json").write_text(damage)
    assert curve_main([str(tmp_path)]) == 2
    assert "step_1/scores.json: is damaged" in capsys.readouterr().err


def test_a_folder_without_evaluated_steps_is_refused(tmp_path, capsys):
    assert curve_main([str(tmp_path)]) == 2
    assert "holds no step_N/scores.json" in capsys.readouterr().err


# --- Our samples beside those of lm-evaluation-harness, paired by prompt


def write_ours(folder, *samples, template_text="Q: {question} A:"):
    """An evaluation with (question, text, correct, temperature) samples."""
    with Ledger(folder, {"template_text": template_text}) as ledger:
        for number, (question, text, correct, temperature) in enumerate(samples):
            ledger.append(
                Prediction(
                    benchmark="b", temperature=temperature, instance_id=f"p{number}", level=0, sample=0,
                    question=question, answer="1", text=text, extracted=text, correct=correct,
                    reason=GradeReason.CORRECT if correct else GradeReason.WRONG, finish=Finish.STOP,
                    response_tokens=1,
                )
            )  # fmt: skip
    return folder


def write_theirs(path, *samples):
    """Samples (prompt, text, exact match), each as lm_eval 0.4 logs it."""
    rows = [
        {
            "doc_id": number, "doc": {}, "target": "1",
            "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {}}},
            "resps": [[text]], "filtered_resps": [text], "filter": "boxed", "exact_match": match,
        }
        for number, (prompt, text, match) in enumerate(samples)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


OURS = [("1", "a", True, 0.0), ("2", "b", False, 0.0), ("3", "c", True, 0.0), ("4", "x", True, 0.6)]
THEIRS = [("Q: 3 A:", "c", 0.0), ("Q: 2 A:", "other", 1.0), ("Q: 1 A:", "a", 1.0), ("Q: 9 A:", "z", 1.0)]


def test_prompts_responses_and_verdicts_are_counted_apart(tmp_path):
    ours = greedy_by_prompt(write_ours(tmp_path / "out", *OURS))
    found = agree("x", ours, read_samples(write_theirs(tmp_path / "x.jsonl", *THEIRS)))
    assert (found.theirs, found.paired, found.same_texts, found.same_verdicts) == (4, 3, 2, 1)
    assert (found.our_accuracy, found.their_accuracy) == (2 / 3, 2 / 3)
    [(mine, logged)] = found.disputed
    assert (mine.instance_id, logged.text) == ("p2", "c")


def test_the_command_lists_what_a_person_should_look_at(tmp_path, capsys):
    out, samples = write_ours(tmp_path / "out", *OURS), write_theirs(tmp_path / "x.jsonl", *THEIRS)
    assert main([str(out), str(samples)]) == 0
    assert "- b p2: 'c' against '1' is right for us and wrong for them" in capsys.readouterr().out


def test_other_prompts_are_shown_side_by_side(tmp_path):
    ours = greedy_by_prompt(write_ours(tmp_path / "out", *OURS))
    with pytest.raises(DataError, match=r"none of its 1 prompts is among our 3; the first is 'Q:1'"):
        agree("x", ours, read_samples(write_theirs(tmp_path / "x.jsonl", ("Q:1", "a", 1.0))))


@pytest.mark.parametrize("line", ["", '{"doc_id": 0}', '{"arguments": {}, "resps": [], "acc": 1.0}'])
def test_a_file_without_generated_samples_is_refused(tmp_path, line):
    (tmp_path / "x.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=r"x.jsonl"):
        read_samples(tmp_path / "x.jsonl")


def test_a_template_that_only_the_tokenizer_knows_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="evaluate with a named one"):
        greedy_by_prompt(write_ours(tmp_path / "out", *OURS, template_text=None))
