"""The report of a run folder: what it shows, and that no damaged or missing part breaks it."""

import json
import math
import random
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from typer.testing import CliRunner

from helpers.controllers import end_visit, next_hint, observe
from seele.errors import CheckpointError, ConfigError
from seele.hints import build_controller
from seele.hints.beliefs import Beliefs
from seele.hints.conditions import with_conditions
from seele.report.browser.run import ViewedRun
from seele.report.build import build_report, summarise
from seele.report.curves import FittedProblem, choose_problems, fitted_problems, saved_controller
from seele.report.figures import (
    FIGURES,
    accuracy_against_tokens,
    accuracy_per_round,
    draw_figures,
    fitted_curves,
    learning_signal,
    phase_seconds,
)
from seele.report.page import MAX_SHOWN_CHARS, choose_examples, problem_page, render_page
from seele.report.rollout_lines import ShownRollout
from seele.report.run_folder import read_run
from seele.report.series import Series, by_tokens, last_third, moving_mean, token_totals

VOID = {"img", "meta", "link"}
"""Elements without an end tag."""

NUM_STEPS = 60
ROUNDS = 4


def metrics_line(step, draw):
    """One step of a made-up run whose model learns."""
    if step == 0:
        return {"step": 0, "val/accuracy/heldout": 0.12, "val/accuracy/harder": 0.02}
    progress = step / NUM_STEPS
    noise = [draw.gauss(0, 0.04) for _ in range(ROUNDS)]
    ratio = 0.8 - 0.5 * progress
    line = {
        "step": step,
        "tokens/generated": 20_000,
        "tokens/generated_total": 20_000 * step,
        "tokens/prefilled": 5_000,
        "tokens/trained": 20_000,
        "accuracy/mean": 0.55 + noise[0],
        "hint_ratio/mean": ratio,
        "hint_ratio/p10": max(0.0, ratio - 0.3),
        "hint_ratio/p50": ratio,
        "hint_ratio/p90": min(1.0, ratio + 0.2),
        "rounds/all_same_share": 0.35 + noise[1] / 2,
        "rounds/mean_a_1_minus_a": 0.13 + noise[2] / 4,
        "controller/failed_fits": 1,
        "timing_s/step": 9.0 + draw.random(),
        "timing_s/gen": 4.0,
        "timing_s/update_actor": 3.0,
        "timing_s/reward": 0.5,
        "timing_s/gen/slowest": 3.9,
        "grad_norm": math.nan,
    }
    for index, shift in enumerate((0.25 * (1 - progress), 0.1, 0.02, 0.0)):
        line[f"accuracy/round_{index}"] = 0.5 + shift + noise[index]
    if step % 10 == 0:
        line["val/accuracy/heldout"] = 0.12 + 0.5 * progress
        line["val/accuracy/harder"] = 0.02 + 0.2 * progress
    return line


def rollout_line(index, **changes):
    return {
        "step": NUM_STEPS,
        "instance_id": f"chains/train/{index}",
        "data_source": "chains",
        "question": f"Compute {index}+1*3 modulo 10.",
        "answer": "4",
        "hint_ratio": 0.25 * (index % 4),
        "hint_steps": index % 4,
        "num_steps": 4,
        "hint": "1 + 2 = 3\n" * (index % 4),
        "round": index % ROUNDS,
        "rollout": 0,
        "text": "3 * 4 = 2\nso \\boxed{2}",
        "reward": float(index % 2),
        "reason": "correct" if index % 2 else "wrong",
        "finish": "stop",
        "advantage": None,
    } | changes


def controller_state():
    """Ten problems from easy to hard, in the form in which the paper's controller saves them."""
    return {
        "controller": "paper",
        "version": 1,
        "counters": {},
        "stored_rates": {},
        "visits": {},
        "last_fits": {
            f"chains/train/{i}": {
                "curve": [8.0 + i, -0.1 * i, 0.02],
                "observations": [[0.75, 8, 8], [0.5, 6, 8], [0.25, min(8, 10 - i), 8], [0.25, 1, 8]],
            }
            for i in range(1, 11)
        },
    }


def score_line(**changes):
    return {
        "benchmark": "heldout",
        "temperature": 0.0,
        "problems": 512,
        "samples": 1,
        "accuracy": 0.618,
        "interval_95": [0.575, 0.659],
        "mean_response_tokens": 41.5,
        "truncated_share": 0.01,
        "no_answer_share": 0.03,
        "ungraded_share": 0.0,
        "template": "plain",
    } | changes


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def run(tmp_path):
    """A finished run with every part."""
    folder = tmp_path / "quick run"
    draw = random.Random(0)
    write_lines(folder / "metrics.jsonl", [metrics_line(step, draw) for step in range(NUM_STEPS + 1)])
    settings = {"seele": {"method": "seele", "hints": {"target_accuracy": 0.5}}}
    (folder / "resolved.yaml").write_text(yaml.safe_dump(settings))
    card = {
        "commit": "0123abc",
        "versions": {"verl": "0.9.1", "torch": "2.13.0"},
        "hardware": {"cpu": "2 cores", "gpus": []},
        "seeds": {"run": 0},
        "tokens": {"generated": 1_200_000.0, "trained": 310_000},
        "seconds": 40.5,
    }
    (folder / "run_card.json").write_text(json.dumps(card))
    write_lines(folder / "rollouts" / "step_9.jsonl", [rollout_line(0, text="of an earlier step")])
    write_lines(folder / f"rollouts/step_{NUM_STEPS}.jsonl", [rollout_line(i) for i in range(16)])
    for step, state in ((50, {}), (NUM_STEPS, controller_state())):
        saved = folder / f"global_step_{step}" / "seele" / "controller.json"
        saved.parent.mkdir(parents=True)
        saved.write_text(json.dumps(state))
    evaluation = {
        "conditions": {"model": "merged", "weights_sha256": {"model.safetensors": "ab12"}},
        "scores": [score_line(), score_line(temperature=1.0, samples=4, accuracy=0.5, no_answer_share=None)],
    }
    (folder / "eval").mkdir()
    (folder / "eval" / "scores.json").write_text(json.dumps(evaluation))
    return folder


