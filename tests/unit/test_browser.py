"""The rollout browser: what is shown of a step, which rollouts filters let through, and the pages."""

import html
import itertools
import json
import math
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from importlib.resources import files
from unittest.mock import Mock

import pytest
import uvicorn
import yaml

from helpers.controllers import end_visit, observe
from seele.cli.view import view_command
from seele.data.storage.schema import read_solutions, write_problems
from seele.errors import CheckpointError, ConfigError
from seele.hints import build_controller
from seele.hints.beliefs import Beliefs
from seele.records import AccuracyCurve, Instance
from seele.report import run_folder
from seele.report.browser import app as browser_app
from seele.report.browser import history
from seele.report.browser import page as browser_page
from seele.report.browser import run as browser_run
from seele.report.browser.app import build_app, keep_indexed
from seele.report.browser.colours import coloured
from seele.report.browser.drawings import MAX_POINTS, SPLIT_COLOURS, draw_timeline
from seele.report.browser.history import INDEX, History, page_in_work
from seele.report.browser.page import NUM_PROBLEMS, NUM_STEPS, rollouts_page
from seele.report.browser.rollouts import ORDERS, Filters, filter_problems, read_step, with_tokens
from seele.report.browser.run import ViewedRun, view_runs
from seele.report.run_folder import read_run, rollout_files

ELSEWHERE = "https://elsewhere.example/"
ATTACK = (
    f"</pre><script>document.title='owned'</script><img src={ELSEWHERE} onerror=\"document.title='owned'\">"
)


def line(problem, number=0, rollout=0, *, right=False, **changes):
    return {
        "instance_id": problem,
        "question": f"What is {problem}?",
        "answer": "4",
        "data_source": "chains",
        "level": 2,
        "hint": "one\n" * (2 - number),
        "hint_ratio": 0.25 * (2 - number),
        "predicted_accuracy": 0.5,
        "round": number,
        "rollout": rollout,
        "text": "so 4" if right else "so 5",
        "reason": "correct" if right else "wrong",
        "reward": float(right),
        "finish": "stop",
        "generated_tokens": 10 + rollout,
        "hint_tokens": 4,
        "advantage": 0.5,
    } | changes


TOKENS = {
    "tokens": ["a ", "b ", "c ", "d"],
    "token_advantages": [2.0, 2.0, -0.8, 0.0],
    "token_log_ratios": [0.0, 0.0, 0.0, 9.0],
}


def problem_lines(problem, accuracies=(0.0, 0.5)):
    """Two rollouts a round."""
    return [
        line(problem, number, rollout, right=rollout < 2 * accuracy)
        for number, accuracy in enumerate(accuracies)
        for rollout in range(2)
    ]


