"""Scores of an evaluation: aggregation, averages, tables."""

import random

import pytest

from seele.records import Finish, GradeReason
from seele_eval.benchmarks import GENERAL, LUFFY, MATH
from seele_eval.pass_curves import curves_of, draw_panels, pass_table
from seele_eval.predictions import Prediction
from seele_eval.scores import average_scores, group_by_decoding, is_partial, score_predictions
from seele_eval.tables import LUFFY_COLUMNS, column_tables, details_table, results_table


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
    ] + [prediction(5, 0, correct=True), prediction(5, 1, correct=True, columns={"level": 2})]
    predictions += [prediction(6, 0), prediction(6, 1)]
    found = score_predictions(predictions, template="plain").by_column["level"]
    # Of problem 5 one sample was written before the column was asked for, of problem 6 both.
    assert [(part.value, part.problems, part.accuracy.value) for part in found] == [
        ("2", 3, pytest.approx(2 / 3)), ("10", 1, 0.5), ("hard", 2, 0.5), ("(none)", 1, 0.5),
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
    assert is_partial(score_predictions([prediction(benchmark="gsm8k")], template="plain"))
    assert not is_partial(score_predictions([prediction(benchmark="mine")], template="plain"))


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