def page_of(folder):
    """The page alone: figures take most of a report's time."""
    run = read_run(folder)
    return render_page(run, summarise(run), FIGURES)


def test_a_finished_run_has_every_figure_and_refers_to_each_of_them(run):
    files = build_report(run)
    images = {name for name in files if name.endswith(".png")}
    assert images == {f"{name}.png" for name in ("accuracy", "rounds", "hints", "curves", "signal", "phases")}
    assert all(files[name].startswith(b"\x89PNG") for name in images)
    assert set(re.findall(r'src="([^"]+)"', files["index.html"].decode())) == images


def test_a_finished_run_has_nothing_to_note(run):
    assert summarise(read_run(run))["notes"] == []


def test_the_page_states_accuracies_intervals_and_the_run_card(run):
    page = page_of(run)
    for text in (
        "12.0 % → 62.0 %",
        "57.5 % to 65.9 %",
        "T = 1, 4 samples",
        "verl: 0.9.1, torch: 2.13.0",
        "generated: 1,200,000, trained: 310,000<",
        "40.5<",
        "0123abc",
        "mean accuracy of rounds 2 to 4, last third of the steps",
    ):
        assert text in page, text


@pytest.mark.parametrize(
    ("files", "order"),
    [(["a/heldout.parquet", "a/harder.parquet"], ["heldout", "harder"]), (None, ["harder", "heldout"])],
)
def test_the_split_of_the_first_validation_file_comes_first(run, files, order):
    # As a run logs them: in alphabetical order.
    row = {"step": 1, "val/accuracy/harder": 0.1, "val/accuracy/heldout": 0.2}
    write_lines(run / "metrics.jsonl", [row])
    (run / "resolved.yaml").write_text(yaml.safe_dump({"data": {"val_files": files}}))
    assert re.findall(r"<span>(\w+), no hint</span>", page_of(run)) == order
    labels = [text.get_text() for text in accuracy_against_tokens(read_run(run)).legends[0].get_texts()]
    assert labels == [f"{name}, no hint" for name in order]


def test_the_summary_holds_milestones_tokens_and_the_last_third(run):
    summary = summarise(read_run(run))
    heldout = summary["unhinted_accuracy"]["heldout"]
    assert heldout["first"] == {"step": 0, "accuracy": 0.12, "generated_tokens": 0}
    assert heldout["last"]["accuracy"] == pytest.approx(0.62)
    assert heldout["best"]["step"] == NUM_STEPS
    assert summary["tokens"] == {"generated": 1_200_000, "prefilled": 300_000, "trained": 1_200_000}
    assert summary["last_third"]["first_step"] == 41
    assert 0.45 < summary["last_third"]["accuracy_of_rounds_2_and_later"] < 0.65
    assert summary["failed_fits"] == 1
    assert summary["seconds"]["phases"] == {"gen": 240.0, "update_actor": 180.0, "reward": 30.0}


def test_the_best_validation_is_the_earliest_of_equals(run):
    write_lines(
        run / "metrics.jsonl", [{"step": s, "val/accuracy/a": v} for s, v in ((0, 0.1), (5, 0.4), (9, 0.4))]
    )
    assert summarise(read_run(run))["unhinted_accuracy"]["a"]["best"]["step"] == 5


@pytest.mark.parametrize("field", ["question", "hint", "text", "answer", "instance_id", "reason", "finish"])
def test_text_of_a_rollout_is_shown_as_text_and_never_as_markup(run, field):
    write_lines(
        run / f"rollouts/step_{NUM_STEPS}.jsonl", [rollout_line(1, **{field: "<script>alert('1')</script>&"})]
    )
    page = page_of(run)
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;" in page


def test_names_of_files_splits_and_benchmarks_are_escaped_and_are_no_mathematics(run):
    write_lines(run / "metrics.jsonl", [{"step": 1, "val/accuracy/<b>$x": 0.5, "timing_s/$gen": 1.0}])
    state = controller_state()
    state["last_fits"] = {f"$a_{{<i>{name}": fit for name, fit in state["last_fits"].items()}
    (run / f"global_step_{NUM_STEPS}/seele/controller.json").write_text(json.dumps(state))
    (run / "eval/scores.json").write_text(json.dumps({"scores": [score_line(benchmark="<b>bench")]}))
    (run / "resolved.yaml").write_text(yaml.safe_dump({"<b>key": "<b>value"}))
    (run / "run_card.json").write_text(json.dumps({"<b>commit": ["<b>", True, 7]}))
    page = build_report(run.rename(run.parent / "<b>a b'\"=${c}<script>"))["index.html"].decode()
    assert page.count("&lt;b&gt;bench") == 1
    assert "&lt;b&gt;a b&#39;&#34;=${c}&lt;script&gt;" in page and "<script" not in page
    # The numbers of the tiles are the only bold elements.
    assert page.count("<b>") == page.count('class="tile"')