def write_step(run, step, lines):
    path = run / "rollouts" / f"step_{step}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "resolved.yaml").write_text(
        "seele: {method: seele, hints: {target_accuracy: 0.5, controller: bayes}}\n"
    )
    rows = [
        {
            "step": step,
            "hint_ratio/mean": 0.8 - 0.1 * step,
            "accuracy/round_0": 0.25,
            "accuracy/round_1": 0.5,
            "accuracy/round_2": 1.0,
            **({"val/accuracy/heldout": 0.1 * step} if step % 2 else {}),
        }
        for step in range(1, 5)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for step in range(1, 5):
        write_step(folder, step, problem_lines("easy", (0.5, 1.0)) + problem_lines(f"hard{step}", (0.0, 0.5)))
    return folder


# ------------------------------------------------------------------ what is shown of a step


def test_a_step_is_problems_with_rounds_and_their_rollouts(run):
    easy, hard = read_step(run / "rollouts/step_3.jsonl")
    assert (easy.first.instance_id, hard.first.instance_id) == ("easy", "hard3")
    assert [(each.number, each.hint_ratio, each.accuracy) for each in easy.rounds] == [
        (0, 0.5, 0.5),
        (1, 0.25, 1.0),
    ]
    assert (easy.accuracy, hard.accuracy) == (0.75, 0.25) and easy.first.level == "2"
    assert easy.rounds[0].predicted_accuracy == 0.5 and not easy.rounds[0].is_probe


def test_hints_of_one_round_stand_apart_and_older_lines_have_less(tmp_path):
    old = {"instance_id": "a", "question": "q", "text": "t", "reason": "wrong", "round": 0}
    lines = [old, old | {"hint_ratio": 0.5}, {"instance_id": "b"}, [1]]
    lines += [old | wrong for wrong in ({"round": None}, {"hint_ratio": "half"}, {"reward_extra": None})]
    (problem,) = read_step(write_step(tmp_path, 1, lines))
    assert [each.hint_ratio for each in problem.rounds] == [0.0, 0.5]
    assert problem.first.advantage is None and problem.first.level == ""


@pytest.mark.parametrize(
    "damage",
    [
        {"segments": [[1, 2]]},
        {"segments": [5]},
        {"segments": [[0, "2", 0, True]]},
        TOKENS | {"tokens": ["a", 1, "c", "d"]},
        TOKENS | {"token_advantages": [None] * 4},
        {"round": 10**30},
        {"reward": 10**400},
        {"reward_extra": {"length": 10**400}},
        {"hint_ratio": math.nan},
    ],
)
def test_damaged_lines_are_left_out_of_pages_and_of_the_index(run, damage):
    write_step(run, 4, [line("easy", right=True), line("easy", rollout=1, **damage)])
    index = History(run)
    index.update()
    assert index.num_steps() == 4
    with served(run) as site:
        assert get(f"{site}/?step=4&open=easy").count("<article") <= 2
        assert "4 steps had this problem" in get(f"{site}/problem?id=easy")


def test_half_a_surrogate_pair_is_shown_as_a_question_mark(run):
    odd = "q\ud800"
    fields = dict.fromkeys(("instance_id", "question", "text", "level"), odd) | {"reward_extra": {odd: odd}}
    write_step(run, 4, [line("x", **fields, **TOKENS | {"tokens": [odd] * 4})])
    index = History(run)
    index.update()
    assert index.num_steps() == 4 and len(index.of_problem("q?")) == 1
    with served(run) as site:
        page = get(f"{site}/?step=4&open=q?")
    assert page.count("<article") == 1 and "<span>q?: q?</span>" in page and ">q?q?</span>" in page


@pytest.mark.parametrize(
    "filters, shown",
    [
        (Filters(), ["easy", "hard"]),
        (Filters(problem="WHAT IS EA"), ["easy"]),
        (Filters(problem="hard"), ["hard"]),
        (Filters(text="SO 4"), ["easy", "hard"]),
        (Filters(text="nothing"), []),
        (Filters(source="chains"), ["easy", "hard"]),
        (Filters(source="other"), []),
        (Filters(level="2"), ["easy", "hard"]),
        (Filters(level="3"), []),
        (Filters(verdict="wrong", round=2), ["hard"]),
        (Filters(verdict="not correct", round=1), ["easy", "hard"]),
        (Filters(verdict="correct", round=1), ["easy"]),
        (Filters(min_hint=0.4, verdict="correct"), ["easy"]),
        (Filters(max_hint=0.2), []),
        (Filters(min_tokens=12), []),
        (Filters(max_tokens=10, verdict="correct", round=1), ["easy"]),
    ],
)
def test_filters_choose_problems_by_their_rollouts(tmp_path, filters, shown):
    lines = problem_lines("easy", (0.5, 1.0)) + problem_lines("hard", (0.0, 0.5))
    problems = read_step(write_step(tmp_path, 1, lines))
    chosen = filter_problems(problems, filters, order="file")
    assert [each.first.instance_id for each in chosen] == shown


def test_problems_are_sorted(tmp_path):
    lines = problem_lines("easy", (0.5, 1.0)) + problem_lines("hard", (0.0, 0.5))
    problems = read_step(write_step(tmp_path, 1, lines))
    ids = [each.first.instance_id for each in filter_problems(problems, Filters(), order="hardest")]
    assert ids == ["hard", "easy"]


def test_probes_do_not_count_as_changed_hints(tmp_path):
    probe = [line("steady", rollout=3, hint_ratio=0.0, is_probe=True)]
    lines = problem_lines("steady", (0.5,)) + probe + problem_lines("moved", (0.5, 1.0))
    problems = read_step(write_step(tmp_path, 1, lines))
    chosen = filter_problems(problems, Filters(), order="hint changed most")
    assert [(each.first.instance_id, each.hint_change) for each in chosen] == [
        ("moved", 0.25),
        ("steady", 0.0),
    ]


def given_lines():
    """LUFFY: seven wrong rollouts, and the worked solution among them."""
    wrong = [line("luffy", rollout=rollout, hint_ratio=0.0) for rollout in range(7)]
    return [line("luffy", rollout=7, right=True, hint_ratio=0.0, origin="trace", generated_tokens=0), *wrong]


def test_what_the_policy_did_not_generate_is_shown_but_not_counted(run):
    problems = read_step(write_step(run, 4, given_lines() + problem_lines("hard", (0.0, 0.5))))
    (luffy,) = (each for each in problems if each.first.instance_id == "luffy")
    assert [(each.accuracy, len(each.rollouts)) for each in luffy.rounds] == [(0.0, 7)]
    assert luffy.accuracy == 0.0 and [each.origin for each in luffy.given] == ["trace"]
    hardest = filter_problems(problems, Filters(), order="hardest")
    assert [each.first.instance_id for each in hardest] == ["luffy", "hard"]
    right = filter_problems(problems, Filters(verdict="correct"), order="file")
    assert [each.first.instance_id for each in right] == ["hard"]
    index = History(run)
    index.update()
    assert [(each.num_correct, each.num_rollouts) for each in index.of_problem("luffy")] == [(0, 7)]
    with served(run) as site:
        page = get(f"{site}/?step=4&open=luffy")
    assert "0 of 7 right" in page and "of 8 right" not in page
    assert page.count("<article") == 8 and page.count("<span>trace</span>") == 1


def test_a_problem_with_given_rollouts_alone_is_shown_in_every_order(run):
    write_step(run, 4, given_lines()[:1] + problem_lines("hard"))
    with served(run) as site:
        for order in ORDERS:
            page = get(f"{site}/?{urllib.parse.urlencode({'sort': order, 'open': 'luffy'})}")
            assert "<span>trace</span>" in page


def test_probes_stand_apart_from_a_round_without_hint(tmp_path):
    lines = [line("a", hint_ratio=0.0, is_probe=probe, right=probe) for probe in (True, False)]
    (problem,) = read_step(write_step(tmp_path, 1, lines))
    assert [(each.is_probe, each.accuracy) for each in problem.rounds] == [(False, 0.0), (True, 1.0)]


def test_a_run_opens_without_reading_what_grows_and_curves_need_the_controller_alone(run, monkeypatch):
    controller = build_controller("bayes", rounds=2, rollouts_per_round=2, seed=0)
    observe(controller, "easy", hint_ratio=0.5, num_correct=1, num_rollouts=2)
    end_visit(controller, "easy")
    state = run / "global_step_4/seele/controller.json"
    state.parent.mkdir(parents=True)
    for name in ("read_metrics", "_read_rollouts"):
        monkeypatch.setattr(run_folder, name, lambda *_: pytest.fail("read"))
    state.write_text("{")
    viewed = ViewedRun(run)
    assert viewed.target_accuracy == 0.5
    state.write_text(json.dumps(controller.state_dict()))
    asked = []
    monkeypatch.setattr(Beliefs, "curves", lambda _, ids: asked.append(ids) or [])
    assert viewed.curve("easy") is None and asked == [["easy"]]
    monkeypatch.undo()
    assert viewed.curve("easy").instance_id == "easy" and viewed.curve("hard") is None


def test_a_step_that_is_slow_to_read_delays_no_other(run, monkeypatch):
    begun, may_end = threading.Event(), threading.Event()

    def read_slowly(file):
        if file.stem == "step_1":
            begun.set()
            assert may_end.wait(30)
        return read_step(file)

    monkeypatch.setattr(browser_run, "read_step", read_slowly)
    viewed = ViewedRun(run)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(viewed.step, 1)
        assert begun.wait(30)
        try:
            assert len(pool.submit(viewed.step, 2).result(timeout=10)) == 2
        finally:
            may_end.set()
        assert len(slow.result()) == 2


def test_a_step_that_a_resumed_run_removes_while_it_is_read_is_no_error(run, monkeypatch):
    write_step(run, 4, [line("easy", **TOKENS)])
    viewed = ViewedRun(run)
    listed, kept = rollout_files(run), viewed.step(4)
    for now in (listed, {}):
        monkeypatch.setattr(viewed, "step", lambda _: kept)
        monkeypatch.setattr(browser_run, "rollout_files", lambda _, now=now: now)
        (run / "rollouts/step_4.jsonl").unlink(missing_ok=True)
        assert viewed.problem(4, "easy") == kept[0]
    monkeypatch.setattr(browser_run, "rollout_files", lambda _: listed)
    assert ViewedRun(run).step(4) == []


def test_steps_stay_in_memory_until_six_others_were_read(run, monkeypatch):
    seen = []
    monkeypatch.setattr(browser_run, "read_step", lambda file: seen.append(file.stem) or read_step(file))
    for step in range(5, 10):
        write_step(run, step, problem_lines("easy"))
    viewed = ViewedRun(run)
    for step in (*range(1, 8), 2, 1):
        viewed.step(step)
    assert seen == [*(f"step_{step}" for step in range(1, 8)), "step_1"]
    assert len(viewed.step(2)) == 2 and len(seen) == 8
    write_step(run, 2, problem_lines("other"))
    assert len(viewed.step(2)) == 1


def test_training_files_are_read_once_for_all_solutions_of_a_step(run, tmp_path, monkeypatch):
    train = tmp_path / "train.parquet"

    def write(steps):
        problem = {"data_source": "chains", "question": "?", "answer": "4"}
        names = ("easy", "hard1", "hard2")
        write_problems(
            train, [Instance(instance_id=name, steps=steps, **problem) for name in names], split="train"
        )

    write(("2 + 2 = 4\n", "so 4\n"))
    (run / "resolved.yaml").write_text(f"data: {{train_files: [{train}]}}\n")
    read = Mock(side_effect=read_solutions)
    monkeypatch.setattr(browser_run, "read_solutions", read)
    viewed = ViewedRun(run)
    assert viewed.solution(1, "easy") == viewed.solution(1, "hard1") == ["2 + 2 = 4\n", "so 4\n"]
    assert viewed.solution(2, "hard2") and not viewed.solution(1, "hard2") and read.call_count == 2
    write(("changed\n", "so 4\n"))
    assert viewed.solution(1, "easy")[0] == "changed\n"


# ------------------------------------------------------------------ drawings and colours


def test_the_timeline_has_hints_rounds_and_validation():
    rows = [
        {"step": 0, "val/accuracy/heldout": 0.1},
        {"step": 5, "hint_ratio/mean": 1.0, "accuracy/round_0": 0.5, "accuracy/round_1": 0.25},
        {"step": 10, "hint_ratio/mean": 0.5, "accuracy/round_0": 0.5, "accuracy/round_2": 0.75},
    ]
    drawn = draw_timeline(rows, step=5)
    points = {each.kind: each.points for each in drawn.lines}
    assert points == {
        "hint": "500.0,0.0 1000.0,100.0",
        "first": "500.0,100.0 1000.0,100.0",
        "late": "500.0,150.0 1000.0,50.0",
        "unhinted-0": "0.0,180.0",
    }
    assert [each.value for each in drawn.lines] == [1.0, 0.5, 0.25, None]
    assert [each.dots for each in drawn.lines] == ["", "", "", "M0.0,180.0h0"]
    (hints, validated) = draw_timeline([rows[1], rows[0] | {"step": 6}, rows[0] | {"step": 7}]).lines[::3]
    assert hints.dots == "M0.0,0.0h0" and validated.dots == "M500.0,180.0h0M1000.0,180.0h0"
    assert {each.value for each in draw_timeline(rows).lines} == {None}
    assert (drawn.x(0), drawn.x(10), drawn.x(99)) == (0, 1000, 1000)
    assert draw_timeline([]) is None


def test_splits_have_their_own_colours_in_the_order_of_the_validation_files():
    splits = ("chains/harder", "chains/heldout", "chains/train", "sums/heldout")
    rows = [{"step": 1} | {f"val/accuracy/{split}": 0.5 for split in splits}]
    drawn = draw_timeline(rows, files=["heldout", "harder"]).lines
    assert [(each.kind, each.name) for each in drawn] == [
        ("unhinted-0", "chains/heldout, no hint"),
        ("unhinted-1", "sums/heldout, no hint"),
        ("unhinted-2", "chains/harder, no hint"),
        ("unhinted-3", "chains/train, no hint"),
    ]
    style = (files("seele.report") / "templates/browser/view.css").read_text()
    assert style.count(".line.unhinted-") == SPLIT_COLOURS == 4


def test_long_runs_are_drawn_with_few_points():
    rows = [{"step": step, "hint_ratio/mean": step / 5000} for step in range(5000)]
    (drawn,) = draw_timeline(rows).lines
    assert MAX_POINTS / 2 < len(drawn.points.split()) <= MAX_POINTS


def test_tokens_are_coloured_by_what_the_run_kept(tmp_path):
    kept = {"text": "a b c d", "segments": [[0, 2, 0, True], [2, 3, 1, False]]} | TOKENS
    file = write_step(tmp_path, 1, [line("a", **kept)])
    (problem,) = read_step(file)
    rollout = with_tokens(file, problem).first
    assert [*coloured(rollout, "advantage")] == [
        ("plus-5", "+2.000", "a b "),
        ("minus-2", "-0.800", "c "),
        ("", "+0.000", "d"),
    ]
    assert [*coloured(rollout, "log-probability ratio")][-1] == ("plus-5", "+9.000", "d")
    assert [*coloured(rollout, "milestones")] == [
        ("plus-3", "milestone 1 passed", "a b "),
        ("minus-3", "milestone 2 failed", "c "),
        ("", "", "d"),
    ]
    assert [*coloured(rollout, "none")] == [("", "", "a b c d")]
    (bare,) = read_step(write_step(tmp_path, 1, [line("a")]))
    assert [*coloured(bare.first, "advantage")] == [("", "", "so 5")]


def test_values_of_a_diverged_run_have_colours(tmp_path):
    values = [math.nan, -math.inf, math.inf, 0.0]
    file = write_step(tmp_path, 1, [line("a", **TOKENS | {"token_advantages": values})])
    rollout = with_tokens(file, *read_step(file)).first
    assert [kind for kind, *_ in coloured(rollout, "advantage")] == ["", "minus-5", "plus-5", ""]


def test_tokens_are_read_for_one_problem_only(tmp_path):
    tricky = '", "tokens": ["no"], "'
    lines = [line(name, text=f"{name} € {tricky}", **TOKENS) for name in "ab"]
    file = write_step(tmp_path, 1, [*lines, line("b", rollout=1), line("b", origin="trace", **TOKENS)])
    _, problem = read_step(file)
    assert [each.tokens for each in (*problem.rollouts, *problem.given)] == [(), (), ()]
    assert problem.first.text == f"b € {tricky}" and problem.first.advantage == 0.5
    whole = with_tokens(file, problem)
    tokens = TOKENS["tokens"]
    assert [each.tokens for each in (*whole.rollouts, *whole.given)] == [tokens, (), tokens]
    assert whole.first.text == problem.first.text
    # The file is another since.
    write_step(tmp_path, 1, [line("other", text="longer than before")] * 9)
    assert with_tokens(file, problem) == problem


def test_every_page_colours_the_tokens_of_the_open_problem(run, tmp_path, monkeypatch):
    write_step(run, 4, [line(name, **TOKENS) for name in ("easy", "hard4")])
    shutil.copytree(run, tmp_path / "other")
    with served(run, tmp_path / "other") as site:
        assert get(f"{site}/?open=easy").count('class="plus-5"') == 1
        assert get(f"{site}/compare?open=easy").count('class="plus-5"') == 2
    written = rollouts_page(run, read_run(run))
    assert written.count('class="plus-5"') == 2 and "coloured tokens" not in written
    # Room for one of the two problems of step 4.
    monkeypatch.setattr(browser_page, "MAX_TOKENS", 7)
    written = rollouts_page(run, read_run(run))
    assert written.count('class="plus-5"') == 1
    assert "1 problem has none here, where a step has at most 7 coloured tokens." in written


def test_a_written_page_leaves_out_the_middle_of_long_responses(run, monkeypatch):
    text = "begins " + "0123456789" * 2 + " ends"
    write_step(run, 4, [line("easy", text=text, **TOKENS), line("hard4", text=text), line("none", text="")])
    whole = rollouts_page(run, read_run(run))
    assert whole.count(text) == 1
    monkeypatch.setattr(browser_page, "MAX_CHARS", 10)
    written = rollouts_page(run, read_run(run))
    assert "begin\n[... 22 characters are left out ...]\n ends" in written and text not in written
    assert written.count('class="plus-5"') == whole.count('class="plus-5"') == 1


def test_the_newest_step_of_a_report_is_read_once(run, monkeypatch):
    seen = []
    monkeypatch.setattr(browser_page, "read_step", lambda file: seen.append(file.stem) or read_step(file))
    written = rollouts_page(run, read_run(run))
    assert seen == ["step_1", "step_2", "step_3"] and "hard4" in written


# ------------------------------------------------------------------ history


def test_the_history_of_a_problem_grows_with_the_run_and_forgets_what_a_resumed_run_removed(run):
    index = History(run)
    index.update()
    seen = index.of_problem("easy")
    assert [(each.step, each.number, each.hint_ratio, each.accuracy) for each in seen][:2] == [
        (1, 0, 0.5, 0.5),
        (1, 1, 0.25, 1.0),
    ]
    assert len(seen) == 8 and index.num_steps() == 4 and index.of_problem("hard2")[0].step == 2
    (run / "rollouts/step_4.jsonl").unlink()
    write_step(run, 3, problem_lines("easy", (1.0, 1.0)) + problem_lines("other"))
    again = History(run)
    again.update()
    assert [each.accuracy for each in again.of_problem("easy") if each.step == 3] == [1.0, 1.0]
    assert again.num_steps() == 3 and not again.of_problem("hard3") and not again.of_problem("hard4")


def test_what_is_indexed_is_not_read_again(run, monkeypatch):
    History(run).update()
    monkeypatch.setattr(history, "read_rollouts", lambda *_: pytest.fail("read again"))
    History(run).update()


def test_the_index_waits_while_a_page_is_made(run):
    index = History(run)
    with page_in_work():
        updating = threading.Thread(target=index.update)
        updating.start()
        updating.join(0.2)
        assert updating.is_alive() and index.num_steps() == 0
    updating.join()
    assert index.num_steps() == 4


def test_an_index_of_another_version_is_built_again(run):
    History(run).update()
    with closing(sqlite3.connect(run / INDEX)) as base:
        base.executescript("drop table rounds; create table rounds (other); pragma user_version = 0")
    index = History(run)
    assert index.num_steps() == 0
    index.update()
    assert index.num_steps() == 4 and len(index.of_problem("easy")) == 8


def test_a_damaged_index_or_a_folder_that_may_not_be_written_only_costs_time(run):
    (run / "logs").mkdir()
    (run / INDEX).write_text("no database" * 500)
    index = History(run)
    index.update()
    assert len(index.of_problem("easy")) == 8


def test_an_index_that_is_damaged_later_is_built_elsewhere(run):
    index = History(run)
    index.update()
    size = (run / INDEX).stat().st_size
    with (run / INDEX).open("r+b") as file:
        file.seek(4096)
        file.write(b"?" * (size - 4096))
    write_step(run, 5, problem_lines("easy"))
    with pytest.raises(sqlite3.DatabaseError):
        index.update()
    index.update()
    assert index.num_steps() == 5 and len(index.of_problem("easy")) == 10


def test_an_index_that_is_deleted_while_pages_are_served_is_built_again(run, monkeypatch):
    monkeypatch.setattr(browser_app, "INDEX_PERIOD_S", 0.05)
    with served(run) as site:
        wait_until(lambda: "4 of 4 steps are indexed" in get(f"{site}/problem?id=easy"))
        shutil.rmtree(run / "logs")
        get(f"{site}/problem?id=easy")
        wait_until(lambda: "4 of 4 steps are indexed" in get(f"{site}/problem?id=easy"))


@pytest.mark.parametrize(
    "error",
    [
        OSError("the disk is full"),
        sqlite3.OperationalError("disk I/O error"),
        OverflowError("Python int too large to convert to SQLite INTEGER"),
    ],
)
def test_an_error_of_one_run_stops_the_index_of_none(run, tmp_path, monkeypatch, error):
    shutil.copytree(run, tmp_path / "other")
    failing, other = (ViewedRun(folder) for folder in (run, tmp_path / "other"))
    update, tries = failing.history.update, itertools.count()

    def fail_once():
        if not next(tries):
            raise error
        update()

    monkeypatch.setattr(browser_app, "INDEX_PERIOD_S", 0.05)
    monkeypatch.setattr(failing.history, "update", fail_once)
    stop = keep_indexed([failing, other])
    wait_until(lambda: failing.history.num_steps() == other.history.num_steps() == 4)
    stop.set()


# ------------------------------------------------------------------ pages


@contextmanager
def served(*runs):
    viewed = view_runs(runs)
    config = uvicorn.Config(
        build_app(viewed, hosts=["127.0.0.1"]), port=0, log_level="warning", access_log=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    stop = keep_indexed(viewed)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop.set()
        server.should_exit = True
        thread.join()


def get(address, **headers):
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


def test_the_first_page_shows_the_newest_step_and_links_lead_to_every_state(run):
    with served(run) as site:
        page = get(f"{site}/")
        assert "step 4" in page and "data-state" in page and page.count('class="row"') == 2
        assert '<path class="line dots unhinted-0" d="M0.0,180.0h0M666.7,140.0h0"/>' in page
        opened = get(f"{site}/?step=2&open=hard2")
        assert "its number is the hint ratio" in page and "50 % expected by the controller" in opened
        assert "data-state" not in opened and opened.count("<article") == 4
        assert "<mark>one\none\n</mark>so 5" in opened
        assert "<span>4 hint + 10 generated tokens</span>" in opened
        # The values of the step that is shown, which was not validated.
        assert "hint ratio 60 %</span>" in opened and "heldout, no hint</span>" in opened
        assert "heldout, no hint 30 %</span>" in get(f"{site}/?step=3")
        assert "/problem?step=2&amp;open=hard2&amp;id=hard2" in opened
        filtered = get(f"{site}/?step=2&verdict=correct&open=hard2&sort=hardest")
        assert filtered.count("rollout wrong dim") == 3
        # Filters stay where another step is chosen, and the other way round.
        assert "/?step=3&amp;verdict=correct&amp;open=hard2&amp;sort=hardest" in filtered
        assert '<input type="hidden" name="open" value="hard2">' in filtered
        assert get(f"{site}/?step=2&page=-4").count('class="row"') == 2
        wait_until(lambda: "4 of 4 steps are indexed" in get(f"{site}/problem?id=easy"))
        problem = get(f"{site}/problem?id=easy")
        assert problem.count('class="row"') == 4 and "4 steps had this problem" in problem
        assert '<span class="sr">round 2, hint ratio 0.25: 2 of 2 right</span>' in problem
        # Filters of the step's page, of which this one came.
        problem = get(f"{site}/problem?id=easy&page=2&verdict=correct&round=1&colour=none")
        assert '<a href="/?colour=none&amp;step=2&amp;open=easy">step 2</a>' in problem


def test_a_hint_in_the_question_is_drawn_there(run, tmp_path):
    asked = '<pre class="question prompt">See: <mark>one\none\n</mark> of What is hard2?</pre>'
    hints = {"placement": "user", "request": "See: {hint} of {question}"}
    (run / "resolved.yaml").write_text(yaml.safe_dump({"seele": {"hints": hints}}))
    shutil.copytree(run, tmp_path / "other")
    with served(run, tmp_path / "other") as site:
        opened, both = (get(f"{site}/{path}?step=2&open=hard2") for path in ("", "compare"))
    written = rollouts_page(run, read_run(run))
    for page, problems in ((opened, 1), (both, 2), (written, 1)):
        assert page.count(asked) == problems and "<pre>so 5" in page and "</mark>so" not in page


def test_a_replayed_hint_is_drawn_in_the_question_too(run):
    hints = {"placement": "user", "request": "See: {hint} of {question}"}
    (run / "resolved.yaml").write_text(yaml.safe_dump({"seele": {"hints": hints}}))
    lines = problem_lines("hard")
    write_step(run, 4, [*lines, lines[0] | {"rollout": 9, "origin": "replay", "hint": "LEMMA"}])
    with served(run) as site:
        page = get(f"{site}/?step=4&open=hard")
    assert "See: <mark>LEMMA</mark> of" in page and "<pre><mark>LEMMA" not in page


def test_a_filter_that_no_rollout_of_a_step_meets_is_shown(run):
    with served(run) as site:
        page = get(f"{site}/?step=4&level=77&source=elsewhere")
    assert '<option value="77" selected>' in page and '<option value="elsewhere" selected>' in page
    assert "0 of " in page


def test_an_open_problem_is_shown_on_its_page_and_the_shared_ones_have_pages(run, tmp_path):
    write_step(run, 9, [each for number in range(60) for each in problem_lines(f"p{number}")])
    shutil.copytree(run, tmp_path / "other")
    with served(run, tmp_path / "other") as site:
        for path, articles in (("", 4), ("compare", 8)):
            page = get(f"{site}/{path}?step=9&open=p55")
            assert "page 2 of 2" in page and page.count("<article") == articles
            assert page.count('aria-expanded="false"') == 9
            assert get(f"{site}/{path}?step=9&open=p55&page=1").count('aria-expanded="false"') == 50


def test_a_bar_leads_to_its_round(run, tmp_path):
    probe = line("easy", rollout=3, hint_ratio=0.0, is_probe=True)
    write_step(run, 4, [*problem_lines("easy", (0.0, 1.0)), probe, *problem_lines("hard4")])
    shutil.copytree(run, tmp_path / "other")

    def bars(page):
        return [html.unescape(each) for each in re.findall('<a href="([^"]*)" class="bar', page)]

    with served(run, tmp_path / "other") as site:
        wait_until(lambda: "4 of 4 steps are indexed" in get(f"{site}/problem?id=easy"))
        for path in ("", "problem", "compare"):
            page = get(f"{site}/{path}?step=4&id=easy&verdict=correct&sort=longest&page=1")
            # A link holds no other.
            assert all(each.count("<a ") == 1 for each in re.findall("<a .*?</a>", page, re.DOTALL))
            links = [each for each in bars(page) if "step=4" in each and "open=easy" in each]
            assert len(links) == (6 if path == "compare" else 3)
            for link in links:
                address, _, anchor = link.partition("#")
                opened = get(f"{site}{address}")
                assert opened.count(f'<details open id="{anchor}">') == 1
                assert opened.count("<article") == (10 if path == "compare" else 5)
        page = get(f"{site}/?step=4&verdict=correct&sort=longest")
        assert bars(page)[1:3] == [
            "/?step=4&sort=longest&open=easy&round=1#round-2",
            "/?step=4&sort=longest&open=easy&round=2#round-3",
        ]


def test_a_rollout_shows_what_the_reward_function_returned_beside_the_score(run):
    extra = {"why": "too long: 72 > 60", "<b>length": 0.25}
    write_step(run, 9, [line("x", reward_extra=extra)])
    with served(run) as site:
        opened = get(f"{site}/?step=9&open=x")
    written = rollouts_page(run, read_run(run))
    for page in (opened, written):
        assert "<span>reward 0</span>\n<span>why: too long: 72 &gt; 60</span>" in page
        assert "<span>&lt;b&gt;length: 0.25</span>" in page


def test_the_worked_solution_is_shown_where_the_training_files_are(run, tmp_path):
    train = tmp_path / "train.parquet"
    steps = ("2 + 2 = <b>4</b>\n", "So \\boxed{4}.\n")
    problem = {"data_source": "chains", "question": "What is easy?", "answer": "4"}
    write_problems(train, [Instance(instance_id="easy", steps=steps, **problem)], split="train")
    (run / "resolved.yaml").write_text(f"data: {{train_files: [{train}, {tmp_path}/gone.parquet]}}\n")
    with served(run) as site:
        opened, without = (get(f"{site}/?step=1&open={problem}") for problem in ("easy", "hard1"))
    written = rollouts_page(run, read_run(run))
    for page in (opened, written):
        assert "<li><pre>2 + 2 = &lt;b&gt;4&lt;/b&gt;</pre></li>\n<li><pre>So \\boxed{4}.</pre></li>" in page
    assert "worked solution" not in without
    # Every problem is open on the written page, and only one has a solution, in the steps that are shown.
    assert written.count("worked solution") == written.count("<b>easy</b>") == 4


def test_two_runs_stand_side_by_side(run, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    write_step(other, 4, problem_lines("easy", (1.0, 1.0)) + problem_lines("new"))
    with served(run, other) as site:
        page = get(f"{site}/compare?open=easy")
        assert "The runs have 2 and 2 problems in this step, 1 of them in both" in page
        assert "Each run drew its own problems for this step" in page
        assert "data-state" in page and "data-state" not in get(f"{site}/compare?step=3")
        assert '<a href="/compare?open=easy">newest</a>' in get(f"{site}/compare?step=3&open=easy")
        assert page.count("<article") == 8
        heads = '<div class="heads pair"><span>problem</span><b>run</b><b>other</b></div>'
        assert heads in page and heads not in get(f"{site}/compare?step=99")
        assert "compare with other</a>" in get(f"{site}/") and "run=1" in get(f"{site}/")
        for query, number in (("", 1), ("run=1&step=4", 0)):
            (link,) = re.findall(r'href="(/compare[^"]*)"', get(f"{site}/?{query}"))
            assert f"run={1 - number}" in link and f"other={number}" in link
        assert "; 0 have a response" in get(f"{site}/compare?problem=nothing")
        # All of the other run's responses to it are right, half of the first run's.
        assert ' dim"' in get(f"{site}/compare?verdict=correct&open=easy")
        for query, chosen in (("verdict=not+correct", 1), ("min_tokens=999", 0)):
            filtered = get(f"{site}/compare?{query}&sort=hardest&open=easy")
            assert filtered.count('<div class="row pair">') == chosen and 'action="/compare"' in filtered
        turned = get(f"{site}/compare?run=1&other=0&open=easy")
        assert "The runs have 2 and 2 problems" in turned and "<h1>other and run</h1>" in turned
        for query in ("other=2", "run=1", "run=1&other=1"):
            with pytest.raises(urllib.error.HTTPError) as error:
                get(f"{site}/compare?{query}")
            assert error.value.code == 400
        # Both go on, and the page with them.
        before = get(f"{site}/live")
        for each in (run, other):
            write_step(each, 5, problem_lines("late"))
        assert get(f"{site}/live") != before and "<b>step 5</b>" in get(f"{site}/compare")
        shutil.rmtree(other / "rollouts")
        page = get(f"{site}/compare")
        assert "No step has rollouts in both runs." in page and "step 0" not in page
        assert "data-state" in page and 'class="filters"' not in page
    with served(run) as site, pytest.raises(urllib.error.HTTPError) as error:
        get(f"{site}/compare")
    assert error.value.code == 400


@pytest.mark.parametrize(
    "folders, names",
    [
        (["a/run"], ["run"]),
        (["a/run", "b/run", "b/other"], ["a/run", "b/run", "other"]),
        (["a/x/run", "b/x/run"], ["a/x/run", "b/x/run"]),
        (["run/run", "run"], ["run/run", "here/run"]),
    ],
)
def test_runs_are_named_by_the_shortest_end_of_their_paths_that_differs(run, tmp_path, folders, names):
    for folder in folders:
        (tmp_path / "here" / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(run / "resolved.yaml", tmp_path / "here" / folder)
    assert [each.name for each in view_runs([tmp_path / "here" / folder for folder in folders])] == names


@pytest.mark.parametrize(
    "query, told",
    [
        ("round=first", "round=first: expected a number"),
        ("min_hint=nan", "min_hint=nan: expected a number"),
        ("max_hint=-inf", "max_hint=-inf: expected a number"),
        ("verdict=good", "verdict=good: expected one of , not correct, correct"),
        ("sort=best", "sort=best: expected one of file"),
        ("run=3", "run=3: expected 0 to 0"),
        ("run=-1", "run=-1: expected 0 to 0"),
        (f"step={'9' * 400}", "expected a number"),
    ],
)
def test_an_address_that_asks_for_nonsense_is_told_so(run, query, told):
    with served(run) as site, pytest.raises(urllib.error.HTTPError) as error:
        get(f"{site}/?{query}")
    assert error.value.code == 400 and told in error.value.read().decode()


def test_a_run_that_goes_on_is_followed(run):
    with served(run) as site:
        before = get(f"{site}/live")
        assert get(f"{site}/live") == before
        write_step(run, 5, problem_lines("late"))
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 5, "hint_ratio/mean": 0.1}) + "\n")
        assert get(f"{site}/live") != before
        assert "What is late?" in get(f"{site}/")


def test_a_step_that_is_written_while_the_page_is_made_is_not_missed(run, monkeypatch):
    timeline = ViewedRun.timeline

    def slow(viewed, step):
        write_step(run, 5, problem_lines("late"))
        return timeline(viewed, step)

    monkeypatch.setattr(ViewedRun, "timeline", slow)
    with served(run) as site:
        page = get(f"{site}/")
        (state,) = re.findall('data-state="([^"]*)"', page)
        assert "step 4" in page and state != get(f"{site}/live")


def test_other_names_than_the_servers_are_refused(run):
    with served(run) as site, pytest.raises(urllib.error.HTTPError) as error:
        get(f"{site}/", Host="elsewhere.example")
    assert error.value.code == 400


def test_a_run_without_steps_says_so(tmp_path):
    (tmp_path / "resolved.yaml").write_text("seele: {method: grpo}\n")
    with served(tmp_path) as site:
        assert "No step has been logged yet" in get(f"{site}/")


def test_a_step_that_does_not_exist_is_told_which_do(run):
    with served(run) as site:
        page, newest = get(f"{site}/?step=99"), get(f"{site}/")
        assert "Step 99 has no rollouts; 4 steps from 1 to 4 have some." in page
        assert "has no rollouts" not in newest
        for part in ("numbers of step", 'class="cursor"', 'class="filters"', "A bar is", "of 2 problems"):
            assert part in newest and part.replace("2", "0") not in page, part
        for step in range(1, 4):
            (run / f"rollouts/step_{step}.jsonl").unlink()
        assert "Step 99 has no rollouts; step 4 has some." in get(f"{site}/?step=99")
        (run / "rollouts/step_4.jsonl").unlink()
        assert "No step has rollouts." in get(f"{site}/")


def test_verdicts_are_shown_in_words(run):
    write_step(run, 4, [line("a", reason="no_answer")])
    with served(run) as site:
        page = get(f"{site}/?verdict=no_answer&open=a")
    assert '<option value="no_answer" selected>no answer</option>' in page and "<b>no answer</b>" in page


def test_colours_are_offered_where_there_are_tokens_to_colour(run):
    write_step(run, 4, [line("a", **TOKENS)])
    with served(run) as site:
        assert 'name="colour"' in get(f"{site}/?step=4") and 'name="colour"' not in get(f"{site}/?step=3")


def test_all_steps_of_a_problem_have_its_question_and_say_where_its_curve_is(run):
    with served(run) as site:
        wait_until(lambda: "4 of 4 steps are indexed" in get(f"{site}/problem?id=easy"))
        for query in ("", "&step=2", "&step=99"):
            page = get(f"{site}/problem?id=hard2{query}")
            assert "1 step had this problem" in page and '<pre class="prompt">What is hard2?</pre>' in page
            assert "No curve of this problem was saved: the run has no checkpoint" in page
        assert "0 steps had this problem" in get(f"{site}/problem?id=gone")


def test_a_fitted_curve_is_drawn_apart_from_the_rounds_of_the_step_that_is_shown(run, monkeypatch):
    ends = (0.0, 1.0)
    curve = AccuracyCurve(instance_id="easy", hint_ratios=ends, accuracies=ends, rounds=((0.125, 0.5),))
    controller = Mock(curves=lambda names: [curve] if "easy" in names else [])
    monkeypatch.setattr(ViewedRun, "curve", lambda _, name: curve if name == "easy" else None)
    with served(run) as site:
        opened, without = (get(f"{site}/?step=2&open={problem}") for problem in ("easy", "hard2"))
        all_steps = get(f"{site}/problem?id=easy")
    monkeypatch.setattr(browser_page, "saved_controller", lambda _: controller)
    written = rollouts_page(run, read_run(run))
    told = "The controller&#39;s curve in the newest checkpoint, and the rounds that it is based on."
    assert written.count(told) == written.count("<b>easy</b>") == 4
    for page, figures in ((opened, 2), (without, 1), (all_steps, 1), (written, 12)):
        drawn = re.findall('<figure class="curve">.*?</figure>', page, re.DOTALL)
        assert len(drawn) == figures
        for figure in drawn:
            assert ("<polyline" in figure) == (told in figure) == ("This step&#39;s rounds." not in figure)
            assert ('cx="12.5"' in figure) == (told in figure)


def test_the_reports_page_holds_some_steps_and_needs_nothing_else(run):
    for step in range(5, 15):
        write_step(run, step, [each for name in range(40) for each in problem_lines(str(name))])
    page = rollouts_page(run, read_run(run))
    steps = re.findall(r'<h2 id="step-(\d+)">', page)
    assert len(steps) == NUM_STEPS and (steps[0], steps[-1]) == ("1", "14")
    assert page.count("<li>") <= NUM_STEPS * NUM_PROBLEMS
    assert "<script" not in page and not re.search(r'(src|href)="(?!#|index.html|data:)', page)
    (run / "rollouts").rename(run / "gone")
    assert rollouts_page(run, read_run(run)) is None


def test_the_command_says_where_and_answers_at_once(run):
    command = [sys.executable, "-m", "seele.cli.main", "view", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address, _, name = server.stdout.readline().partition(" shows ")
            page = get(address)
            of_version_6 = get(address, Host="[::1]:8420")
        finally:
            server.terminate()
    assert name == "run\n" and "step 4" in page and of_version_6 == page


def test_a_port_that_is_taken_and_a_folder_without_a_run_are_refused(run, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port {port}: Address already in use; try --port 0"):
            view_command([run], host="127.0.0.1", port=port)
    with pytest.raises(ConfigError, match="--host: got an empty address"):
        view_command([run], host="", port=0)
    with pytest.raises(CheckpointError, match="no such folder"):
        view_command([tmp_path / "none"])


def test_what_a_model_wrote_does_nothing_in_a_browser(run, visit):
    fields = ("question", "hint", "text", "answer", "instance_id", "data_source", "finish", "reason")
    tokens = {"reward_extra": {ATTACK: ATTACK}, "tokens": [ATTACK], "token_advantages": [1.0]}
    write_step(run, 9, [line("x", **dict.fromkeys(fields, ATTACK), **tokens)])
    with served(run) as site:
        query = urllib.parse.urlencode({"step": 9, "open": ATTACK, "problem": ATTACK, "text": ATTACK})
        shown, log = visit(f"{site}/?{query}")
    assert "<title>run, step 9</title>" in shown and shown.count("<script") == 1 and "<article" in shown
    assert '<span class="plus-2"' in shown or '<span class="plus-3"' in shown
    assert f"{site}/view.css" in log and 'elsewhere.example/"' not in log


def press(tab, key, *, until):
    """Press a key, and wait for what it brings: a JavaScript expression."""
    # Keys before the first paint are lost.
    wait_until(
        lambda: tab.value(
            "document.readyState == 'complete' && performance.getEntriesByType('paint').length > 0"
        )
    )
    text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
    code = {"Enter": 13, "Escape": 27, "ArrowDown": 40}.get(key, ord(key[0].upper()))
    for kind in ("keyDown", "keyUp"):
        tab.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)
    wait_until(lambda: tab.value(until))


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in 30 s"
        time.sleep(0.02)


def test_keys_move_open_and_search_and_the_page_follows_the_run(run, tmp_path, open_tab):
    step, opened = "new URL(location).searchParams.get('step')", "new URL(location).searchParams.get('open')"
    focus = "document.activeElement.matches('.row > a') && document.activeElement.textContent.includes"
    with served(run) as site, closing(open_tab(f"{site}/?step=2", tmp_path / "profile")) as tab:
        wait_until(lambda: tab.value("document.querySelectorAll('.row').length") == 2)
        press(tab, "j", until=f"{focus}('What is easy?')")
        press(tab, "j", until=f"{focus}('What is hard2?')")
        press(tab, "k", until=f"{focus}('What is easy?')")
        press(tab, "Enter", until=f"{opened} == 'easy' && {focus}('What is easy?')")
        tab.value("document.querySelectorAll('.problems .open .bar')[1].focus()")
        in_view = "document.querySelector('#round-2').getBoundingClientRect().top < innerHeight"
        press(tab, "Enter", until=f"location.hash == '#round-2' && {in_view}")
        press(tab, "j", until=f"{focus}('What is hard2?')")
        press(tab, "Escape", until=f"{opened} == null && {focus}('What is hard2?')")
        press(tab, "n", until=f"{step} == '3'")
        press(tab, "p", until=f"{step} == '2'")
        press(tab, "/", until="document.activeElement.id == 'search'")
        # What is typed is no command.
        press(tab, "n", until="document.activeElement.value == 'n'")
        press(tab, "Escape", until="document.activeElement == document.body")
        # Arrow keys choose, and Enter shows.
        verdict = "document.querySelector('select[name=verdict]')"
        tab.value(f"{verdict}.focus()")
        press(tab, "ArrowDown", until=f"{verdict}.value == 'not correct'")
        press(tab, "ArrowDown", until=f"{verdict}.value == 'correct'")
        filtered = "new URL(location).searchParams.get('verdict') == 'correct'"
        press(tab, "Enter", until=f"{filtered} && document.activeElement == {verdict}")
        tab.value("location.assign('/')")
        wait_until(lambda: tab.value("document.title") == "run, step 4")
        write_step(run, 5, problem_lines("late"))
        wait_until(lambda: tab.value("document.title") == "run, step 5")
