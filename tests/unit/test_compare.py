"""Comparing runs: made-up run folders whose curves are known, so that every number can be worked out."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from seele.cli.main import app
from seele.errors import CheckpointError, ConfigError
from seele.maths.bootstrap import bootstrap_interval
from seele.report import run_folder
from seele.report.comparison.analysis import compare
from seele.report.comparison.build import build_files, summary_text
from seele.report.comparison.curves import COSTS, accuracy_at, first_crossing, make_curve, mean_curve, spent
from seele.report.comparison.figures import accuracy_against
from seele.report.comparison.runs import read_arms
from seele.report.comparison.tables import amount, markdown, summarise
from seele.report.comparison.verdicts import verdicts

DOCUMENT = Path(__file__).parents[2] / "docs" / "compare.md"

SPLIT = "chains/heldout"

VOID = {"img", "meta", "link"}
"""Elements without an end tag."""


def make_run(
    folder,
    accuracy_by_step,
    *,
    method="grpo",
    seed=0,
    tokens=100,
    splits=(SPLIT,),
    metrics=None,
    settings=None,
    card=None,
):
    """A run that is validated at some steps and spends ``tokens`` and two seconds in each.

    Args:
        folder: Where.
        accuracy_by_step: Step -> accuracy on every split.
        metrics: Step -> further metrics of its line.
        settings: Further settings, by dotted key.
        card: Further entries of the run card.
    """
    folder.mkdir(parents=True)
    lines = []
    for step in range(min(0, *accuracy_by_step), max(accuracy_by_step) + 1):
        line = {"step": step, "tokens/generated_total": tokens * step}
        line |= {"tokens/prefilled_total": tokens * step // 2, "tokens/trained_total": 2 * tokens * step}
        line |= {"tokens/trained_packed_total": tokens * step}
        line |= {"tokens/trained_informative_total": tokens * step // 4}
        if step:
            line["timing_s/step"] = 2.0
        if step in accuracy_by_step:
            line |= {f"val/accuracy/{split}": accuracy_by_step[step] for split in splits}
        lines.append(line | (metrics(step) if metrics else {}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    dotted = {
        "seele.method": method,
        "seele.seed": seed,
        "seele.hints.controller": "none" if method == "grpo" else "paper",
        "seele.hints.rounds": 1 if method == "grpo" else 4,
        "actor_rollout_ref.model.path": "models/chains",
        "data.train_files": ["train.parquet"],
        "data.val_files": ["heldout.parquet"],
    }
    (folder / "resolved.yaml").write_text(yaml.safe_dump(nested(dotted | (settings or {}))))
    described = {"method": method, "seed": seed, "commit": "0123abcdef", "status": "finished"}
    (folder / "run_card.json").write_text(json.dumps(described | (card or {})))
    return folder


def nested(dotted):
    tree = {}
    for key, value in dotted.items():
        *sections, name = key.split(".")
        section = tree
        for each in sections:
            section = section.setdefault(each, {})
        section[name] = value
    return tree


def straight(start, end, *, steps=10, every=5):
    """Accuracies on a straight line."""
    return {step: start + (end - start) * step / steps for step in range(0, steps + 1, every)}


@pytest.fixture
def runs(tmp_path):
    """Three seeds each; at step 10 grpo is at 0.3, 0.4, 0.5 and seele 0.1, 0.2, 0.3 above it."""
    folders = []
    for seed in range(3):
        end = 0.3 + 0.1 * seed
        folders.append(make_run(tmp_path / f"grpo-{seed}", straight(0.1, end), seed=seed))
        better = straight(0.1, end + 0.1 * (seed + 1))
        folders.append(make_run(tmp_path / f"seele-{seed}", better, method="seele", seed=seed))
    return folders


def result_of(comparison, cost="steps", split=SPLIT):
    return comparison.results[split][cost]


def notes_of(*folders, **options):
    return compare(folders, **options).notes


def test_a_comparison_reads_neither_rollouts_nor_controllers(runs, monkeypatch):
    (runs[0] / "rollouts").mkdir()
    (runs[0] / "rollouts/step_1.jsonl").write_text("{}\n")
    for name in ("_read_rollouts", "_read_newest_controller"):
        monkeypatch.setattr(run_folder, name, lambda *_: pytest.fail("read"))
    assert result_of(compare(runs)).arms.keys() == {"grpo", "seele"}


# Equal cost


def test_every_arm_is_compared_at_the_largest_budget_that_every_run_reached(tmp_path):
    short = make_run(tmp_path / "short", {0: 0.1, 6: 0.4})
    long = make_run(tmp_path / "long", {0: 0.2, 5: 0.3, 10: 0.8}, method="seele")
    result = result_of(compare([long, short]))
    assert (result.budget, result.budget_set_by) == (6.0, short.as_posix())
    assert result.arms["grpo"].accuracy.by_seed == {0: 0.4}
    # A fifth of the way from step 5 to step 10.
    assert result.arms["seele"].accuracy.by_seed == pytest.approx({0: 0.4})


def test_arms_can_be_compared_at_a_smaller_budget(tmp_path):
    short = make_run(tmp_path / "short", {2: 0.1, 6: 0.4})
    long = make_run(tmp_path / "long", {0: 0.2, 5: 0.3, 10: 0.8}, method="seele")
    result = result_of(compare([long, short], costs=["steps"], budget=5))
    assert (result.budget, result.budget_set_by) == (5, None)
    assert result.arms["grpo"].accuracy.by_seed == pytest.approx({0: 0.325})
    assert result.arms["seele"].accuracy.by_seed == {0: 0.3}
    for budget in (1, 7, math.nan):
        with pytest.raises(ConfigError, match="between 2 and 6, where every run"):
            compare([long, short], costs=["steps"], budget=budget)
    with pytest.raises(ConfigError, match="needs one --cost"):
        compare([long, short], budget=5)


def test_who_learns_early_has_the_higher_average(tmp_path):
    early = make_run(tmp_path / "early", {0: 0.0, 4: 0.4, 10: 0.4})
    late = make_run(tmp_path / "late", {0: 0.0, 10: 0.5, 20: 0.9}, method="seele")
    arms = result_of(compare([early, late])).arms
    assert arms["grpo"].average.mean == pytest.approx(0.32)
    assert arms["seele"].average.mean == pytest.approx(0.25)
    assert arms["seele"].average_difference.mean == pytest.approx(-0.07)
    assert arms["seele"].difference.mean == pytest.approx(0.1)
    assert arms["grpo"].average_difference is None
    # What lies before the first common validation is known of one run only.
    begun = make_run(tmp_path / "begun", {4: 0.4, 10: 0.4})
    arms = result_of(compare([begun, late])).arms
    assert arms["grpo"].average.mean == pytest.approx(0.4)
    assert arms["seele"].average.mean == pytest.approx(0.35)


def test_runs_that_share_a_single_cost_have_their_accuracy_there_as_average(tmp_path):
    one, other = make_run(tmp_path / "one", {5: 0.3}), make_run(tmp_path / "two", {0: 0.1, 10: 0.5}, seed=1)
    average = result_of(compare([one, other])).arms["grpo"].average
    assert average.by_seed == pytest.approx({0: 0.3, 1: 0.3})


def test_the_same_runs_are_compared_at_another_step_where_tokens_are_what_counts(tmp_path):
    sparing = make_run(tmp_path / "sparing", straight(0.0, 0.5), tokens=100)
    lavish = make_run(tmp_path / "lavish", straight(0.0, 1.0), tokens=400, method="seele")
    comparison = compare([sparing, lavish])
    assert result_of(comparison, "steps").arms["seele"].accuracy.mean == 1.0
    by_tokens = result_of(comparison, "tokens_generated")
    assert by_tokens.budget == 1000
    # 1000 tokens are step 2.5 of the lavish run.
    assert by_tokens.arms["seele"].accuracy.mean == pytest.approx(0.25)
    assert by_tokens.arms["seele"].difference.mean == pytest.approx(-0.25)


def test_each_cost_is_read_from_its_metric(tmp_path):
    run = make_run(
        tmp_path / "run",
        {0: 0.1, 4: 0.2},
        metrics=lambda step: {"flops_total": 7e9 * step, "tokens/teacher_forced_total": 5 * step},
    )
    comparison = compare([run])
    assert {cost: result_of(comparison, cost).budget for cost in comparison.costs} == {
        "steps": 4,
        "tokens_generated": 400,
        "tokens_prefilled": 200,
        "tokens_trained": 800,
        "tokens_trained_packed": 400,
        "tokens_trained_informative": 100,
        "tokens_teacher_forced": 20,
        "flops": 28e9,
        "seconds": 8,
    }
    assert list(comparison.costs) == list(COSTS)


def test_means_and_intervals_are_over_seeds(runs):
    accuracy = result_of(compare(runs)).arms["grpo"].accuracy
    assert accuracy.by_seed == pytest.approx({0: 0.3, 1: 0.4, 2: 0.5})
    assert accuracy.mean == pytest.approx(0.4)
    low, high = bootstrap_interval(np.array([0.3, 0.4, 0.5]), np.random.default_rng(0))
    assert accuracy.interval_95 == pytest.approx((low, high))


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_too_few_seeds_have_no_interval_and_that_is_said(runs, num_seeds):
    few = [run for run in runs if int(run.name[-1]) < num_seeds]
    comparison = compare(few)
    seele = result_of(comparison).arms["seele"]
    assert seele.accuracy.interval_95 is seele.difference.interval_95 is None
    assert seele.cost_of_accuracy.interval_95 is None
    assert f"Fewer than 3 seeds, so no interval: grpo ({num_seeds}), seele ({num_seeds})." in comparison.notes
    text = markdown(comparison)
    assert " none | +" in text
    seeds = ("1 seed per arm", "seele minus grpo: 2 common seeds, and an interval needs 3")[num_seeds - 1]
    assert text.startswith(f"# Comparison: grpo, seele\n\n{seeds}: no difference can be claimed.\n\n- ")
    # One seed has no p: it would be 1 whatever the difference.
    assert f"none | none | {num_seeds} | {('-', '0.5')[num_seeds - 1]} |" in text


def test_the_first_sentence_says_by_which_costs_an_interval_excludes_zero(tmp_path):
    folders = []
    for seed in range(3):
        folders.append(make_run(tmp_path / f"grpo-{seed}", straight(0.1, 0.3), seed=seed))
        better = straight(0.1, 0.5 + 0.01 * seed)
        # By its tokens it is level with grpo, on the whole.
        tokens = (130, 200, 300)[seed]
        folders.append(make_run(tmp_path / f"seele-{seed}", better, method="seele", seed=seed, tokens=tokens))
    comparison = compare(folders, costs=["steps", "tokens_generated", "seconds"])
    (verdict,) = verdicts(comparison)
    assert verdict.startswith(
        "seele minus grpo on chains/heldout: the 95 % interval by Student's t, in points, excludes zero at "
        "equal steps (+18.52 to +23.48), seconds of training (+18.52 to +23.48); includes zero at equal "
        "tokens generated (-"
    )
    page = build_files(comparison)["index.html"].decode()
    assert page.index("minus grpo on chains/heldout: the 95 %") < page.index("<h2>Figures")


def test_seeds_that_differ_by_the_same_amount_show_no_spread_and_claim_nothing(tmp_path):
    folders = [
        make_run(
            tmp_path / f"{method}-{seed}", straight(0.1, 0.3 + 0.1 * seed + gain), method=method, seed=seed
        )
        for seed in range(3)
        for method, gain in (("grpo", 0.0), ("seele", 0.07))
    ]
    comparison = compare(folders, costs=["steps", "seconds"])
    difference = result_of(comparison).arms["seele"].difference
    assert len(set(difference.by_seed.values())) > 1, "rounding alone tells them apart"
    assert difference.t_interval_95 is None and difference.mean == pytest.approx(0.07)
    (verdict,) = verdicts(comparison)
    assert verdict.endswith(
        "in points, does not exist, because all seeds differ by the same amount, at equal steps (+7.00), "
        "seconds of training (+7.00)."
    )
    assert "| +7.0 | +7.0 to +7.0 | none | 3 |" in markdown(comparison)


def test_seconds_come_last_with_what_they_need(runs):
    note = "Seconds compare only runs that had the machine to themselves."
    assert compare(runs, costs=["seconds", "steps"]).costs == ["steps", "seconds"]
    assert note in markdown(compare(runs, costs=["seconds", "steps"]))
    assert note not in markdown(compare(runs, costs=["steps"]))


# Differences


def test_differences_are_taken_seed_by_seed(runs):
    arms = result_of(compare(runs)).arms
    assert arms["grpo"].difference is None
    difference = arms["seele"].difference
    assert difference.by_seed == pytest.approx({0: 0.1, 1: 0.2, 2: 0.3})
    assert difference.mean == pytest.approx(0.2)
    # Three seeds: their whole range, and two of eight flips.
    assert difference.interval_95 == pytest.approx((0.1, 0.3))
    # By Student's t with two degrees of freedom three say less.
    assert difference.t_interval_95 == pytest.approx((-0.0484, 0.4484), abs=1e-4)
    assert difference.p_value == 0.25


def test_only_seeds_that_both_arms_have_are_paired(runs):
    runs.remove(next(run for run in runs if run.name == "grpo-1"))
    seele = result_of(compare(runs)).arms["seele"]
    assert list(seele.accuracy.by_seed) == [0, 1, 2]
    assert seele.difference.by_seed == pytest.approx({0: 0.1, 2: 0.3})
    assert seele.difference.interval_95 is seele.difference.t_interval_95 is None


def test_unequal_seeds_are_said_to_make_differences_of_others(runs):
    assert "Arms have different seeds" not in markdown(compare(runs))
    text = markdown(compare([run for run in runs if run.name != "grpo-1"], costs=["steps"]))
    # Under both tables with differences.
    assert text.count("Arms have different seeds") == 2


def test_a_single_arm_is_said_to_be_alone_and_has_no_differences(runs):
    text = markdown(compare(runs[::2], costs=["steps"]))
    assert text.startswith("# Comparison: grpo\n\nOne arm only, grpo: there is nothing to compare it with.\n")
    assert "reference" not in text and "minus" not in text and "Differences" not in text
    assert "| cost | arm | budget | seeds | accuracy | 95 % interval |\n" in text


def test_arms_without_a_common_seed_have_no_difference(tmp_path):
    comparison = compare(
        [
            make_run(tmp_path / "a", straight(0.1, 0.2), seed=1),
            make_run(tmp_path / "b", straight(0.1, 0.3), seed=2, method="seele"),
        ]
    )
    assert result_of(comparison).arms["seele"].difference is None
    assert "| none |  |  | 0 | - |" in markdown(comparison)


def test_the_reference_is_grpo_or_the_first_or_the_one_that_is_named(runs, tmp_path):
    other = make_run(tmp_path / "other", straight(0.1, 0.2), method="luffy")
    assert compare([other, *runs]).reference == "grpo"
    without = [other, *(run for run in runs if "seele" in run.name)]
    assert compare(without).reference == "luffy"
    named = compare(without, reference="seele")
    assert (named.reference, list(named.arms)) == ("seele", ["seele", "luffy"])
    assert result_of(named).arms["luffy"].difference.mean < 0


# Equal accuracy


def test_the_cost_of_an_accuracy_is_where_the_line_first_comes_to_it(tmp_path):
    falls_back = {0: 0.1, 5: 0.5, 10: 0.2, 15: 0.9}
    reach = result_of(compare([make_run(tmp_path / "run", falls_back)], accuracy=0.3)).arms["grpo"]
    assert reach.cost_of_accuracy.by_seed == pytest.approx({0: 2.5})
    assert reach.cost_of_accuracy.of_mean_curve == pytest.approx(2.5)


def test_seeds_that_do_not_reach_the_accuracy_are_counted_and_not_averaged_away(tmp_path):
    ends = {0: 0.9, 1: 0.5, 2: 0.4}
    folders = [make_run(tmp_path / f"{seed}", straight(0.1, end), seed=seed) for seed, end in ends.items()]
    reach = result_of(compare(folders, accuracy=0.5)).arms["grpo"].cost_of_accuracy
    assert reach.by_seed == pytest.approx({0: 5.0, 1: 10.0, 2: None})
    assert (reach.num_reached, reach.mean, reach.interval_95) == (2, None, None)
    # The mean ends at 0.6, which is 0.5 up from the start; 0.4 of them are 0.8 of the way.
    assert reach.of_mean_curve == pytest.approx(8.0)
    assert "| 2 of 3 | not by all | none |" in markdown(compare(folders, accuracy=0.5))


def test_costs_of_an_accuracy_that_all_seeds_reach_are_averaged(runs):
    reach = result_of(compare(runs, accuracy=0.3)).arms["grpo"].cost_of_accuracy
    # 0.2 above the start, of which the seeds climb 0.2, 0.3 and 0.4 in ten steps.
    assert reach.by_seed == pytest.approx({0: 10.0, 1: 20 / 3, 2: 5.0})
    assert reach.mean == pytest.approx((10 + 20 / 3 + 5) / 3)
    assert reach.interval_95 == pytest.approx((5.0, 10.0))


def test_by_default_the_accuracy_is_what_the_references_mean_curve_ends_with(runs):
    result = result_of(compare(runs))
    assert result.accuracy == pytest.approx(0.4)
    assert result.arms["grpo"].cost_of_accuracy.of_mean_curve == pytest.approx(10.0)
    # seele's mean climbs from 0.1 to 0.6.
    assert result.arms["seele"].cost_of_accuracy.of_mean_curve == pytest.approx(6.0)


def test_an_accuracy_that_nobody_reaches_is_said_not_to_be_reached(runs):
    comparison = compare(runs, accuracy=1.0)
    reach = result_of(comparison).arms["seele"].cost_of_accuracy
    assert (reach.of_mean_curve, reach.num_reached, reach.mean) == (None, 0, None)
    assert "| not reached | 0 of 3 | not by all | none |" in markdown(comparison)


# Curves


@st.composite
def curves(draw):
    costs = sorted(draw(st.sets(st.integers(0, 100), min_size=2, max_size=8)))
    accuracies = draw(st.lists(st.floats(0.0, 1.0), min_size=len(costs), max_size=len(costs)))
    return make_curve(np.array(costs, dtype=float), np.array(accuracies))


@settings(deadline=None)
@given(curves(), st.floats(0.0, 1.0))
def test_a_curve_has_at_its_crossing_the_accuracy_that_it_crosses(curve, accuracy):
    cost = first_crossing(curve, accuracy)
    if cost is None:
        assert curve.accuracy_V.max() < accuracy
    elif cost == curve.first:
        assert curve.accuracy_V[0] >= accuracy - 1e-6
    else:
        # Where the line is steep, the cost is exact and the accuracy follows it.
        assert accuracy_at(curve, cost) == pytest.approx(accuracy, abs=1e-6)


@settings(deadline=None)
@given(curves(), curves())
def test_the_mean_curve_is_the_mean_everywhere(one, other):
    low, high = max(one.first, other.first), min(one.last, other.last)
    if low <= high:
        mean = mean_curve([one, other])
        for cost in np.linspace(low, high, 7).clip(mean.first, mean.last):
            expected = (accuracy_at(one, cost) + accuracy_at(other, cost)) / 2
            assert accuracy_at(mean, cost) == pytest.approx(expected, abs=1e-9)


def test_a_curve_is_not_extrapolated():
    curve = make_curve(np.array([2.0, 4.0]), np.array([0.1, 0.2]))
    for cost in (1.9, 4.1):
        with pytest.raises(AssertionError, match="never extrapolated"):
            accuracy_at(curve, cost)


def test_of_validations_at_the_same_cost_the_last_one_counts():
    curve = make_curve(np.array([0.0, 5.0, 5.0, 8.0, 8.0]), np.array([0.1, 0.2, 0.3, 0.4, 0.6]))
    assert curve.cost_V.tolist() == [0.0, 5.0, 8.0]
    assert curve.accuracy_V.tolist() == [0.1, 0.3, 0.6]


# Costs that runs cannot be compared by


def test_a_cost_that_a_run_does_not_count_is_left_out_and_said_so(tmp_path):
    counts = make_run(tmp_path / "a", straight(0.1, 0.2), metrics=lambda step: {"flops_total": 5.0 * step})
    does_not = make_run(tmp_path / "b", straight(0.1, 0.3), method="seele", card={"flops": 12.5e12})
    comparison = compare([counts, does_not])
    assert "flops" not in comparison.costs
    (note,) = (note for note in comparison.notes if note.startswith("flops is skipped"))
    assert note.endswith(
        f"flops_total is missing in some step's metrics, or falls, in {does_not.as_posix()}."
    )
    # What the run cards say is shown all the same.
    assert [run["spent"]["flops"] for run in summarise(comparison)["runs"]] == [50.0, 12.5e12]
    assert "12.5 T" in markdown(comparison)


def test_flops_of_a_model_of_unknown_size_are_unknown_and_not_zero(tmp_path):
    run = make_run(
        tmp_path / "run", straight(0.1, 0.2), metrics=lambda step: {"flops_total": 0.0}, card={"flops": None}
    )
    comparison = compare([run])
    assert "flops" not in comparison.costs
    assert summarise(comparison)["runs"][0]["spent"]["flops"] is None


def test_a_run_that_never_logs_teacher_forcing_does_none_and_is_not_compared_by_it(tmp_path):
    forced = {"metrics": lambda step: {"tokens/teacher_forced_total": 9 * step}}
    a = make_run(tmp_path / "a", straight(0.1, 0.2), **forced)
    b = make_run(tmp_path / "b", straight(0.1, 0.3), method="luffy", **forced)
    assert result_of(compare([a, b]), "tokens_teacher_forced").budget == 90
    none = make_run(tmp_path / "none", straight(0.1, 0.3), method="seele")
    comparison = compare([a, none])
    assert "tokens_teacher_forced" not in comparison.costs
    reason = f"{none.as_posix()} had spent none when it was last validated ({SPLIT})"
    assert f"tokens_teacher_forced is skipped: {reason}." in comparison.notes
    assert [run["spent"]["tokens_teacher_forced"] for run in summarise(comparison)["runs"]] == [90, 0]


@pytest.mark.parametrize(
    ("rows", "totals"),
    [
        pytest.param([{"step": 0}, {"step": 1, "flops_total": 3}], [0, 3], id="before training"),
        pytest.param([{"step": 1}, {"step": 2, "flops_total": 3}], None, id="a step that does not say"),
        pytest.param([{"step": s, "flops_total": 9 - s} for s in (1, 2)], None, id="falling"),
        pytest.param([{"step": 0}], [0], id="no step at all"),
    ],
)
def test_totals_are_those_of_the_run_or_not_known(rows, totals):
    found = spent(rows, COSTS["flops"])
    assert totals == (None if found is None else found.tolist())


def test_runs_that_were_not_validated_at_any_common_cost_are_not_compared_by_it(tmp_path):
    early = make_run(tmp_path / "early", {0: 0.1, 4: 0.2}, tokens=1000)
    late = make_run(tmp_path / "late", {5: 0.3, 10: 0.4}, method="seele")
    comparison = compare([early, late])
    # 4000 tokens of one are beyond the other's first 500, but step 4 is before step 5.
    assert result_of(comparison, "tokens_generated").budget == 1000
    assert "steps" not in comparison.costs
    reason = f"{late.as_posix()} was first validated after {early.as_posix()} was last validated"
    assert f"steps is skipped: {reason} ({SPLIT})." in comparison.notes
    with pytest.raises(ConfigError, match="these runs cannot be compared by any cost: steps is skipped"):
        compare([early, late], costs=["steps"])


def test_a_run_that_was_only_validated_before_training_has_spent_nothing_to_compare(runs, tmp_path):
    dead = make_run(tmp_path / "dead", {0: 0.1}, method="luffy")
    with pytest.raises(ConfigError, match="dead had spent none when it was last validated"):
        compare([*runs, dead])


# Runs


def test_a_killed_run_counts_as_far_as_it_was_validated(tmp_path):
    killed = make_run(tmp_path / "killed", straight(0.1, 0.5), card={"status": "running"})
    whole = (killed / "metrics.jsonl").read_text()
    (killed / "metrics.jsonl").write_text(whole[:-20])
    comparison = compare([killed, make_run(tmp_path / "other", straight(0.1, 0.7), method="seele")])
    assert result_of(comparison).budget == 5
    assert result_of(comparison).arms["seele"].accuracy.mean == pytest.approx(0.4)
    assert f"{killed.as_posix()} did not finish (status: running)" in " ".join(comparison.notes)
    assert "metrics.jsonl, line 11, is cut off" in " ".join(comparison.notes)
    described = {run["run"]: run for run in summarise(comparison)["runs"]}[killed.as_posix()]
    assert (described["last_step"], described["last_validated_step"]) == (9, 5)


def test_method_and_seed_are_those_of_the_settings_where_there_is_no_run_card(tmp_path):
    run = make_run(tmp_path / "run", straight(0.1, 0.5), method="luffy", seed=7)
    (run / "run_card.json").unlink()
    (arm,) = read_arms([run]).items()
    assert (arm[0], list(arm[1])) == ("luffy", [7])
    assert "run_card.json is missing" in " ".join(notes_of(run))


def test_a_run_that_says_neither_method_nor_seed_needs_a_label_and_is_refused_without_a_seed(tmp_path):
    run = make_run(tmp_path / "run", straight(0.1, 0.5))
    (run / "resolved.yaml").unlink()
    (run / "run_card.json").write_text('{"seed": 3}')
    with pytest.raises(CheckpointError, match=r"has the method; give the run a label \(--label run=NAME\)"):
        compare([run])
    assert list(compare([run], labels=["run=mine"]).arms) == ["mine"]
    (run / "run_card.json").write_text("{}")
    with pytest.raises(CheckpointError, match="has the seed"):
        compare([run], labels=["run=mine"])


def test_what_was_never_validated_is_refused(tmp_path):
    run = make_run(tmp_path / "run", {0: 0.1, 5: 0.2}, splits=())
    with pytest.raises(CheckpointError, match=r"run: no un-hinted validation .*trainer\.test_freq"):
        compare([run])
    with pytest.raises(CheckpointError, match="no such folder"):
        compare([tmp_path / "absent"])


def test_two_runs_of_an_arm_with_the_same_seed_are_refused_by_name(runs, tmp_path):
    again = make_run(tmp_path / "again", straight(0.1, 0.3), seed=1)
    with pytest.raises(ConfigError, match=r"grpo-1 and .*again are both 'grpo' with seed 1; .*--label"):
        compare([*runs, again])
    assert list(compare([*runs, again], labels=["again=grpo, again"]).arms) == [
        "grpo",
        "seele",
        "grpo, again",
    ]


# Arms


def test_runs_of_a_method_that_differ_in_a_setting_are_arms_of_their_own(tmp_path):
    settings = [
        {"seele.hints.controller": "paper", "seele.curriculum.name": "sec"},
        {"seele.hints.controller": "bayes", "seele.curriculum.name": "uniform"},
        # Older than curricula: it does not differ in what it does not know.
        {"seele.hints.controller": "bayes"},
    ]
    folders = [
        make_run(tmp_path / f"{i}", straight(0.1, 0.3), method="seele", seed=i, settings=each)
        for i, each in enumerate(settings)
    ]
    grpo = make_run(tmp_path / "grpo", straight(0.1, 0.2))
    # grpo differs from seele in its controller and rounds, but not from other runs of grpo.
    assert list(read_arms([*folders[1:], grpo])) == ["seele", "grpo"]
    assert list(read_arms([*folders[:2], grpo])) == [
        "seele:controller=paper,curriculum=sec",
        "seele:controller=bayes,curriculum=uniform",
        "grpo",
    ]


def test_runs_with_other_hints_are_not_seeds_of_one_arm(tmp_path):
    changes = [
        {"seele.hints.when": "always", "seele.hints.round_sizes": None, "seele.hints.settings": {}},
        {"seele.hints.when": "after_failure"},
        {"seele.hints.round_sizes": [4, 2], "seele.advantage.baseline": "pooled"},
        {"seele.hints.settings": {"probes": 1}, "seele.advantage.baseline": "per_round"},
    ]
    folders = [
        make_run(tmp_path / f"{seed}", straight(0.1, 0.3), method="seele", seed=seed, settings=each)
        for seed, each in enumerate(changes)
    ]
    assert list(read_arms(folders[:2])) == ["seele:when=always", "seele:when=after_failure"]
    assert list(read_arms(folders[::2])) == ["seele:round_sizes=null", "seele:round_sizes=[4,2]"]
    assert list(read_arms(folders[2:])) == ["seele:baseline=pooled", "seele:baseline=per_round"]
    assert list(read_arms(folders[::3])) == ["seele:settings={}", 'seele:settings={"probes":1}']
    # A label makes one arm of them.
    path = [folder.as_posix() for folder in folders]
    note = (
        f"Not the same seele.hints.when within the arm mine: always in {path[0]}; after_failure in {path[1]}."
    )
    assert note in notes_of(*folders[:2], labels=["0=mine", "1=mine"])


def test_every_setting_of_the_method_that_differs_within_an_arm_is_named(tmp_path):
    settings = {"seele.hints.rounds": 1, "seele.advantage.baseline": "pooled", "seele.credit.name": "none"}
    changed = {
        "seele.hints.rounds": 2,
        "seele.advantage.baseline": "per_round",
        "seele.credit.name": "milestones",
    }
    one, other = (
        make_run(tmp_path / name, straight(0.1, 0.3), seed=seed, settings=each)
        for seed, (name, each) in enumerate((("one", settings), ("other", changed)))
    )
    path = [folder.as_posix() for folder in (one, other)]
    notes = compare([one, other], labels=[f"{each}=mine" for each in path]).notes
    for key in settings:
        values = f"{settings[key]} in {path[0]}; {changed[key]} in {path[1]}"
        assert f"Not the same {key} within the arm mine: {values}." in notes, key


def test_whatever_decides_what_a_run_learns_is_named_if_it_differs_within_an_arm(tmp_path):
    changes = {
        "actor_rollout_ref.actor.entropy_coeff": (0, 0.05),
        "actor_rollout_ref.actor.optim.lr_scheduler_type": ("constant", "cosine"),
        "actor_rollout_ref.actor.optim.lr_warmup_steps": (0, 10),
        "actor_rollout_ref.model.lora_rank": (0, 32),
        "algorithm.norm_adv_by_std_in_grpo": (True, False),
        "seele.sft.epochs": (1, 2),
    }
    of_one_run = {"data.seed": (0, 1), "trainer.default_local_dir": ("runs/0", "runs/1")}
    # A condition of all runs, not of an arm's.
    of_one_run["actor_rollout_ref.actor.optim.lr"] = (1e-6, 2e-6)
    one, other = (
        make_run(
            tmp_path / f"{seed}",
            straight(0.1, 0.3),
            seed=seed,
            settings={key: values[seed] for key, values in (changes | of_one_run).items()},
        )
        for seed in range(2)
    )
    notes = [note for note in notes_of(one, other) if "within the arm" in note]
    assert sorted(notes) == sorted(
        f"Not the same {key} within the arm grpo: {first} in {one}; {second} in {other}."
        for key, (first, second) in changes.items()
    )


def test_an_argument_that_only_some_runs_of_an_arm_have_is_named(tmp_path):
    one, other = (
        make_run(tmp_path / f"{seed}", straight(0.1, 0.3), seed=seed, settings={"seele.hints.settings": own})
        for seed, own in enumerate(({"a": 1}, {"a": 1, "b": "größer"}))
    )
    path = [folder.as_posix() for folder in (one, other)]
    note = f'{{"a":1}} in {path[0]}; {{"a":1,"b":"größer"}} in {path[1]}.'
    notes = compare([one, other], labels=[f"{each}=mine" for each in path]).notes
    assert f"Not the same seele.hints.settings within the arm mine: {note}" in notes


def test_averages_that_begin_late_and_unequal_distances_between_validations_are_named(tmp_path):
    early, late = straight(0.1, 0.3), dict.fromkeys((5, 10), 0.3)
    often = make_run(tmp_path / "often", early, settings={"trainer.test_freq": 5})
    rare = make_run(tmp_path / "rare", late, method="seele", settings={"trainer.test_freq": 10})
    notes = notes_of(often, rare, costs=["tokens_generated"])
    assert f"Averages by tokens_generated begin at 500, where {rare} was first validated ({SPLIT})." in notes
    assert f"Not the same number of steps between validations: 5 in {often}; 10 in {rare}." in notes
    assert not any("Averages" in note for note in notes_of(often))


def test_other_settings_tell_arms_apart_on_request(tmp_path):
    folders = [
        make_run(
            tmp_path / f"{rate}",
            straight(0.1, 0.3),
            method="seele",
            settings={"actor_rollout_ref.actor.optim.lr": rate, "seele.hints.rounds": rounds},
        )
        for rate, rounds in ((1e-3, 2), (1e-4, 4))
    ]
    by = ["actor_rollout_ref.actor.optim.lr"]
    assert list(read_arms(folders, by=by)) == ["seele:lr=0.001", "seele:lr=0.0001"]
    with pytest.raises(ConfigError, match=r"--by seele\.nothing: no run has such a setting"):
        read_arms(folders, by=["seele.nothing"])


def test_a_setting_that_was_asked_for_and_that_a_run_has_not_is_null_there(tmp_path):
    key = "seele.hints.settings.probes"
    folders = [
        make_run(tmp_path / f"{probes}", straight(0.1, 0.3), method="seele", settings=settings)
        for probes, settings in (("none", {}), ("null", {key: None}), ("one", {key: 1}))
    ]
    assert list(read_arms(folders[1:], by=[key])) == ["seele:probes=null", "seele:probes=1"]
    assert list(read_arms(folders[::2], by=[key])) == ["seele:probes=null", "seele:probes=1"]


def test_a_label_names_a_run_by_its_path_or_its_folder_and_leaves_the_others_alone(runs, tmp_path):
    # Under a label, its controller makes no arms of the other runs.
    bayes = {"seele.hints.controller": "bayes"}
    odd = make_run(tmp_path / "lr=1,a=b", straight(0.1, 0.3), method="seele", seed=9, settings=bayes)
    arms = read_arms([*runs, odd], labels=["lr=1,a=b=mine", f"{runs[0].as_posix()}=baseline"])
    assert {arm: list(by_seed) for arm, by_seed in arms.items()} == {
        "baseline": [0],
        "seele": [0, 1, 2],
        "grpo": [1, 2],
        "mine": [9],
    }


@pytest.mark.parametrize("label", ["absent=name", "grpo-0", "grpo-0=", "twin=name"])
def test_a_label_that_fits_no_run_or_several_is_refused(runs, tmp_path, label):
    twins = [make_run(tmp_path / f"{i}" / "twin", straight(0.1, 0.3), seed=5 + i) for i in range(2)]
    with pytest.raises(ConfigError, match=f"--label {label}: expected RUN=NAME"):
        read_arms([*runs, *twins], labels=[label])


# Splits


def test_runs_are_compared_on_the_splits_that_they_share(tmp_path):
    both = make_run(tmp_path / "both", straight(0.1, 0.3), splits=("a", "b"))
    one = make_run(tmp_path / "one", straight(0.1, 0.4), splits=("a",), method="seele")
    other = make_run(tmp_path / "other", straight(0.1, 0.4), splits=("b",), method="uft")
    compared = compare([both, one])
    assert list(compared.results) == list(compare([both, one], splits=["a"]).results) == ["a"]
    assert f"b is skipped: {one} was not validated on it." in compared.notes
    with pytest.raises(ConfigError, match=r"one was not validated on 'b', .* but on \['a'\]; .*--split"):
        compare([both, one], splits=["b"])
    with pytest.raises(ConfigError, match=r"other was not validated on 'a'"):
        compare([one, other])


# What a reader must know


def test_equal_runs_leave_nothing_to_say_but_what_is_left_out(runs):
    assert [note.split()[0] for note in notes_of(*runs)] == ["flops", "tokens_teacher_forced"]


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (
            {"settings": {"actor_rollout_ref.model.path": "models/other"}},
            "Not the same base model: models/chains in OLD; models/other in NEW.",
        ),
        (
            {"settings": {"data.train_files": ["more.parquet"]}},
            'Not the same training data: ["train.parquet"] in OLD; ["more.parquet"] in NEW.',
        ),
        (
            {"settings": {"seele.sft.train_files": ["übung.parquet"]}},
            'Not the same data of the first stage: [] in OLD; ["übung.parquet"] in NEW.',
        ),
        (
            {"settings": {"data.val_files": None}},
            'Not the same validation data: ["heldout.parquet"] in OLD; unknown in NEW.',
        ),
        *(
            ({"settings": {key: value}}, f"Not the same {what}: unknown in OLD; {json.dumps(value)} in NEW.")
            for key, value, what in (
                ("seele.reward.truncated_is_wrong", True, "grading of truncated responses"),
                ("seele.reward.after_thinking", True, "grading of thoughts"),
                ("seele.reward.correct_from", 0.5, "reward from which a rollout counts as solved"),
                ("seele.reward.kwargs", {"strict": True}, "arguments of the reward function"),
                ("data.max_prompt_length", 64, "length limit of prompts"),
                ("data.train_max_samples", 500, "number of training problems"),
                ("actor_rollout_ref.actor.ppo_mini_batch_size", 8, "prompts of an update"),
                ("actor_rollout_ref.actor.ppo_epochs", 2, "updates on the same rollouts"),
                ("actor_rollout_ref.actor.optim.lr", 1e-6, "learning rate"),
                ("actor_rollout_ref.rollout.temperature", 0.6, "sampling temperature"),
            )
        ),
        (
            {"settings": {"seele.data.overlong": "truncate"}},
            "Not the same handling of problems that are too long: unknown in OLD; truncate in NEW.",
        ),
        (
            {"card": {"num_problems_left_out": 7}},
            "Not the same number of training problems left out as too long: 0 in OLD; 7 in NEW.",
        ),
        ({"card": {"commit": "fedcba"}}, "Not the same commit: 0123abcdef in OLD; fedcba in NEW."),
        (
            {"card": {"resumed_at_step": 4}},
            "NEW was resumed after step 4: its costs do not include work done twice.",
        ),
        ({"card": {"status": "failed"}}, "NEW did not finish (status: failed)"),
    ],
)
def test_what_makes_runs_less_comparable_is_named(tmp_path, change, note):
    old = make_run(tmp_path / "old", straight(0.1, 0.3))
    new = make_run(tmp_path / "new", straight(0.1, 0.3), method="seele", **change)
    notes = notes_of(old, new)
    expected = note.replace("OLD", old.as_posix()).replace("NEW", new.as_posix())
    assert any(each.startswith(expected) for each in notes), notes


def test_runs_are_known_to_begin_alike_by_contents_where_all_have_recorded_them(tmp_path):
    def notes(one: dict, two: dict, **settings) -> list[str]:
        old = make_run(tmp_path / f"old{len([*tmp_path.iterdir()])}", straight(0.1, 0.3), card=one)
        place = tmp_path / f"new{len([*tmp_path.iterdir()])}"
        new = make_run(place, straight(0.1, 0.3), method="seele", card=two, settings=settings)
        said = [each for each in notes_of(old, new) if each.startswith("Not the same")]
        return [each.replace(str(old), "OLD").replace(str(new), "NEW") for each in said]

    same = {"base_model": 64 * "a", "train_files": 64 * "b", "val_files": 64 * "c"}
    moved = {"actor_rollout_ref.model.path": "elsewhere/chains", "data.train_files": ["copy.parquet"]}
    assert notes({"inputs": same}, {"inputs": same}, **moved) == []
    assert len(notes({"inputs": same}, {}, **moved)) == 2, "an earlier release has recorded no contents"
    assert notes({"inputs": same}, {"inputs": same | {"base_model": 64 * "d", "val_files": None}}) == [
        "Not the same base model: models/chains (SHA-256 aaaaaaaa) in OLD; "
        "models/chains (SHA-256 dddddddd) in NEW."
    ]
    assert notes({"inputs": same}, {"inputs": same | {"val_files": 64 * "e"}}) == [
        'Not the same validation data: ["heldout.parquet"] (SHA-256 cccccccc) in OLD; '
        '["heldout.parquet"] (SHA-256 eeeeeeee) in NEW.'
    ]


def test_a_run_in_two_stages_began_with_the_base_model_of_the_first(tmp_path):
    stages = {"rl": {"steps": 10, "seconds": 20.0}, "sft": {"steps": 312, "seconds": 38.2}}
    settings = {"actor_rollout_ref.model.path": "RUN/sft/merged", "data.train_files": ["RUN/problems/rl"]}
    one = make_run(tmp_path / "one", straight(0.1, 0.3))
    two = make_run(
        tmp_path / "two", straight(0.1, 0.3), method="sft_rl", settings=settings, card={"stages": stages}
    )
    first = {"actor_rollout_ref.model.path": "models/chains", "data.train_files": ["RUN/problems/sft"]}
    (two / "sft").mkdir()
    (two / "sft/resolved.yaml").write_text(yaml.safe_dump(nested(first)))
    notes = notes_of(one, two)
    assert f"{two.as_posix()}: its sft stage took 312 steps and 38.2 s, which are not among" in "\n".join(
        notes
    )
    assert not any("Not the same" in note for note in notes)
    assert {run["model"] for run in json.loads(summary_text(compare([one, two])))["runs"]} == {
        "models/chains"
    }
    other = first | {"actor_rollout_ref.model.path": "models/other"}
    (two / "sft/resolved.yaml").write_text(yaml.safe_dump(nested(other)))
    assert any(note.startswith("Not the same base model") for note in notes_of(one, two))


def test_runs_in_two_stages_are_compared_by_their_problems(tmp_path):
    def notes(**changes) -> list[str]:
        folder = tmp_path / f"{len([*tmp_path.iterdir()])}"
        settings = {
            "data.train_max_samples": 500,
            "seele.sft.train_files": ["first.parquet"],
            "seele.sft.epochs": 3,
        }
        runs = []
        for seed, changed in enumerate(({}, changes)):
            # Each run has its own copies of the problems that a stage trains on.
            copies = {"data.train_files": [f"{folder}/{seed}/problems/rl/0.parquet"]}
            made = make_run(
                folder / f"{seed}",
                straight(0.1, 0.3),
                method="sft_rl",
                seed=seed,
                settings=settings | copies | changed.get("settings", {}),
                card={"inputs": {"base_model": 64 * "a", "train_files": None, "sft_train_files": 64 * "b"}}
                | changed.get("card", {}),
            )
            (made / "sft").mkdir()
            first = {"actor_rollout_ref.model.path": "models/chains"}
            (made / "sft/resolved.yaml").write_text(yaml.safe_dump(nested(first)))
            runs.append(made)
        said = [each.replace(f"{folder}/", "") for each in notes_of(*runs)]
        return [each for each in said if each.startswith(("Not the same", "1:"))]

    # Killed in the second stage: its card does not have the stages yet.
    spent = "1: its steps and seconds do not include its sft stage; its tokens and FLOPs are those of both"
    assert notes() == [f"{spent} stages."]
    moved = {"seele.sft.train_files": ["elsewhere/first.parquet"]}
    assert notes(settings=moved) == notes(), "the files have the same digest"
    other = {"inputs": {"base_model": 64 * "a", "sft_train_files": 64 * "c"}}
    assert notes(card=other)[0] == (
        'Not the same data of the first stage: ["first.parquet"] (SHA-256 bbbbbbbb) in 0; '
        '["first.parquet"] (SHA-256 cccccccc) in 1.'
    )
    assert notes(settings={"data.train_max_samples": 100})[0] == (
        "Not the same number of training problems: 500 in 0; 100 in 1."
    )


def test_a_run_that_begins_late_has_spent_more_than_it_says(tmp_path):
    run = make_run(tmp_path / "run", straight(0.1, 0.3))
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[4:]))
    assert f"{run.as_posix()} begins with step 4: its seconds do not include earlier steps." in notes_of(run)


# What is written


def test_the_same_runs_give_the_same_bytes(runs):
    first, second = (build_files(compare(runs)) for _ in range(2))
    for name in ("summary.json", "comparison.md", "index.html"):
        assert first[name] == second[name]


def test_the_summary_is_json_with_the_conditions_and_the_numbers(runs):
    summary = json.loads(summary_text(compare(runs)))
    assert list(summary) == ["reference", "interval", "runs", "results", "practice", "notes"]
    run = summary["runs"][0]
    assert (run["run"], run["arm"], run["seed"]) == (runs[0].as_posix(), "grpo", 0)
    assert (run["commit"], run["model"], run["train_files"]) == (
        "0123abcdef",
        "models/chains",
        ["train.parquet"],
    )
    assert run["spent"]["tokens_generated"] == 1000
    arm = summary["results"][SPLIT]["steps"]["arms"]["seele"]
    assert arm["difference"]["by_seed"] == pytest.approx({"0": 0.1, "1": 0.2, "2": 0.3})
    assert list(arm["cost_of_accuracy"]) == ["of_mean_curve", "by_seed", "num_reached", "mean", "interval_95"]


def test_an_arms_interval_does_not_depend_on_the_other_arms(runs):
    alone = result_of(compare([run for run in runs if "seele" in run.name])).arms["seele"]
    assert result_of(compare(runs)).arms["seele"].accuracy == alone.accuracy


def test_the_page_refers_to_every_figure_and_closes_every_element(runs):
    files = build_files(compare(runs))
    page = files["index.html"].decode()
    images = {name for name in files if name.endswith(".png")}
    assert set(re.findall(r'src="([^"]+)"', page)) == images
    assert images == {
        f"accuracy_{cost}.png" for cost in COSTS if cost not in ("flops", "tokens_teacher_forced")
    }
    assert all(files[name].startswith(b"\x89PNG") for name in images)
    open_elements = []
    for end, tag in re.findall(r"<(/?)([a-z0-9]+)[^>]*>", page):
        if end:
            assert open_elements.pop() == tag
        elif tag not in VOID:
            open_elements.append(tag)
    assert open_elements == []


def test_names_are_shown_as_text_and_break_no_table(tmp_path):
    run = make_run(tmp_path / "run", straight(0.1, 0.3), splits=("<b>|$x",))
    files = build_files(compare([run], labels=["run=<i>|$y"], costs=["steps"]))
    page, tables = files["index.html"].decode(), files["comparison.md"].decode()
    assert "<b>" not in page and "<i>" not in page
    assert "&lt;i&gt;|$y" in page
    cells = [line.replace("\\|", "").count("|") for line in tables.splitlines() if line.startswith("|")]
    # Four tables of 6, 6, 7 and 15 columns: head, rule and a row each.
    assert cells == [7] * 6 + [8] * 3 + [16] * 3


def test_what_arms_practised_under_hints_is_a_table_of_means_over_seeds(tmp_path):
    # Six steps: the last third is 5 and 6. Only step 5 of seed 0 has reliance, and grpo has no hint.
    def metrics(seed):
        return lambda step: (
            {"starts/question": 0.125 * (seed + step - 4)}
            | ({"hints/reliance": 0.25} if (seed, step) == (0, 5) else {})
        )

    folders = [make_run(tmp_path / "grpo", straight(0.1, 0.3, steps=6, every=3))]
    assert "practice" not in build_files(compare(folders))["comparison.md"].decode().lower()
    for seed in (0, 1):
        accuracies = straight(0.1, 0.3, steps=6, every=3)
        settings = {"method": "seele", "seed": seed, "metrics": metrics(seed)}
        folders.append(make_run(tmp_path / f"seele-{seed}", accuracies, **settings))
    files = build_files(compare(folders))
    text = files["comparison.md"].decode()
    assert "| arm | hint reliance, nats a token | rollouts without a hint |\n" in text
    assert "| grpo | - | - |\n| seele | 0.250 | 25.0 % |\n" in text
    assert "<h2>Practice under hints</h2>" in files["index.html"].decode()
    means = json.loads(files["summary.json"])["practice"]
    assert means == {"grpo": {}, "seele": {"hints/reliance": 0.25, "starts/question": 0.25}}


def test_a_seed_is_a_name_and_no_amount(tmp_path):
    run = make_run(tmp_path / "run", straight(0.1, 0.3), seed=12345)
    assert "| 12345 | 10 |" in build_files(compare([run]))["comparison.md"].decode()


def test_a_page_without_anything_to_note_has_no_notes(runs):
    page = build_files(compare(runs, costs=["steps"]))["index.html"].decode()
    assert 'class="notes"' not in page


def legend_of(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_figure_has_a_line_for_each_arm_and_says_what_its_band_is(runs, tmp_path):
    two = [
        make_run(tmp_path / f"luffy-{i}", straight(0.1, 0.2 + i / 10), method="luffy", seed=i) for i in (0, 1)
    ]
    one = make_run(tmp_path / "uft", straight(0.1, 0.3), method="uft")
    figure = accuracy_against(compare([*runs, *two, one]), "steps")
    assert legend_of(figure) == [
        "grpo: 3 seeds, 95 % interval",
        "seele: 3 seeds, 95 % interval",
        "luffy: 2 seeds, smallest to largest",
        "uft: 1 seed",
        "common budget",
    ]
    (axes,) = figure.axes
    assert len(axes.lines) == 5
    assert len(axes.collections) == 3
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.1, 0.25, 0.4])
    # Half the way, 0.15 and 0.2.
    edges = axes.collections[2].get_paths()[0].vertices
    assert {round(y, 6) for x, y in edges if x == 5.0} == {0.15, 0.2}


def test_a_line_ends_with_the_first_of_its_seeds(tmp_path):
    folders = [
        make_run(tmp_path / f"{seed}", straight(0.1, 0.3, steps=steps), seed=seed)
        for seed, steps in ((0, 10), (1, 20))
    ]
    (axes,) = accuracy_against(compare(folders), "steps").axes
    assert axes.lines[0].get_xdata().tolist() == [0, 5, 10]


def test_every_split_has_a_panel_and_the_legend_names_each_arm_once(tmp_path):
    run = make_run(tmp_path / "run", straight(0.1, 0.3), splits=("a", "b", "c"))
    figure = accuracy_against(compare([run]), "seconds")
    assert [axes.get_title() for axes in figure.axes if axes.get_visible()] == ["a", "b", "c"]
    assert len(figure.axes) == 4
    assert legend_of(figure) == ["grpo: 1 seed", "common budget"]


@pytest.mark.parametrize("accuracies", [{5: 0.3}, {0: 0.1, 5: 0.3}])
def test_validations_are_marked(tmp_path, accuracies):
    figure = accuracy_against(compare([make_run(tmp_path / "run", accuracies)]), "steps")
    line = figure.axes[0].lines[0]
    assert line.get_marker() == "o" and line.get_xdata().tolist() == list(accuracies)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (14.966, "14.97"),
        (1250, "1250"),
        (9999.6, "10 k"),
        (12_346, "12.35 k"),
        (1.25e6, "1.25 M"),
        (8.6e19, "86 E"),
        (4.2e24, "4200 Z"),
    ],
)
def test_costs_are_written_in_four_digits(value, text):
    assert amount(value) == text


# The command


def invoke(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def test_the_command_writes_everything_and_prints_the_tables(runs, tmp_path):
    result = invoke(*runs, "--out", tmp_path / "deep" / "out", "--cost", "steps", "--split", SPLIT)
    assert result.exit_code == 0, result.output
    out = tmp_path / "deep" / "out"
    names = {"accuracy_steps.png", "summary.json", "comparison.md", "index.html"}
    assert {path.name for path in out.iterdir()} == names
    assert result.stdout == (out / "comparison.md").read_text()
    assert result.stderr == f"written to {out / 'index.html'}\n"


def test_the_command_prints_the_summary_on_request_and_needs_no_folder(runs):
    result = invoke(*runs, "--json", "--reference", "seele", "--accuracy", "0.25")
    summary = json.loads(result.output)
    assert summary["reference"] == "seele"
    assert {found["accuracy"] for found in summary["results"][SPLIT].values()} == {0.25}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--reference", "sele"], r"--reference sele: no such arm; the runs' arms are \['grpo', 'seele'\]"),
        (["--cost", "money"], r"--cost money: expected one of \['steps', "),
        (["--split", "gsm8k"], rf"--split gsm8k: no run was validated on it; expected one of \['{SPLIT}'\]"),
        (["--accuracy", "1.5"], r"--accuracy: expected a number in \[0, 1\], got 1\.5"),
        (["--accuracy", "nan"], "--accuracy: expected a number"),
        (["--cost", "flops"], "these runs cannot be compared by any cost: flops is skipped"),
        (["--label", "nobody=x"], "--label nobody=x: expected RUN=NAME"),
        (["--by", "seele.none"], "--by seele.none: no run has such a setting"),
    ],
)
def test_the_command_refuses_what_is_not_allowed_and_writes_nothing(runs, tmp_path, options, message):
    result = invoke(*runs, *options, "--out", tmp_path / "out")
    assert isinstance(result.exception, ConfigError)
    assert re.search(message, str(result.exception)), result.exception
    assert not (tmp_path / "out").exists()


def test_the_command_refuses_a_file_as_folder_before_it_reads_anything(tmp_path):
    (tmp_path / "taken").touch()
    result = invoke(tmp_path / "absent", "--out", tmp_path / "taken")
    assert isinstance(result.exception, ConfigError)
    assert "is a file" in str(result.exception)


# The documentation


def test_the_documented_example_is_what_the_command_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in range(5):
        slow = {0: 0.06, 10: 0.20 + 0.01 * seed, 20: 0.30 + 0.02 * seed}
        fast = {0: 0.06, 10: 0.24 + 0.02 * seed, 20: 0.40 + 0.01 * seed}
        make_run(Path(f"runs/grpo-{seed}"), slow, seed=seed, tokens=60_000)
        make_run(Path(f"runs/seele-{seed}"), fast, seed=seed, tokens=80_000, method="seele")
    command, output = re.findall(r"```(?:bash|text)\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    arguments = command.removeprefix("seele compare runs/grpo-* runs/seele-* ").split()
    result = invoke(*sorted(Path("runs").glob("*")), *arguments)
    assert result.exit_code == 0, result.output
    assert result.output == output


def test_every_option_is_documented():
    from typer.main import get_command

    (parameters,) = (get_command(app).commands["compare"].params,)
    options = {option for each in parameters for option in each.opts if option.startswith("--")}
    documented = set(re.findall(r"^\| `(--[a-z]+)", DOCUMENT.read_text(), flags=re.MULTILINE))
    assert options - {"--help"} == documented


def test_every_cost_is_documented():
    documented = re.findall(r"^\| `([a-z_]+)` \|", DOCUMENT.read_text(), flags=re.MULTILINE)
    assert documented == list(COSTS)