ATTACKS = (
    "</pre><script>document.title = 'owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\"><svg onload=document.title='owned'>",
    "<iframe src='https://elsewhere.example/'></iframe>",
    "<link rel=stylesheet href='https://elsewhere.example/a.css'>",
    "<meta http-equiv=refresh content='0;url=https://elsewhere.example'>",
)


def test_a_hostile_run_does_nothing_in_a_browser(run, tmp_path, visit):
    """Every text of a rollout and of the card is an attack. A browser shows the pages, runs nothing of them
    and asks for nothing but their own files.
    """
    fields = ("question", "hint", "text", "answer", "instance_id", "reason", "finish")
    attacks = [
        rollout_line(i, **dict.fromkeys(fields, attack), reward_extra={attack: attack})
        for i, attack in enumerate(ATTACKS)
    ]
    write_lines(run / f"rollouts/step_{NUM_STEPS}.jsonl", attacks)
    (run / "run_card.json").write_text(json.dumps(dict.fromkeys(ATTACKS, ATTACKS[0])))
    out = tmp_path / "report"
    out.mkdir()
    for name, content in build_report(run).items():
        (out / name).write_bytes(content)
    for page in ("index.html", "rollouts.html"):
        shown, log = visit(f"file://{out}/{page}")
        title = re.search(r"<title>(.*?)</title>", shown)[1]
        assert title == re.search(r"<title>(.*?)</title>", (out / page).read_text())[1] != "owned"
        assert "owned" in shown and "<script" not in shown and "<iframe" not in shown
        assert "elsewhere.example" not in log


def test_every_element_that_is_opened_is_closed_in_its_place(run):
    open_elements = []
    for end, tag in re.findall(r"<(/?)([a-z0-9]+)[^>]*>", page_of(run)):
        if end:
            assert open_elements.pop() == tag
        elif tag not in VOID:
            open_elements.append(tag)
    assert open_elements == []


def test_the_hint_is_marked_and_stands_before_the_generated_text(run):
    write_lines(run / f"rollouts/step_{NUM_STEPS}.jsonl", [rollout_line(1, hint="HINT ", text="REST")])
    assert "<pre><mark>HINT </mark>REST</pre>" in page_of(run)
    hints = {"placement": "user", "request": "{question} A {hint} B"}
    (run / "resolved.yaml").write_text(yaml.safe_dump({"seele": {"hints": hints}}))
    assert " A <mark>HINT </mark> B</pre>\n\n<pre>REST</pre>" in page_of(run)


def test_half_a_surrogate_pair_is_shown_as_a_question_mark(run):
    write_lines(run / f"rollouts/step_{NUM_STEPS}.jsonl", [rollout_line(1, hint="odd\ud800", text="\ud800")])
    assert b"<pre><mark>odd?</mark>?</pre>" in page_of(run).encode()


def test_a_rollout_without_hint_has_no_mark(run):
    write_lines(run / f"rollouts/step_{NUM_STEPS}.jsonl", [rollout_line(1, hint="", text="ALONE")])
    assert "<pre>ALONE</pre>" in page_of(run)


def test_a_very_long_text_keeps_its_ends_and_says_what_is_left_out(run):
    text = "A" * MAX_SHOWN_CHARS + "B" * 10
    write_lines(run / f"rollouts/step_{NUM_STEPS}.jsonl", [rollout_line(1, text=text)])
    page = page_of(run)
    assert "[... 10 characters left out ...]" in page
    assert "B" * 10 in page


REMOVABLE = [
    ("metrics.jsonl", "metrics.jsonl is missing"),
    ("resolved.yaml", "resolved.yaml is missing"),
    ("run_card.json", "run_card.json is missing"),
    ("rollouts", "There are no rollouts"),
    ("eval", "eval/scores.json is missing"),
    (f"global_step_{NUM_STEPS}", None),
]


@pytest.mark.parametrize(("part", "note"), REMOVABLE)
def test_a_missing_part_is_said_on_the_page(run, part, note):
    (run / part).rename(run.parent / "elsewhere")
    page = page_of(run)
    assert note is None or note in page


def test_the_newest_checkpoint_is_the_one_whose_curves_are_drawn(run):
    assert len(fitted_problems(read_run(run))) == 10
    (run / f"global_step_{NUM_STEPS}").rename(run.parent / "elsewhere")
    assert fitted_problems(read_run(run)) == []


def test_a_run_without_any_checkpoint_says_so(run):
    for step in (50, NUM_STEPS):
        (run / f"global_step_{step}").rename(run.parent / f"elsewhere_{step}")
    assert "There is no checkpoint with a hint controller" in page_of(run)


@pytest.mark.parametrize("mark", ["resolved.yaml", "run_card.json", "metrics.jsonl"])
def test_a_run_that_died_at_once_still_has_a_report(tmp_path, mark):
    (tmp_path / mark).write_text("")
    files = build_report(tmp_path)
    assert set(files) == {"summary.json", "index.html"}
    assert "none" in files["index.html"].decode()


def test_what_nobody_generated_is_no_example(run):
    lines = [rollout_line(1, text="GENERATED", origin="policy"), rollout_line(3, text="OLDER DUMP")]
    given = [rollout_line(i, text="GIVEN", origin=origin) for i, origin in ((5, "trace"), (7, "replay"))]
    write_lines(run / f"rollouts/step_{NUM_STEPS}.jsonl", lines + given)
    page = page_of(run)
    assert "GENERATED" in page and "OLDER DUMP" in page and "GIVEN" not in page


def test_a_run_that_generates_nothing_is_drawn_over_its_steps(run):
    def axis():
        return accuracy_against_tokens(read_run(run)).axes[0]

    assert axis().get_xlabel() == "generated tokens"
    write_lines(run / "metrics.jsonl", [{"step": s, "val/accuracy/a": s / 10} for s in (0, 5, 9)])
    assert axis().get_xlabel() == "step"
    assert list(axis().lines[0].get_xdata()) == [0, 5, 9]


@pytest.mark.parametrize(
    ("hint_ratio", "label"), [(0.0, "training rollouts"), (0.5, "training rollouts, hinted")]
)
def test_training_rollouts_are_called_hinted_where_they_are(run, hint_ratio, label):
    line = {"step": 1, "tokens/generated": 5, "accuracy/mean": 0.5, "reward/mean": 0.6}
    write_lines(run / "metrics.jsonl", [line | {"hint_ratio/mean": hint_ratio}])
    figure = accuracy_against_tokens(read_run(run))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [label]
    summary = summarise(read_run(run))
    assert (summary["accuracy"]["last"], summary["reward"]["last"]) == (0.5, 0.6)


def test_a_legend_of_long_names_is_not_cut_off(run):
    names = [f"a long name of a data set/split {number}" for number in range(4)]
    write_lines(run / "metrics.jsonl", [{"step": 1} | {f"val/accuracy/{name}": 0.5 for name in names}])
    figure = accuracy_against_tokens(read_run(run))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    drawn = figure.legends[0].get_window_extent(canvas.get_renderer())
    assert drawn.x0 >= 0 and drawn.x1 <= figure.bbox.width


def test_a_signal_above_a_quarter_is_not_cut_off(run):
    line = {"step": 1, "rounds/mean_a_1_minus_a": 0.4, "rounds/all_same_share": 0.1}
    write_lines(run / "metrics.jsonl", [line])
    assert learning_signal(read_run(run)).axes[0].get_ylim()[1] > 0.4


def test_the_caption_of_the_curves_says_of_which_steps_they_are(run):
    (run / f"global_step_{NUM_STEPS}").rename(run / "global_step_55")
    page = page_of(run)
    assert "as saved after step 55;" in page and f"the rounds of step {NUM_STEPS}, numbered." in page
    shutil.rmtree(run / "rollouts")
    page = page_of(run)
    assert "Points: the rounds behind the curve, numbered." in page and "step None" not in page


def test_a_cut_off_last_line_is_left_out_and_noted(run):
    whole = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(whole[:-40])
    folder = read_run(run)
    assert folder.metrics[-1]["step"] == NUM_STEPS - 1
    assert folder.notes == (f"metrics.jsonl, line {NUM_STEPS + 1}, is cut off or not JSON and was skipped.",)


@pytest.mark.parametrize(
    ("file", "content", "note"),
    [
        ("metrics.jsonl", '{"step": 1}\n[]\n\n{"a": 2}\n', "line 2, is not a JSON object"),
        ("metrics.jsonl", '{"step": 1}\n[]\n\n{"a": 2}\n', "a line without a step"),
        ("run_card.json", "{", "run_card.json is not JSON"),
        ("run_card.json", "[]", "run_card.json is not a JSON object"),
        ("resolved.yaml", "a: [", "resolved.yaml is not YAML"),
        ("resolved.yaml", "", "resolved.yaml holds no settings"),
        ("eval/scores.json", '{"scores": [{"benchmark": "a"}]}', "eval/scores.json holds an entry"),
        (f"rollouts/step_{NUM_STEPS}.jsonl", '{"step": 60}\n', f"step_{NUM_STEPS}.jsonl holds an entry"),
        (f"rollouts/step_{NUM_STEPS}.jsonl", "", f"step_{NUM_STEPS}.jsonl holds no rollouts of the policy"),
    ],
)
def test_a_damaged_part_is_noted_and_the_rest_is_shown(run, file, content, note):
    (run / file).write_text(content)
    folder = read_run(run)
    assert any(note in line for line in folder.notes), folder.notes
    assert "Run card" in page_of(run)


@pytest.mark.parametrize("scores", [{}, {"scores": "none"}, {"scores": [3]}, {"conditions": 1, "scores": []}])
def test_scores_of_another_shape_are_no_scores(run, scores):
    (run / "eval/scores.json").write_text(json.dumps(scores))
    folder = read_run(run)
    assert (folder.scores, folder.conditions) == ((), {})


def test_settings_that_are_no_mapping_are_no_settings(run):
    (run / "resolved.yaml").write_text("just text")
    assert read_run(run).setting("seele.method") is None


def test_a_resumed_run_counts_each_step_once_with_its_later_values(run):
    lines = [{"step": s, "val/accuracy/a": v} for s, v in ((1, 0.1), (2, 0.2), (3, 0.3), (2, 0.8), (3, 0.9))]
    write_lines(run / "metrics.jsonl", lines)
    folder = read_run(run)
    assert [row["val/accuracy/a"] for row in folder.metrics] == [0.1, 0.8, 0.9]
    assert any("2 steps appear twice" in note for note in folder.notes)


def test_numbers_that_are_not_finite_are_not_read(run):
    (run / "metrics.jsonl").write_text('{"step": 1, "a": NaN, "b": Infinity, "c": 2, "d": true, "e": "x"}\n')
    assert read_run(run).metrics == ({"step": 1.0, "c": 2.0},)


def test_a_run_without_hints_says_so_instead_of_drawing_a_flat_line(run):
    lines = [
        {"step": s, "hint_ratio/mean": 0.0, "accuracy/mean": 0.1, "accuracy/round_0": 0.1} for s in (1, 2)
    ]
    write_lines(run / "metrics.jsonl", lines)
    files = build_report(run)
    assert "hints.png" not in files
    assert "No hint was given in this run." in files["index.html"].decode()
    assert json.loads(files["summary.json"])["last_third"]["accuracy_of_rounds_2_and_later"] is None


def test_a_single_step_can_be_drawn(run):
    write_lines(run / "metrics.jsonl", [metrics_line(1, random.Random(0))])
    assert set(draw_figures(read_run(run))) == set(FIGURES)


def test_the_target_is_drawn_only_where_the_settings_name_one(run):
    def labels():
        return [text.get_text() for text in accuracy_per_round(read_run(run)).legends[0].get_texts()]

    assert labels()[0] == "target 0.5"
    settings = {"seele": {"hints": {"target_accuracy": 0.5, "controller": "none"}}}
    (run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    assert labels()[0] == "round 1"
    (run / "resolved.yaml").unlink()
    assert labels()[0] == "round 1"


def test_a_round_that_some_steps_lack_is_averaged_over_the_others(run):
    lines = [
        {"step": 1, "accuracy/round_0": 0.5},
        {"step": 2, "accuracy/round_0": 0.5, "accuracy/round_1": 0.25},
    ]
    write_lines(run / "metrics.jsonl", [*lines, {"step": 3, "accuracy/round_0": 0.75}])
    assert summarise(read_run(run))["last_third"]["accuracy_by_round"] == [0.75, None]


def test_phases_beyond_the_costliest_are_drawn_as_other(run):
    timings = {f"timing_s/phase{index}": 10.0 - index for index in range(9)}
    write_lines(run / "metrics.jsonl", [{"step": step, **timings} for step in (1, 2)])
    labels = [text.get_text() for text in phase_seconds(read_run(run)).legends[0].get_texts()]
    assert labels == [*(f"phase{index}" for index in range(7)), "other"]


def test_fewer_fitted_problems_than_panels_leave_no_empty_panel(run):
    state = controller_state()
    state["last_fits"] = dict(list(state["last_fits"].items())[:4])
    (run / f"global_step_{NUM_STEPS}/seele/controller.json").write_text(json.dumps(state))
    panels = fitted_curves(read_run(run)).axes
    assert [panel.get_visible() for panel in panels] == [True] * 4 + [False] * 2


@pytest.mark.parametrize("seconds", [30.0, 600.0, 90_000.0])
def test_durations_read_naturally(run, seconds):
    write_lines(run / "metrics.jsonl", [{"step": 1, "timing_s/step": seconds, "tokens/generated": 3e9}])
    page = page_of(run)
    assert {30.0: "30 s", 600.0: "10 min", 90_000.0: "25 h 00 min"}[seconds] in page
    assert "3 G" in page


def test_what_is_no_run_folder_is_refused_with_what_was_expected(tmp_path):
    with pytest.raises(CheckpointError, match=r"no such folder.*metrics\.jsonl"):
        read_run(tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"not a run folder.*found nothing"):
        read_run(tmp_path)
    for index in range(9):
        (tmp_path / f"file{index}").touch()
    with pytest.raises(CheckpointError, match=r"found file0, .*file7, \.\.\."):
        read_run(tmp_path)


def test_the_summary_counts_what_the_first_of_two_stages_spent(tmp_path):
    line = {"step": 1, "tokens/trained": 100, "tokens/trained_total": 67_100, "tokens/prefilled": 5}
    write_lines(tmp_path / "metrics.jsonl", [line, {"step": 2, "tokens/prefilled": 5}])
    assert summarise(read_run(tmp_path))["tokens"] == {"generated": 0, "prefilled": 10, "trained": 67_100}


def test_packed_tokens_are_shown_where_every_step_counted_them(tmp_path):
    names = ("trained", "trained_packed", "trained_informative")
    lines = [
        {"step": step} | {f"tokens/{name}_total": 100 * step // share for share, name in enumerate(names, 1)}
        for step in (1, 2)
    ]
    write_lines(tmp_path / "metrics.jsonl", lines)
    run = read_run(tmp_path)
    assert summarise(run)["tokens"] == {
        "generated": 0,
        "prefilled": 0,
        **{"trained": 200, "trained_packed": 100, "trained_informative": 66},
    }
    page = page_of(tmp_path)
    assert "<b>100</b><span>trained, packed<" in page
    assert "informative" not in page
    # A run that an older release began.
    del lines[0]["tokens/trained_packed_total"]
    write_lines(tmp_path / "metrics.jsonl", lines)
    assert "trained_packed" not in summarise(read_run(tmp_path))["tokens"]
    assert "trained, packed<" not in page_of(tmp_path)


def test_generated_tokens_come_from_the_runs_count_else_are_summed():
    assert token_totals([{"tokens/generated": 5}, {"tokens/generated": 5}], "generated") == [5, 10]
    resumed = [{"tokens/generated_total": 7, "tokens/generated": 5}, {"tokens/generated": 2}]
    assert token_totals(resumed, "generated") == [7, 9]
    metrics = [{"tokens/generated": 5}, {"tokens/generated": 5, "a": 1.0}]
    assert by_tokens(metrics, "a") == Series((10,), (1.0,))


def test_what_a_run_without_hints_lacks_is_not_on_its_page(run):
    dashed = re.compile("ashed: the accuracy that (it|the controller) aims at")
    told = ("mean hint ratio", "under their hints", "earlier visits")
    page = page_of(run)
    assert len(dashed.findall(page)) == 2 and all(text in page for text in told)
    (run / "resolved.yaml").write_text(yaml.safe_dump({"seele": {"hints": {"controller": "none"}}}))
    line = {"step": 1, "hint_ratio/mean": 0.0, "accuracy/round_0": 0.5, "val/accuracy/a": 0.25}
    write_lines(run / "metrics.jsonl", [line])
    page = page_of(run)
    assert not dashed.search(page) and not any(text in page for text in told)
    assert "<b>25.0 %</b><span>a, no hint<" in page


def test_the_last_values_of_rewards_are_listed_with_those_of_an_own_function(run):
    assert "No reward was logged." in page_of(run)
    lines = [{"step": 1, "reward/mean": 0.5, "reward/<i>length": 12.5}, {"step": 2, "reward/mean": 0.25}]
    write_lines(run / "metrics.jsonl", lines)
    page = page_of(run)
    cells = [("reward/&lt;i&gt;length", "12.5", "1"), ("reward/mean", "0.25", "2")]
    for name, value, step in cells:
        row = f'<td class="text">{name}</td><td class="number">{value}</td><td class="number">{step}</td>'
        assert row in page


def test_what_was_practised_under_hints_is_listed_where_the_run_has_it(run):
    assert "practised" not in page_of(run) and "hint reliance" not in page_of(run)
    lines = [
        {"step": 1, "starts/question": 0.25, "practised/last_third": 1.0, "hints/reliance": 0.5},
        {"step": 2, "starts/question": 0.5, "practised/last_third": 0.75},
        {"step": 3, "starts/question": 0.125, "practised/last_third": 0.5},
    ]
    write_lines(run / "metrics.jsonl", lines)
    page = page_of(run)
    rows = [
        ("hint reliance, nats a token", "0.500 (step 1)", "0.500 (step 1)", "-"),
        ("rollouts without a hint", "25.0 % (step 1)", "12.5 % (step 3)", "12.5 %"),
        ("last third practised", "100.0 % (step 1)", "50.0 % (step 3)", "50.0 %"),
    ]
    for name, *values in rows:
        cells = "".join(f'<td class="number">{value}</td>' for value in values)
        assert f'<td class="text">{name}</td>{cells}' in page
    assert "middle third" not in page


def test_the_last_third_is_rounded_up_and_leaves_out_what_was_before_training():
    metrics = [{"step": float(step)} for step in range(8)]
    assert [row["step"] for row in last_third(metrics)] == [5, 6, 7]
    assert list(last_third(metrics[:1])) == []


def test_a_moving_mean_averages_the_neighbours_that_exist():
    series = Series((1, 2, 3, 4), (0.0, 3.0, 6.0, 9.0))
    assert moving_mean(series, window=3).y == (1.5, 3.0, 6.0, 7.5)
    assert moving_mean(series, window=1) == series


def with_state(run, controller, rollouts=(), **hints):
    """The run as if its newest checkpoint held the controller's state."""
    state = json.loads(json.dumps(controller.state_dict()))
    settings = {"seele": {"hints": {"controller": controller.name, **hints}}}
    return replace(read_run(run), controller=state, settings=settings, rollouts=tuple(rollouts))


def test_the_state_that_the_papers_controller_saves_holds_the_curves_that_are_drawn(run):
    controller = build_controller("paper", rounds=2, rollouts_per_round=8, seed=0)
    for round_index, num_correct in enumerate((8, 3)):
        ratio = next_hint(controller, "p", round_index=round_index, legal_ratios=(0.0, 0.25, 0.5, 0.75))
        observe(controller, "p", hint_ratio=ratio, num_correct=num_correct, num_rollouts=8)
    end_visit(controller, "p")
    (fit,) = fitted_problems(with_state(run, controller))
    assert fit.instance_id == "p"
    assert [(number, accuracy) for number, _, accuracy in fit.observations] == [(1, 1.0), (2, 0.375)]
    assert fit.observations[0][1] == 0.75


def test_the_state_that_the_bayesian_controller_saves_holds_the_curves_that_are_drawn(run):
    controller = build_controller("bayes", rounds=2, rollouts_per_round=2, seed=0)
    for ratio, num_correct in ((0.75, 2), (0.25, 1)):
        observe(controller, "p", hint_ratio=ratio, num_correct=num_correct, num_rollouts=2)
    end_visit(controller, "p")
    # Two hints in the first round.
    seen = [(0, 0.75, 1.0), (0, 0.75, 1.0), (0, 0.5, 1.0), (1, 0.25, 1.0), (1, 0.25, 0.0)]
    template = rollouts_of(0.0)[0]
    lines = [
        replace(
            template,
            instance_id="p",
            round=number,
            hint_ratio=ratio,
            reward=reward,
            reason="correct" if reward else "wrong",
        )
        for number, ratio, reward in seen
    ]
    (fit,) = fitted_problems(
        with_state(run, controller, [*lines, replace(template, instance_id="never kept")])
    )
    assert (fit.instance_id, fit.observations) == ("p", ((1, 0.5, 1.0), (1, 0.75, 1.0), (2, 0.25, 0.5)))
    # Nothing has been learnt since, so the controller would say the same but for drift and population.
    assert fit.curve.accuracies[50] == pytest.approx(0.5, abs=0.2)
    assert list(fit.curve.accuracies) == sorted(fit.curve.accuracies)
    assert fitted_problems(with_state(run, controller)) == [], "a problem without rounds to show"


def test_only_the_curves_that_have_rounds_to_show_are_computed(run, monkeypatch):
    controller = build_controller("bayes", rounds=2, rollouts_per_round=2, seed=0)
    for name in "pqr":
        observe(controller, name, hint_ratio=0.5, num_correct=1, num_rollouts=2)
        end_visit(controller, name)
    computed = []
    curves = Beliefs.curves

    def counted(beliefs, *ids):
        found = curves(beliefs, *ids)
        computed.extend(curve.instance_id for curve in found)
        return found

    monkeypatch.setattr(Beliefs, "curves", counted)
    line = replace(rollouts_of(1.0)[0], instance_id="q")
    (fit,) = fitted_problems(with_state(run, controller, [line]))
    assert fit.instance_id == "q" and computed == ["q"]


@pytest.mark.parametrize("hints", [{"round_sizes": [4, 2, 1, 1]}, {"when": "until_success"}])
def test_a_controller_is_restored_with_the_size_of_its_first_round(run, hints):
    when = hints.get("when", "always")
    controller = with_conditions(
        build_controller("bayes", rounds=4, rollouts_per_round=4, probes=4), when=when
    )
    hints = hints | {
        "rounds": 4,
        "rollouts_per_prompt": 8,
        "settings": {"probes": 4},
        "of_another_release": 1,
    }
    assert saved_controller(with_state(run, controller, **hints)) is not None


@pytest.mark.parametrize(
    "state",
    [
        {"controller": "paper", "version": 1, "last_fits": 3},
        {"controller": "bayes", "version": 1, "beliefs": {"problems": {"rows": "?"}}},
        {"controller": "removed", "version": 1},
        {"controller": 3},
        {},
    ],
)
def test_a_state_that_cannot_be_restored_has_no_curves(run, state):
    (run / f"global_step_{NUM_STEPS}/seele/controller.json").write_text(json.dumps(state))
    assert fitted_problems(read_run(run)) == []
    assert fitted_curves(read_run(run)) is None


OWN = """
from seele.hints import SequentialController, nearest_legal
from seele.records import AccuracyCurve


class Mine(SequentialController):
    aims_at_target = False

    def __init__(self):
        self.seen = {}

    def next_hint_ratio(self, instance_id, *, round_index, legal_ratios):
        return nearest_legal(0.5, legal_ratios)

    def observe(self, instance_id, *, hint_ratio, num_correct, num_rollouts):
        self.seen[instance_id] = num_correct / num_rollouts

    def state_dict(self):
        return {**super().state_dict(), "seen": dict(self.seen)}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.seen = dict(state["seen"])

    def curves(self):
        return [
            AccuracyCurve(instance_id=name, hint_ratios=(0, 1), accuracies=(seen, 1), rounds=((0.5, seen),))
            for name, seen in self.seen.items()
        ]
"""


def test_a_controller_of_ones_own_says_what_its_curves_are_and_that_it_aims_at_nothing(run, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    name = f"{tmp_path}/mine.py:Mine"
    settings = {"seele": {"hints": {"controller": name, "target_accuracy": 0.5}}}
    (run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    saved = {"controller": "Mine", "version": 1, "seen": {"p": 0.25}}
    (run / f"global_step_{NUM_STEPS}/seele/controller.json").write_text(json.dumps(saved))
    read = partial(read_run, run, own_parts=True)
    (fit,) = fitted_problems(read())
    assert (fit.instance_id, fit.observations) == ("p", ((1, 0.5, 0.25),))
    assert [len(saved_controller(read()).curves([name])) for name in "pq"] == [1, 0]
    assert fitted_curves(read()).axes
    labels = [text.get_text() for text in accuracy_per_round(read()).legends[0].get_texts()]
    assert labels[0] == "round 1"
    (tmp_path / "mine.py").rename(tmp_path / "gone.py")
    assert fitted_problems(read()) == []


@pytest.mark.parametrize("named_by", ["settings", "state"])
def test_a_run_folder_executes_nothing_unless_asked(run, tmp_path, named_by):
    code = f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n"
    (tmp_path / "hostile.py").write_text(code)
    name = f"{tmp_path}/hostile.py:Any"
    settings = {"controller": name} if named_by == "settings" else {}
    (run / "resolved.yaml").write_text(
        yaml.safe_dump({"seele": {"hints": {**settings, "target_accuracy": 0.5}}})
    )
    state = run / f"global_step_{NUM_STEPS}/seele/controller.json"
    state.write_text(json.dumps({"controller": name, "version": 1}))
    page = build_report(run)["index.html"].decode()
    assert "--own-parts imports it" in page
    assert ViewedRun(run).curve("p") is None
    assert not (tmp_path / "ran").exists()
    ViewedRun(run, own_parts=True).curve("p")
    assert (tmp_path / "ran").exists()


def test_chosen_problems_run_from_easy_to_hard_and_tried_several_hints(run):
    fits = fitted_problems(read_run(run))
    single = FittedProblem(replace(fits[0].curve, instance_id="one hint"), ((1, 0.5, 1.0),))
    chosen = choose_problems([single] * 9 + fits, count=3, target_accuracy=0.5)
    crossings = [fit.crossing(0.5) for fit in chosen]
    assert crossings == sorted(crossings)
    assert crossings[0] < crossings[-1]
    assert "one hint" not in {
        fit.instance_id for fit in choose_problems([single, *fits * 3], count=6, target_accuracy=0.5)
    }
    assert choose_problems(fits[:2], count=6, target_accuracy=0.5) == fits[:2]


def rollouts_of(*rewards):
    lines = [
        rollout_line(index, reward=reward, reason="correct" if reward == 1 else "wrong")
        for index, reward in enumerate(rewards)
    ]
    return [
        ShownRollout(**{name: line[name] for name in line.keys() & ShownRollout.__dataclass_fields__.keys()})
        for line in lines
    ]


def test_examples_alternate_between_correct_and_wrong_as_long_as_there_are_both():
    rewards = [rollout.reward for rollout in choose_examples(rollouts_of(1, 0, 1, 0, 0, 0), count=4)]
    assert rewards == [1, 0, 1, 0]
    assert len(choose_examples(rollouts_of(0, 0, 0), count=6)) == 3


def test_every_example_is_another_problem():
    ids = [rollout.instance_id for rollout in choose_examples(rollouts_of(1, 0, 1, 0) * 3, count=6)]
    assert len(ids) == len(set(ids)) == 4


def test_cells_of_a_table_are_escaped_and_numbers_are_set_flush_right():
    page = problem_page("a<b", [], ["x", "y", "z"], [["<1", "1", "<2"]])
    assert "<h1>a&lt;b</h1>" in page and '<th class="text">y</th><th class="number">z</th>' in page
    assert '<td class="text">&lt;1</td><td class="text">1</td><td class="number">&lt;2</td>' in page


def test_the_command_prints_a_single_validation_once(tmp_path):
    from seele.cli.main import app

    write_lines(tmp_path / "metrics.jsonl", [{"step": 0, "val/accuracy/a": 0.0}])
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.stdout.splitlines()[0] == "correct without hints on a: 0.0% at step 0"


def test_the_command_names_what_is_damaged(tmp_path):
    from seele.cli.main import app

    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "val/accuracy/a": 0.0}\n{"step": 1, "val')
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 0
    assert "note: metrics.jsonl, line 2, is cut off or not JSON and was skipped.\n" in result.stderr


@pytest.mark.parametrize("options", [[], ["--out", "deep/out"]])
def test_the_command_writes_the_report_and_says_where(tmp_path, monkeypatch, options):
    from seele.cli.main import app

    monkeypatch.chdir(tmp_path)
    lines = [{"step": step, "val/accuracy/chains": step / 8} for step in (0, 2)]
    write_lines(tmp_path / "run" / "metrics.jsonl", lines)
    result = CliRunner().invoke(app, ["report", "run", *options])
    assert result.exit_code == 0, result.output
    page = Path(options[1] if options else "run/report") / "index.html"
    accuracies = "correct without hints on chains: 0.0% at step 0, 25.0% at step 2"
    assert result.stdout.splitlines() == [accuracies, str(page)]
    assert {path.name for path in page.parent.iterdir()} == {"index.html", "summary.json", "accuracy.png"}


def test_the_command_refuses_bad_places_and_writes_nothing(run, tmp_path):
    from seele.cli.main import app

    taken = tmp_path / "taken"
    taken.touch()
    assert isinstance(
        CliRunner().invoke(app, ["report", str(run), "--out", str(taken)]).exception, ConfigError
    )
    result = CliRunner().invoke(app, ["report", str(tmp_path / "absent"), "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, CheckpointError)
    assert not (tmp_path / "out").exists()
