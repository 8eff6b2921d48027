"""An evaluation end to end with a stub in the model's place: what it draws, writes and refuses."""

import io
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import ModuleType

import pytest
import yaml

from seele.data.storage.files import file_sha256, settings_files
from seele.data.storage.schema import write_problems
from seele.errors import CheckpointError, ConfigError, DataError, PluginError, SeeleError
from seele.records import Finish, Instance
from seele.rollout.templates import template_text
from seele_eval import run as evaluation
from seele_eval.arguments import parse_arguments
from seele_eval.command import run_command
from seele_eval.conditions import read_run_defaults
from seele_eval.generation import find_model, find_weights
from seele_eval.plan import make_plan
from seele_eval.predictions import read_predictions
from seele_eval.prompts import Response

FIXTURES = Path(os.environ["SEELE_FIXTURES"], "benchmarks")


def instances(count):
    return [
        Instance(
            instance_id=f"chains/{i}",
            data_source="chains",
            question=f"{i}+1",
            steps=("a\n", "b"),
            answer=str(i + 1),
        )
        for i in range(count)
    ]


@pytest.fixture
def problems(tmp_path):
    path = tmp_path / "heldout.parquet"
    write_problems(path, instances(4), split="heldout")
    return path


@pytest.fixture
def trained_run(tmp_path, problems):
    folder = tmp_path / "run"
    folder.mkdir()
    settings = {
        "seele": {"prompt": {"template": "plain"}},
        "data": {"max_response_length": 24, "val_files": [str(problems)]},
    }
    (folder / "resolved.yaml").write_text(yaml.safe_dump(settings))
    return folder


class KnowsFour:
    """Answers 3+1, says nothing to the rest, and remembers what it was asked."""

    def __init__(self):
        self.requests = []

    def answer(self, question):
        return "\\boxed{4}" if question == "3+1" else "No idea."

    def __call__(self, requests):
        self.requests = list(requests)
        # Not in order: nothing may depend on that.
        for index in reversed(range(len(requests))):
            text = self.answer(requests[index].question)
            yield index, Response(text=text, num_tokens=2, finish=Finish.STOP)


class Killed(Exception):
    """In the place of a signal, which is tested with a real process."""


class AlwaysFour(KnowsFour):
    """Answers 4 to everything."""

    def answer(self, question):
        return "\\boxed{4}"


def evaluate(engine, *argv):
    return evaluation.evaluate(parse_arguments([str(each) for each in argv]), complete=engine).scores


def written(out):
    return json.loads((out / "scores.json").read_text())


def test_repeated_files_of_problems_add_up_while_a_later_temperature_replaces_the_first():
    words = "--problems a=a.parquet --problems b=b.parquet --temperature 0 --temperature 0.6 1"
    found = parse_arguments(words.split())
    assert ([name for name, _ in found.problems], found.temperature) == (["a", "b"], (0.6, 1.0))
    assert parse_arguments([]).problems == ()


def test_a_problem_file_is_scored_and_every_sample_is_written(model, problems, tmp_path):
    out = tmp_path / "out"
    (score,) = evaluate(AlwaysFour(), "--model", model, "--problems", f"heldout={problems}", "--out", out)
    # Answers are 1, 2, 3, 4.
    assert (score.benchmark, score.accuracy, score.problems) == ("heldout", 0.25, 4)
    assert written(out)["scores"][0]["accuracy"] == 0.25
    predictions = read_predictions(out).predictions
    assert {each.instance_id: each.correct for each in predictions} == {
        "chains/0": False, "chains/1": False, "chains/2": False, "chains/3": True,
    }  # fmt: skip
    assert (out / "scores.md").read_text().startswith("| benchmark")


def test_samples_of_another_problem_with_the_same_id_are_not_taken_for_this_ones(model, problems, tmp_path):
    out, corrected = tmp_path / "out", tmp_path / "corrected.parquet"
    evaluate(AlwaysFour(), "--model", model, "--problems", f"heldout={problems}", "--out", out)
    first, *others = instances(4)
    write_problems(corrected, [replace(first, answer="7", steps=("\\boxed{7}",)), *others], split="heldout")
    before = (out / "predictions.jsonl").read_bytes()
    with pytest.raises(
        ConfigError, match=r"another heldout problem 'chains/0'.*\('1'\).*\('7'\); name another"
    ):
        evaluate(AlwaysFour(), "--model", model, "--problems", f"heldout={corrected}", "--out", out)
    assert (out / "predictions.jsonl").read_bytes() == before


def test_every_file_says_under_which_conditions(model, problems, tmp_path):
    out = tmp_path / "out"
    for name in ("tokenizer.model", "scores.json", "notes.txt"):
        (model / name).write_text("{}")
    evaluate(KnowsFour(), "--model", model, "--problems", f"heldout={problems}", "--out", out, "--top-p", 0.9)
    conditions = written(out)["conditions"]
    assert list(conditions["weights_sha256"]) == ["model.safetensors"]
    assert list(conditions["files_sha256"]) == ["config.json", "tokenizer.model"]
    assert (conditions["hinted"], conditions["max_tokens"], conditions["seed"]) == (False, 2048, 0)
    assert (conditions["template"], conditions["grader"]) == ("r1_zero", "mathruler")
    assert "<think>" in conditions["template_text"]
    assert {"python", "mathruler", "sympy"} <= set(conditions["versions"])
    assert conditions["benchmarks"]["heldout"]["rows"] == 4
    shared = read_predictions(out).conditions
    assert shared["top_p"] == 0.9 and shared.items() <= conditions.items()
    assert "- top_p: 0.9" in (out / "scores.md").read_text()
    # Where it exists, tokenizer.json alone is the vocabulary.
    (model / "tokenizer.json").write_text("{}")
    assert [file.name for file in settings_files(model)] == ["config.json", "tokenizer.json"]


def test_greedy_and_sampled_are_scored_side_by_side(model, problems, tmp_path):
    engine = KnowsFour()
    scores = evaluate(
        engine, "--model", model, "--problems", f"heldout={problems}", "--out", tmp_path / "out",
        "--temperature", 0, 0.6, "--samples", 3,
    )  # fmt: skip
    assert [(score.temperature, score.samples) for score in scores] == [(0.0, 1), (0.6, 3)]
    assert len(engine.requests) == 4 + 4 * 3


def test_a_temperature_named_twice_is_sampled_once(model, problems, tmp_path):
    engine = KnowsFour()
    (score,) = evaluate(
        engine, "--model", model, "--problems", f"heldout={problems}", "--out", tmp_path / "out",
        "--temperature", 0.6, 0.6, "--samples", 2,
    )  # fmt: skip
    assert (score.samples, len(engine.requests)) == (2, 4 * 2)


def test_several_greedy_samples_are_refused(model, problems, tmp_path):
    with pytest.raises(ConfigError, match="--temperature 0 gives one sample, not 3"):
        evaluate(Untouchable(), *of_file(model, problems, tmp_path / "out", "--samples", 3))


def test_seeds_differ_between_samples_and_do_not_depend_on_what_else_is_evaluated(model, problems, tmp_path):
    few, many = KnowsFour(), KnowsFour()
    common = ("--model", model, "--temperature", 1, "--samples", 2)
    evaluate(few, *common, "--problems", f"b={problems}", "--out", tmp_path / "few")
    evaluate(many, *common, "--problems", f"a={problems}", f"b={problems}", "--out", tmp_path / "many")
    seeds = [request.seed for request in few.requests]
    assert len(set(seeds)) == 8
    assert [request.seed for request in many.requests][8:] == seeds


def test_no_prompt_holds_a_hint(model, problems, tmp_path):
    engine = KnowsFour()
    evaluate(engine, "--model", model, "--problems", f"heldout={problems}", "--out", tmp_path / "out")
    assert [request.question for request in engine.requests] == ["0+1", "1+1", "2+1", "3+1"]


def test_a_run_folder_gives_template_length_and_validation_files(model, trained_run):
    model.rename(trained_run / "merged")
    (score,) = evaluate(KnowsFour(), "--run", trained_run)
    assert (score.benchmark, score.template) == ("heldout", "plain")
    assert written(trained_run / "eval")["conditions"]["max_tokens"] == 24


def test_a_run_says_which_checkpoint_is_evaluated_and_whether_it_is_the_newest(model, trained_run, capsys):
    model.rename(merged := trained_run / "merged")
    evaluate(KnowsFour(), "--run", trained_run)
    assert "checkpoint" not in capsys.readouterr().err
    (merged / "merged_step.txt").write_text("80")
    (tracker := trained_run / "latest_checkpointed_iteration.txt").write_text("80")
    evaluate(KnowsFour(), "--run", trained_run)
    assert f"{merged}: the checkpoint of step 80\n" in capsys.readouterr().err
    tracker.write_text("160")
    evaluate(KnowsFour(), "--run", trained_run)
    said = f"{merged}: the checkpoint of step 80; the newest is of step 160: seele merge {trained_run}\n"
    assert said in capsys.readouterr().err


def test_a_runs_stop_strings_go_with_its_template_by_any_path(model, trained_run, tmp_path, monkeypatch):
    (tmp_path / "mine.txt").write_text("Q: {question}")
    settings = yaml.safe_load((trained_run / "resolved.yaml").read_text())
    settings["seele"]["prompt"] = {"template": f"{tmp_path}/mine.txt", "stop": ["Q:"]}
    (trained_run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.chdir(tmp_path)
    engine = KnowsFour()
    evaluate(engine, "--run", trained_run, "--model", model, "--template", "mine.txt", "--out", "out")
    assert {each.stop for each in engine.requests} == {("Q:",)}


@pytest.mark.parametrize(
    ("template", "options", "stop", "warned"),
    [
        ("moved.txt", (), (), True),
        ("r1_zero", ("--stop", ""), (), False),
        # The card has the SHA-256 of parts in Python files.
        ("moved.py:ASK", (), ("Q:",), False),
        ("other.py:ASK", (), (), True),
    ],
)
def test_a_runs_stop_strings_go_with_its_template_or_a_line_says_that_they_do_not(
    model, trained_run, tmp_path, capsys, template, options, stop, warned
):
    for name, text in (("mine.py", "ASK = 'Q: {question}'"), ("other.py", "ASK = 'R: {question}'")):
        (tmp_path / name).write_text(text)
    shutil.copy(tmp_path / "mine.py", tmp_path / "moved.py")
    (tmp_path / "moved.txt").write_text("Q: {question}")
    settings = yaml.safe_load((trained_run / "resolved.yaml").read_text())
    settings["seele"]["prompt"] = {"template": f"{tmp_path}/mine.py:ASK", "stop": ["Q:"]}
    (trained_run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    inputs = {f"{tmp_path}/mine.py": file_sha256(tmp_path / "mine.py")}
    (trained_run / "run_card.json").write_text(json.dumps({"inputs": inputs}))
    where = template if template == "r1_zero" else f"{tmp_path}/{template}"
    argv = ["--run", trained_run, "--model", model, "--out", tmp_path / "out", "--template", where, *options]
    plan = make_plan(parse_arguments([str(each) for each in argv]))
    assert {each.request.stop for each in plan.draws} == {stop}
    said = capsys.readouterr().err
    assert ("warning: " in said) == warned
    if warned:
        assert said == (
            f"warning: --template {where}: not the run's {tmp_path}/mine.py:ASK, so the run's stop strings "
            "['Q:'] do not apply; to apply them, pass each with --stop TEXT\n"
        )


def test_a_validation_file_named_like_a_benchmark_is_not_taken_for_it(model, trained_run, problems):
    problems.rename(named := problems.with_name("math500.parquet"))
    settings = yaml.safe_load((trained_run / "resolved.yaml").read_text())
    settings["data"]["val_files"] = [str(named)]
    (trained_run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    model.rename(trained_run / "merged")
    (score,) = evaluate(KnowsFour(), "--run", trained_run)
    assert score.benchmark == "val_math500"


def test_a_run_whose_model_is_not_merged_is_told_how(trained_run):
    with pytest.raises(ConfigError, match=rf"run/merged: no such folder; .*: seele merge {trained_run}$"):
        evaluate(Untouchable(), "--run", trained_run)


def test_options_go_before_what_the_run_says(model, trained_run, problems, tmp_path):
    (score,) = evaluate(
        KnowsFour(), "--run", trained_run, "--model", model, "--problems", f"mine={problems}",
        "--template", "r1_zero", "--max-tokens", 7, "--limit", 2, "--seed", 3, "--out", tmp_path / "out",
    )  # fmt: skip
    assert (score.benchmark, score.template, score.problems) == ("mine", "r1_zero", 2)
    conditions = written(tmp_path / "out")["conditions"]
    assert (conditions["max_tokens"], conditions["seed"]) == (7, 3)


def test_another_model_under_a_runs_settings_has_its_own_name_and_place(model, trained_run, tmp_path):
    (trained_run / "merged").symlink_to(model)
    for own in ((), ("--model", trained_run / "merged")):
        evaluate(KnowsFour(), "--run", trained_run, *own)
        assert written(trained_run / "eval")["conditions"]["name"] == "run"
    shutil.copytree(model, base := tmp_path / "base")
    (base / "model.safetensors").write_bytes(b"other weights")
    before = (trained_run / "eval" / "scores.json").read_bytes()
    for other in (("--model", base), ("--server", "http://none/v1", "--model", "base")):
        with pytest.raises(ConfigError, match=r"run/eval is for the run's own model, .*; name --out for"):
            evaluate(Untouchable(), "--run", trained_run, *other)
    evaluate(KnowsFour(), "--run", trained_run, "--model", base, "--out", tmp_path / "out")
    assert written(tmp_path / "out")["conditions"]["name"] == "base"
    assert (trained_run / "eval" / "scores.json").read_bytes() == before


def test_a_template_may_be_a_file(model, problems, tmp_path):
    (tmp_path / "mine.txt").write_text("Q: {question} A: \\boxed{")
    engine = KnowsFour()
    evaluate(
        engine, "--model", model, "--problems", f"a={problems}", "--template", tmp_path / "mine.txt",
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert written(tmp_path / "out")["conditions"]["template_text"] == "Q: {question} A: \\boxed{"


NINE = ("--benchmarks", "all", "--data-dir", FIXTURES, "--any-row-count")


def test_all_nine_are_drawn_as_the_paper_draws_them_and_averaged(model, tmp_path):
    engine, out = AlwaysFour(), tmp_path / "out"
    scores = evaluate(engine, "--model", model, *NINE, "--out", out)
    decodings = {score.benchmark: (score.temperature, score.samples) for score in scores}
    assert {name for name, decoding in decodings.items() if decoding == (0.6, 32)} == {"aime24", "amc23"}
    assert {decodings[name] for name in decodings.keys() - {"aime24", "amc23"}} == {(0.0, 1)}
    assert len(engine.requests) == sum(score.problems * score.samples for score in scores)
    averages = written(out)["averages"]
    assert averages.keys() == {"math", "general"}
    by_name = {score.benchmark: score.accuracy for score in scores}
    # One of MMLU-Pro's three is B) 4.
    assert by_name["mmlu_pro"] == pytest.approx(1 / 3)
    general = (by_name["arc_c"] + by_name["gpqa_diamond"] + by_name["mmlu_pro"]) / 3
    assert averages["general"]["value"] == pytest.approx(general)
    assert (out / "scores.md").read_text().startswith("| Model | GSM8K | MATH500 |")


def test_the_six_of_luffy_are_averaged_beside_the_papers_averages(model, tmp_path):
    out = tmp_path / "out"
    argv = ("--model", model, "--benchmarks", "luffy", "--data-dir", FIXTURES, "--any-row-count")
    scores = evaluate(AlwaysFour(), *argv, "--samples", 2, "--out", out)
    averages = written(out)["averages"]
    assert averages.keys() == {"luffy"}
    assert averages["luffy"]["value"] == pytest.approx(sum(score.accuracy for score in scores) / 6)
    head = "| Model | AIME24 | AIME25 | AMC (83) | MATH500 | Minerva | Olympiad | Avg.(LUFFY) |"
    assert head in (out / "scores.md").read_text()


def test_questions_that_must_not_be_published_are_not_written(model, tmp_path):
    evaluate(KnowsFour(), "--model", model, *NINE, "--out", tmp_path / "out")
    for each in read_predictions(tmp_path / "out").predictions:
        assert (each.question == "") is (each.benchmark == "gpqa_diamond")


# Where answers stand


class SaysFour(KnowsFour):
    """Thinks of 3 in a box, then says 4 without one."""

    def answer(self, question):
        return "Is it \\boxed{3}?</think> The answer is 4." if question == "2+1" else "The answer is 4."


def of_file(model, problems, out, *options):
    return ("--model", model, "--problems", f"heldout={problems}", "--out", out, *options)


def test_answers_without_a_box_count_only_where_they_are_asked_for(model, problems, tmp_path):
    (score,) = evaluate(SaysFour(), *of_file(model, problems, tmp_path / "box"))
    # 2+1 with its box in the thoughts.
    assert (score.accuracy, score.unboxed_share, score.no_answer_share) == (0.25, 0.0, 0.75)
    assert "without box" not in (tmp_path / "box/scores.md").read_text()
    (score,) = evaluate(SaysFour(), *of_file(model, problems, tmp_path / "last", "--answers", "box-or-last"))
    assert (score.accuracy, score.unboxed_share, score.no_answer_share) == (0.5, 0.75, 0.0)
    assert "without box %" in (tmp_path / "last/scores.md").read_text()
    conditions = written(tmp_path / "last")["conditions"]
    assert (conditions["answers"], conditions["after_thinking"]) == ("box-or-last", False)
    assert [each.is_unboxed for each in read_predictions(tmp_path / "last").predictions].count(True) == 3


def test_a_model_that_chats_need_not_use_a_box_unless_it_is_told_to(model, problems, tmp_path):
    chat = ("--template", "chat", "--stop", "")
    (score,) = evaluate(SaysFour(), *of_file(model, problems, tmp_path / "chat", *chat))
    assert (score.answers, score.unboxed_share) == ("box-or-last", 0.75)
    (score,) = evaluate(SaysFour(), *of_file(model, problems, tmp_path / "told", *chat, "--answers", "box"))
    assert (score.answers, score.unboxed_share) == ("box", 0.0)


@pytest.mark.parametrize("grader", ["mathruler", "math_verify"])
def test_only_the_text_behind_the_thoughts_counts(model, problems, tmp_path, grader):
    if grader != "mathruler":
        pytest.importorskip("math_verify")
    # r1_zero ends with <think>, so that a response without </think> is nothing but thoughts.
    options = ("--after-thinking", "--answers", "box-or-last", "--grader", grader)
    (score,) = evaluate(SaysFour(), *of_file(model, problems, tmp_path / "out", *options))
    assert (score.accuracy, score.no_answer_share) == (0.0, 0.75)
    texts = {each.instance_id: each.extracted for each in read_predictions(tmp_path / "out").predictions}
    assert texts == {"chains/0": None, "chains/1": None, "chains/2": "4", "chains/3": None}
    assert written(tmp_path / "out")["conditions"]["after_thinking"] is True


def test_a_runs_validation_files_are_graded_as_in_its_validation(
    model, trained_run, problems, tmp_path, capsys
):
    class CutOff(KnowsFour):
        """Every response hits the limit; the one to 2+1 has its box in the thoughts."""

        def answer(self, question):
            return "\\boxed{3}</think> 3" if question == "2+1" else super().answer(question)

        def __call__(self, requests):
            return ((n, replace(said, finish=Finish.LENGTH)) for n, said in super().__call__(requests))

    def reasons(*options):
        out = tmp_path / str(len([*tmp_path.iterdir()]))
        evaluate(CutOff(), "--run", trained_run, "--model", model, "--out", out, *options)
        rules = {name: written(out)["conditions"][name] for name in ("truncated_is_wrong", "after_thinking")}
        predictions = sorted(read_predictions(out).predictions, key=lambda each: each.instance_id)
        assert all(each.extracted is None for each in predictions if each.reason != "correct")
        return [str(each.reason) for each in predictions], [*rules.values()]

    none, right, cut = "no_answer", "correct", "truncated"
    assert reasons() == ([none, none, right, right], [False, False])
    settings = yaml.safe_load((trained_run / "resolved.yaml").read_text())
    settings["seele"]["reward"] = {"truncated_is_wrong": True, "after_thinking": True}
    (trained_run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    capsys.readouterr()
    assert reasons() == ([cut] * 4, [True, True])
    said = capsys.readouterr().err
    assert (
        f"{trained_run}: as in its validation, a response that hits the length limit is wrong; --no-" in said
    )
    assert f"{trained_run}: as in its validation, only the text after </think> counts; --no-after-" in said
    assert reasons("--no-truncated-is-wrong") == ([none, none, none, right], [False, True])
    capsys.readouterr()
    # What is named keeps the rule of all models.
    assert reasons("--problems", f"heldout={problems}") == ([none, none, right, right], [False, False])
    assert "as in its validation" not in capsys.readouterr().err
    assert reasons("--problems", f"heldout={problems}", "--truncated-is-wrong")[0] == [cut] * 4


def test_a_runs_validation_files_are_judged_by_the_grader_of_its_training(
    model, trained_run, problems, tmp_path, capsys
):
    settings = yaml.safe_load((trained_run / "resolved.yaml").read_text())
    (tmp_path / "own.py").write_text(
        "def judge(data_source, solution_str, ground_truth, extra_info, right): return right\n"
    )
    own = f"{tmp_path}/own.py:judge"

    def judged(reward, *options):
        settings["seele"]["reward"] = reward
        (trained_run / "resolved.yaml").write_text(yaml.safe_dump(settings))
        arguments = parse_arguments(
            ["--run", str(trained_run), "--model", str(model), "--out", str(tmp_path / "out"), *options]
        )
        capsys.readouterr()
        plan = make_plan(arguments)
        return plan, capsys.readouterr().err

    plan, said = judged({"grader": "multiple_choice", "time_limit_s": 7, "max_answer_chars": 99})
    assert (plan.conditions["grader"], plan.reward.time_limit_s) == ("multiple_choice", 7)
    assert plan.reward.max_answer_chars == plan.conditions["max_answer_chars"] == 99
    assert plan.conditions["time_limit_s"] == 7, "a folder does not mix verdicts under other limits"
    assert f"{trained_run}: as in its validation, the grader is multiple_choice; --grader mathruler" in said
    assert plan.reward.num_workers == 2
    reward = {"grader": own, "kwargs": {"right": 0.75}, "correct_from": 0.5, "num_workers": 32}
    plan, said = judged(reward)
    assert plan.reward.kwargs == {"right": 0.75} and f"the grader is {own}" in said
    assert plan.reward.num_workers == 32, "a judge behind a server waits most of the time"
    assert judged(reward, "--graders", "3")[0].reward.num_workers == 3
    # What the command names is taken, and named problems have the same default for all models.
    named = ("--problems", f"heldout={problems}")
    for options in (("--grader", "mathruler"), named):
        plan, said = judged({"grader": own, "kwargs": {"right": 0.75}}, *options)
        assert (plan.conditions["grader"], plan.reward.kwargs, said) == ("mathruler", {}, "")
    plan, said = judged({"grader": own, "kwargs": {"right": 0.75}}, *named, "--grader", own)
    assert plan.reward.kwargs == {"right": 0.75}


def test_math_verify_finds_the_answer_in_the_text_behind_the_thoughts(model, problems, tmp_path):
    pytest.importorskip("math_verify")

    class Formulas(KnowsFour):
        def answer(self, question):
            return "$9$ </think> We see $1+1=2$, so the answer is $" + str(eval(question)) + "$."

    options = ("--after-thinking", "--answers", "text", "--grader", "math_verify", "--template", "luffy")
    (score,) = evaluate(Formulas(), *of_file(model, problems, tmp_path / "out", *options))
    assert score.accuracy == 1.0


def test_a_reward_function_of_the_users_own_judges_whole_responses(model, problems, tmp_path):
    (tmp_path / "own.py").write_text(
        "def judge(data_source, solution_str, ground_truth, extra_info):\n"
        "    is_told = data_source == 'chains' and extra_info['question'].endswith('+1')\n"
        "    return is_told and solution_str.endswith('idea.') and ground_truth in '12'\n"
    )
    options = ("--grader", f"{tmp_path}/own.py:judge")
    (score,) = evaluate(KnowsFour(), *of_file(model, problems, tmp_path / "out", *options))
    # Answers are 1, 2, 3, 4, and to 3+1 the response is "\\boxed{4}".
    assert score.accuracy == 0.5
    assert written(tmp_path / "out")["scores"][0]["no_answer_share"] is None
    assert (
        (tmp_path / "out/scores.md")
        .read_text()
        .splitlines()[2]
        .endswith("|         0.0 |        0.0 |           - |")
    )
    found = {each.instance_id: each.extracted for each in read_predictions(tmp_path / "out").predictions}
    assert found == {"chains/0": None, "chains/1": None, "chains/2": None, "chains/3": "4"}


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ("1 / 0", r"own.py:1 raised ZeroDivisionError: .* on problem 'chains/0', response ''"),
        # Of the first problem only the worked solution, "a\nb", is refused.
        (
            "5.0 * bool(solution_str)",
            r"own.py:1 returned the score 5.0 on problem 'chains/0', response 'a\\nb'",
        ),
    ],
)
def test_a_reward_function_is_tried_before_the_model_is_loaded(
    model, problems, tmp_path, returned, complaint
):
    (tmp_path / "own.py").write_text(
        f"def judge(data_source, solution_str, ground_truth, extra_info): return {returned}\n"
    )
    options = ("--grader", f"{tmp_path}/own.py:judge")
    with pytest.raises(PluginError, match=complaint):
        evaluate(Untouchable(), *of_file(model, problems, tmp_path / "out", *options))
    assert not (tmp_path / "out").exists()


def test_a_reward_function_of_the_users_own_gets_the_worked_solution(model, problems, tmp_path):
    (tmp_path / "own.py").write_text(
        "def judge(data_source, solution_str, ground_truth, extra_info):\n"
        "    return extra_info['steps'] == ['a\\n', 'b']\n"
    )
    options = ("--grader", f"{tmp_path}/own.py:judge")
    assert evaluate(KnowsFour(), *of_file(model, problems, tmp_path / "out", *options))[0].accuracy == 1.0


@pytest.mark.parametrize("error", [Killed, KeyboardInterrupt])
def test_after_the_graders_error_or_an_interrupt_nothing_that_waits_is_graded(
    model, problems, tmp_path, monkeypatch, error
):
    graded, is_over = [], Event()
    grade = evaluation.grade

    def slow(*given):
        graded.append(given)
        if error is Killed:
            raise Killed
        is_over.wait(60)
        return grade(*given)

    class Interrupted(KnowsFour):
        def __call__(self, requests):
            yield from super().__call__(requests)
            if error is KeyboardInterrupt:
                raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "Event", lambda: is_over)
    monkeypatch.setattr(evaluation, "grade", slow)
    with pytest.raises(error):
        evaluate(Interrupted(), *of_file(model, problems, tmp_path / "out", "--graders", "1"))
    assert len(graded) == 1


def test_a_runs_own_reward_function_judges_as_in_training(model, trained_run, tmp_path):
    (tmp_path / "own.py").write_text(
        "def half(data_source, solution_str, ground_truth, extra_info, right):\n"
        "    return 0.5 * (ground_truth == right)\n"
    )
    resolved = trained_run / "resolved.yaml"
    settings = yaml.safe_load(resolved.read_text())
    reward = {"grader": f"{tmp_path}/own.py:half", "kwargs": {"right": "3"}, "correct_from": 0.5}
    settings["seele"]["reward"] = reward | {"isolation": "none", "num_workers": 7}
    resolved.write_text(yaml.safe_dump(settings))
    argv = ("--run", trained_run, "--model", model, "--out", tmp_path / "out")
    (score,) = evaluate(KnowsFour(), *argv, "--grader", os.path.relpath(f"{tmp_path}/own.py:half"))
    assert score.accuracy == 0.25
    conditions = written(tmp_path / "out")["conditions"]
    assert (conditions["grader_kwargs"], conditions["correct_from"]) == ({"right": "3"}, 0.5)
    assert conditions["isolation"] == "none" and "memory_limit_mb" not in conditions
    settings["seele"]["reward"]["isolation"] = "thread"
    resolved.write_text(yaml.safe_dump(settings))
    with pytest.raises(ConfigError, match=r"run/resolved.yaml: seele.reward: isolation must be one of"):
        evaluate(Untouchable(), *argv, "--grader", f"{tmp_path}/own.py:half")
    # Another grader has the defaults.
    evaluate(KnowsFour(), *argv, "--grader", "mathruler")
    assert "correct_from" not in written(tmp_path / "out")["conditions"]


@pytest.mark.parametrize(
    ("grader", "card", "right", "unused"),
    [
        ("new/own.py:half", True, {"right": "3"}, ""),
        ("new/own.py:half", False, {}, "kwargs, correct_from"),
        ("new/own.py:other", True, {}, "kwargs, correct_from"),
        ("new/changed.py:half", True, {}, "kwargs, correct_from"),
    ],
)
def test_a_runs_own_reward_function_may_have_moved(
    model, trained_run, tmp_path, capsys, grader, card, right, unused
):
    code = (
        "def half(data_source, solution_str, ground_truth, extra_info, right='4'):\n"
        "    return 0.5 * (ground_truth == right)\n\n\nother = half\n"
    )
    (new := tmp_path / "new").mkdir()
    (new / "own.py").write_text(code)
    (new / "changed.py").write_text(f"{code}\n")
    settings = yaml.safe_load((trained_run / "resolved.yaml").read_text())
    reward = {"grader": f"{tmp_path}/own.py:half", "kwargs": {"right": "3"}, "correct_from": 0.5}
    settings["seele"]["reward"] = reward | {"time_limit_s": 5.0, "num_workers": 3}
    (trained_run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    if card:
        inputs = {f"{tmp_path}/own.py": file_sha256(new / "own.py")}
        (trained_run / "run_card.json").write_text(json.dumps({"inputs": inputs}))
    argv = ["--run", trained_run, "--model", model, "--out", tmp_path / "out", "--grader", tmp_path / grader]
    plan = make_plan(parse_arguments([str(each) for each in argv]))
    assert (plan.reward.kwargs, plan.reward.grader) == (right, f"{tmp_path}/{grader}")
    assert plan.reward.correct_from == (0.5 if right else 1.0)
    said = capsys.readouterr().err
    assert said.count("\n") == said.count("warning: ") == bool(unused)
    if unused:
        assert said.startswith(
            f"warning: --grader {tmp_path}/{grader}: neither the run's {tmp_path}/own.py:half "
        )
        assert f"seele.reward do not apply: {unused}; to apply them, name one of the two\n" in said


def test_no_verdict_of_a_reward_function_outlives_its_code(model, problems, tmp_path, monkeypatch):
    code = "def judge(data_source, solution_str, ground_truth, extra_info):\n    return {}\n"
    (own := tmp_path / "own.py").write_text(code.format("1.0"))
    argv = of_file(model, problems, tmp_path / "out", "--grader", f"{own}:judge")
    assert evaluate(KnowsFour(), *argv)[0].accuracy == 1.0
    evaluate(Untouchable(), *argv)
    own.write_text(code.format("0.0"))
    os.utime(own, (0, 0))  # else its compiled file, of the same second and size, would pass for it
    # A command is a process of its own, which imports the file again.
    for name in [each for each in sys.modules if each.startswith("seele_plugin_own_")]:
        monkeypatch.delitem(sys.modules, name)
    engine = KnowsFour()
    assert evaluate(engine, *argv)[0].accuracy == 0.0
    assert len(engine.requests) == 4
    assert written(tmp_path / "out")["conditions"]["grader_sha256"] == [file_sha256(own)]


def test_files_are_compared_by_what_they_hold(model, problems, tmp_path, monkeypatch):
    code = "def {}(data_source, solution_str, ground_truth, extra_info):\n    return 1.0\n"
    (tmp_path / "own.py").write_text(code.format("judge") + code.format("other"))
    (template := tmp_path / "mine.txt").write_text("Q: {question}")
    argv = of_file(model, problems, tmp_path / "out")
    with pytest.raises(Killed):
        evaluate(DiesAfter(3), *argv, "--template", template, "--grader", f"{tmp_path}/own.py:judge")
    monkeypatch.chdir(tmp_path)
    named = ("--template", "mine.txt", "--grader")
    with pytest.raises(ConfigError, match=r"conditions: grader was '.*own.py:judge' and is 'own.py:other'\."):
        evaluate(Untouchable(), *argv, *named, "own.py:other")
    engine = KnowsFour()
    evaluate(engine, *argv, *named, "own.py:judge")
    assert len(engine.requests) == 1
    template.write_text("A: {question}")
    template_text.cache_clear()
    (tmp_path / "out/scores.json").unlink()
    with pytest.raises(ConfigError, match=r"conditions: template_text was 'Q: {question}' and is 'A: "):
        evaluate(Untouchable(), *argv, *named, "own.py:judge")


def test_what_stands_behind_a_stop_string_is_no_answer(model, problems, tmp_path):
    class GoesOn(KnowsFour):
        def answer(self, question):
            return "Let me think. User: the answer is 4."

    (score,) = evaluate(GoesOn(), *of_file(model, problems, tmp_path / "out", "--answers", "box-or-last"))
    assert score.no_answer_share == 1.0


def test_an_evaluation_from_before_these_conditions_is_gone_on_with(model, problems, tmp_path):
    argv = of_file(model, problems, tmp_path / "out")
    with pytest.raises(Killed):
        evaluate(DiesAfter(3), *argv)
    path = tmp_path / "out/predictions.jsonl"
    head, *lines = path.read_text().splitlines()
    conditions = json.loads(head)["conditions"]
    del conditions["answers"], conditions["after_thinking"], conditions["truncated_is_wrong"]
    samples = [json.loads(line) for line in lines]
    for sample in samples:
        del sample["is_unboxed"]
    path.write_text("".join(json.dumps(row) + "\n" for row in ({"conditions": conditions}, *samples)))
    with pytest.raises(ConfigError, match="answers was 'box' and is 'box-or-last'"):
        evaluate(Untouchable(), *argv, "--answers", "box-or-last")
    engine = KnowsFour()
    evaluate(engine, *argv)
    assert len(engine.requests) == 1


# By the columns of the rows


def parts(score, column):
    return [(part.value, part.problems, part.accuracy.value) for part in score.by_column[column]]


MATH500 = ("--benchmarks", "math500", "--data-dir", FIXTURES, "--any-row-count")


def test_accuracy_is_told_apart_by_any_columns_of_a_benchmark(model, tmp_path):
    class Halves(KnowsFour):
        def answer(self, question):
            return "\\boxed{\\frac{3}{4}}" if "fraction" in question else "\\boxed{0}"

    out = tmp_path / "out"
    argv = ("--model", model, *MATH500, "--out", out, "--by", "level", "--by", "subject")
    (score,) = evaluate(Halves(), *argv)
    assert parts(score, "level") == [("1", 1, 1.0), ("2", 1, 0.0), ("5", 1, 0.0)]
    assert parts(score, "subject") == [("Algebra", 1, 0.0), ("Prealgebra", 1, 1.0), ("Precalculus", 1, 0.0)]
    kept = [each.columns for each in read_predictions(out).predictions]
    assert {"level": 1, "subject": "Prealgebra"} in kept
    [part, *_] = written(out)["scores"][0]["by_column"]["level"]
    assert (part["value"], part["problems"], part["accuracy"]["value"]) == ("1", 1, 1.0)
    assert "## math500 by level (greedy)\n\n| value | problems | avg@1 % " in (out / "scores.md").read_text()


def test_a_problem_file_may_be_told_apart_by_its_columns_and_each_benchmark_by_those_it_has(
    model, problems, tmp_path
):
    argv = of_file(model, problems, tmp_path / "out", *MATH500)
    columns = ("--by", "subject", "--by", "extra_info.split", "--by", "data_source")
    own, math500 = evaluate(AlwaysFour(), *argv, *columns)
    assert parts(own, "data_source") == [("chains", 4, 0.25)]
    assert parts(own, "extra_info.split") == [("heldout", 4, 0.25)]
    assert (own.by_column.keys(), math500.by_column.keys()) == (
        {"data_source", "extra_info.split"}, {"subject"},
    )  # fmt: skip


def test_a_column_may_be_asked_for_later_and_nothing_is_drawn_again(model, tmp_path):
    argv = ("--model", model, *MATH500, "--out", tmp_path / "out")
    evaluate(AlwaysFour(), *argv)
    before = (tmp_path / "out/predictions.jsonl").read_bytes()
    (score,) = evaluate(Untouchable(), *argv, "--by", "level")
    assert [value for value, *_ in parts(score, "level")] == ["1", "2", "5"]
    assert (tmp_path / "out/predictions.jsonl").read_bytes().startswith(before)
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    # The tables are those of the columns that are asked for now; of others, some problems may lack values.
    assert evaluate(Untouchable(), *argv, "--by", "subject")[0].by_column.keys() == {"subject"}
    assert evaluate(Untouchable(), *argv)[0].by_column == {}
    assert evaluate(Untouchable(), *argv, "--by", "level") == (score,)
    assert (tmp_path / "out/scores.md").read_bytes() == files["scores.md"]


def test_pass_at_k_is_a_table_and_a_figure_where_there_are_several_samples(model, problems, tmp_path):
    argv = of_file(model, problems, tmp_path / "out")
    evaluate(AlwaysFour(), *argv)
    assert not (tmp_path / "out/pass_at_k.png").exists()
    assert "## pass@k" not in (tmp_path / "out/scores.md").read_text()
    evaluate(AlwaysFour(), *argv, "--temperature", 0, 1, "--samples", 3)
    assert (tmp_path / "out/pass_at_k.png").read_bytes().startswith(b"\x89PNG")
    section = (tmp_path / "out/scores.md").read_text().split("## pass@k\n\n")[1]
    assert [line.split("|")[1].strip() for line in section.splitlines()[2:5]] == ["1", "2", "3"]
    assert written(tmp_path / "out")["scores"][1]["estimates"]["pass@3"]["value"] == 0.25
    # The figure is one of the scores: it goes where they go.
    evaluate(AlwaysFour(), *argv, "--seed", 1)
    assert (tmp_path / "out/earlier_1/pass_at_k.png").exists()
    assert not (tmp_path / "out/pass_at_k.png").exists()


# Going on


class DiesAfter(KnowsFour):
    def __init__(self, count):
        super().__init__()
        self.count = count

    def __call__(self, requests):
        for number, answer in enumerate(super().__call__(requests)):
            if number == self.count:
                raise Killed
            yield answer


def test_what_is_finished_is_neither_drawn_again_nor_changed(model, problems, tmp_path):
    out = tmp_path / "out"
    argv = ("--model", model, "--problems", f"heldout={problems}", "--out", out)
    with pytest.raises(Killed):
        evaluate(DiesAfter(3), *argv)
    assert not (out / "scores.json").exists()
    before = (out / "predictions.jsonl").read_bytes()
    engine = KnowsFour()
    evaluate(engine, *argv)
    assert len(engine.requests) == 1
    after = (out / "predictions.jsonl").read_bytes()
    assert after.startswith(before) and after.count(b"\n") == 5


def test_a_finished_evaluation_is_not_drawn_again_and_its_scores_stay(model, problems, tmp_path):
    out = tmp_path / "out"
    argv = ("--model", model, "--problems", f"heldout={problems}", "--out", out)
    evaluate(KnowsFour(), *argv)
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    evaluate(Untouchable(), *argv)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == files


def test_benchmarks_and_samples_can_be_added(model, problems, tmp_path):
    common = ("--model", model, "--out", tmp_path / "out", "--temperature", 1)
    evaluate(KnowsFour(), *common, "--problems", f"a={problems}", "--samples", 2)
    engine = KnowsFour()
    scores = evaluate(engine, *common, "--problems", f"a={problems}", f"b={problems}", "--samples", 3)
    assert len(engine.requests) == 4 * 1 + 4 * 3
    assert [(score.benchmark, score.samples) for score in scores] == [("a", 3), ("b", 3)]


def test_what_the_scores_leave_out_is_named_and_scored_again_without_the_model(
    model, problems, tmp_path, capsys
):
    common = ("--model", model, "--out", tmp_path / "out")
    evaluate(KnowsFour(), *common, "--problems", f"a={problems}")
    assert "leave out" not in capsys.readouterr().err
    evaluate(KnowsFour(), *common, "--problems", f"b={problems}", "--temperature", 1, "--samples", 2)
    assert "the scores leave out a at T=0, whose samples stay in" in capsys.readouterr().err
    evaluate(KnowsFour(), *common, "--problems", f"b={problems}")
    assert "the scores leave out a at T=0, b at T=1, whose" in capsys.readouterr().err
    scores = evaluate(Untouchable(), *common, "--problems", f"a={problems}", f"b={problems}")
    assert [score.benchmark for score in scores] == ["a", "b"]


def test_another_model_does_not_go_on_from_this_one(model, problems, tmp_path):
    argv = ("--model", model, "--problems", f"heldout={problems}", "--out", tmp_path / "out")
    with pytest.raises(Killed):
        evaluate(DiesAfter(3), *argv)
    (model / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(ConfigError, match="under other conditions: weights_sha256 was"):
        evaluate(Untouchable(), *argv)


def test_a_validation_file_may_be_a_single_name(trained_run):
    settings = yaml.safe_load((trained_run / "resolved.yaml").read_text())
    settings["data"]["val_files"] = "data/harder.parquet"
    (trained_run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    assert read_run_defaults(trained_run).problem_files == {"harder": Path("data/harder.parquet")}


class Untouchable:
    """In the place of a model that must not be loaded."""

    def __call__(self, requests):
        raise AssertionError("the model must not be touched")


OF_MATH500 = ["--model", "{model}", "--benchmarks", "math500", "--data-dir", "{fixtures}", "--any-row-count"]
BAD = [
    pytest.param(("--model", "absent", "--problems", "a={problems}"), "no such model folder", id="no model"),
    pytest.param(("--model", "{empty}", "--problems", "a={problems}"), "no config.json", id="no config"),
    pytest.param(
        ("--model", "{model}", "--problems", "a=absent.parquet"), "no such file", id="no problem file"
    ),
    pytest.param(("--model", "{model}", "--problems", "a={junk}"), "junk.parquet", id="no parquet"),
    pytest.param(("--model", "{model}", "--problems", "a={hollow}"), "has no rows", id="no rows"),
    pytest.param(
        ("--model", "{model}", "--benchmarks", "gsm9k", "--data-dir", "."), "unknown ['gsm9k']", id="unknown"
    ),
    pytest.param(
        ("--model", "{model}", "--benchmarks", "gsm8k", "--data-dir", "{fixtures}"),
        "3 rows, but gsm8k has 1319",
        id="wrong row count",
    ),
    pytest.param(
        ("--model", "{model}", "--problems", "a={problems}", "--template", "plane"),
        "unknown prompt template 'plane'",
        id="unknown template",
    ),
    pytest.param(
        ("--model", "{model}", "--problems", "a={problems}", "--template", "{empty_template}"),
        "needs {question} where the question goes",
        id="template without question",
    ),
    pytest.param(
        ("--model", "{model}", "--problems", "a={problems}", "--grader", "judge"),
        "unknown name 'judge'",
        id="unknown grader",
    ),
    pytest.param(
        ("--model", "{model}", "--problems", "a={problems}", "--answers", "text"),
        "--answers text: the grader must find the answer in the text, which only math_verify and strict+ do, "
        "got 'mathruler'; name one of them with --grader",
        id="a grader that reads no text",
    ),
    pytest.param(
        (*OF_MATH500, "--by", "level", "--by", "topic"),
        "--by topic: no such column of at most 100 different values; math500 has ['answer', 'level', "
        "'problem', 'solution', 'subject', 'unique_id']",
        id="unknown column",
    ),
    pytest.param(
        ("--model", "{model}", "--benchmarks", "math500", "--data-dir", "{empty}"), "math500", id="no data"
    ),
    pytest.param(
        ("--model", "{model}", "--benchmarks", "math500", "--data-dir", "{empty}", "--grader", "typo"),
        "unknown name 'typo'",
        id="a grader, before data that may be on the hub",
    ),
    pytest.param(("--model", "{model}"), "nothing to evaluate", id="nothing"),
    pytest.param(("--problems", "a={problems}"), "name --model and --out", id="no model named"),
    pytest.param(
        ("--model", "{model}", "--problems", "a={problems}", "a={problems}"), "different names", id="twice"
    ),
    pytest.param(
        ("--model", "{model}", "--problems", "math={problems}"),
        "--problems math=...: benchmarks or averages have this name; choose another",
        id="the name of an average",
    ),
    pytest.param(("--run", "{empty}", "--model", "{model}"), "resolved.yaml", id="no run"),
    pytest.param(
        ("--model", "{model}", "--problems", "a={problems}", "--revision", "v1"),
        "--revision v1: concerns only a model on the hub, but ",
        id="revision of a folder",
    ),
    pytest.param(
        ("--model", "{model}", "--problems", "a={problems}", "--concurrency", "8"),
        "--concurrency 8: concerns only --server; omit it",
        id="concurrency without a server",
    ),
    *(
        pytest.param(
            ("--server", "http://none/v1", "--model", "m", "--problems", "a={problems}", option, value),
            f"{option} {value}: concerns only this machine's engine, not --server; omit it",
            id=f"{option} with a server",
        )
        for option, value in (
            ("--revision", "v1"),
            ("--data-parallel", "1"),
            ("--tensor-parallel", "2"),
            ("--gpu-memory-share", "0.5"),
            ("--dtype", "float32"),
        )
    ),
]


@pytest.mark.parametrize(("argv", "message"), BAD)
def test_bad_input_is_refused_before_the_model_is_loaded_and_nothing_is_written(
    argv, message, model, problems, tmp_path
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "template.txt").write_text("no place for it")
    (tmp_path / "junk.parquet").write_text("no parquet")
    write_problems(tmp_path / "hollow.parquet", [], split="x")
    places = {name: tmp_path / name for name in ("empty", "model")}
    places |= {name: tmp_path / f"{name}.parquet" for name in ("junk", "hollow")}
    places |= {"fixtures": FIXTURES, "problems": problems, "empty_template": tmp_path / "template.txt"}
    out = tmp_path / "out"
    filled = [argument.format(**places) for argument in argv]
    with pytest.raises(SeeleError) as error_info:
        evaluate(Untouchable(), *filled, "--out", out)
    assert message in str(error_info.value)
    assert not out.exists()


@pytest.mark.parametrize("below", ["", "sub", "sub/sub"])
def test_an_output_that_is_or_lies_below_a_file_is_refused(model, problems, below):
    with pytest.raises(ConfigError, match=r"heldout\.parquet:? is a file"):
        evaluate(Untouchable(), "--model", model, "--problems", f"a={problems}", "--out", problems / below)


def test_an_output_that_cannot_be_written_is_refused(model, problems):
    with pytest.raises(ConfigError, match=r"--out /proc/x: cannot be written"):
        evaluate(Untouchable(), "--model", model, "--problems", f"a={problems}", "--out", "/proc/x")


def test_what_the_operating_system_refuses_is_one_line(tmp_path, capsys):
    def command():
        return (tmp_path / "absent").read_text()

    assert run_command(command) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: [Errno 2] ") and str(tmp_path / "absent") in said
    assert said.count("\n") == 1


def test_what_the_terminals_encoding_lacks_is_escaped(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert run_command(lambda: "x \N{LESS-THAN OR EQUAL TO} 1\n") == 0
    terminal.flush()
    assert terminal.buffer.getvalue() == b"x \\u2264 1\n"


def test_the_command_ends_with_status_2_and_one_line(problems, tmp_path, capsys):
    argv = ["--model", "absent", "--problems", f"a={problems}", "--out", str(tmp_path / "out")]
    assert evaluation.main(argv) == 2
    assert capsys.readouterr().err.startswith("error: absent: no such model folder")


def test_a_model_that_is_replaced_while_it_is_loaded_is_not_scored_as_the_one_that_was_hashed(
    model, problems, tmp_path
):
    class Merged(KnowsFour):
        """Another checkpoint takes the place of the model while the engine starts."""

        def __call__(self, requests):
            shutil.copytree(model, partial := tmp_path / "partial")
            shutil.rmtree(model)
            partial.rename(model)
            yield from super().__call__(requests)

    argv, out = of_file(model, problems, tmp_path / "out"), tmp_path / "out"
    with pytest.raises(CheckpointError, match=r"model.safetensors: was replaced while the model was loaded"):
        evaluate(Merged(), *argv)
    assert not read_predictions(out).predictions
    assert len(evaluate(KnowsFour(), *argv)) == 1


def test_a_failing_model_leaves_nothing_behind(model, problems, tmp_path):
    with pytest.raises(AssertionError, match="must not be touched"):
        evaluate(Untouchable(), "--model", model, "--problems", f"a={problems}", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_that_fails_before_its_first_response_changes_nothing(model, problems, tmp_path):
    argv, out = of_file(model, problems, tmp_path / "out"), tmp_path / "out"
    with pytest.raises(Killed):
        evaluate(DiesAfter(0), *argv)
    evaluate(KnowsFour(), *argv, "--max-tokens", 9)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(Killed):
        evaluate(DiesAfter(0), *argv)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_model_without_weights_is_refused(model):
    (model / "model.safetensors").unlink()
    with pytest.raises(DataError, match="holds no weights"):
        find_weights(model)


class HubDouble(ModuleType):
    """Stands in for ``huggingface_hub``."""

    def __init__(self, folder):
        super().__init__("huggingface_hub")
        self.folder = folder
        self.calls = []

    def snapshot_download(self, name, *, revision, allow_patterns):
        self.calls.append((name, revision))
        if self.folder is None:
            raise OSError("no such repository")
        if "pytorch_model*.bin" in allow_patterns:
            (self.folder / "pytorch_model.bin").write_bytes(b"weights")
        return str(self.folder)


def test_a_model_may_be_a_name_on_the_hub(model, monkeypatch):
    hub = HubDouble(model)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert find_model("Qwen/Qwen2.5-1.5B", revision="abc") == model
    assert find_model(str(model)) == model, "a folder goes before the hub"
    assert hub.calls == [("Qwen/Qwen2.5-1.5B", "abc")]
    (model / "model.safetensors").unlink()
    assert [file.name for file in find_weights(find_model("older/weights"))] == ["pytorch_model.bin"]


def test_a_model_that_is_nowhere_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", HubDouble(None))
    with pytest.raises(DataError, match="no such folder, and the Hugging Face hub did not provide it"):
        find_model("no/such")
    with pytest.raises(DataError, match="no such model folder"):
        find_model("runs/seele/merged")


def test_a_damaged_file_of_settings_is_refused(trained_run):
    (trained_run / "resolved.yaml").write_text("{")
    with pytest.raises(ConfigError, match=r"resolved.yaml: cannot be read as YAML"):
        read_run_defaults(trained_run)


@pytest.mark.parametrize("missing", ["seele", "data"])
def test_a_run_without_a_needed_key_is_refused_with_its_name(trained_run, missing):
    settings = yaml.safe_load((trained_run / "resolved.yaml").read_text())
    del settings[missing]
    (trained_run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(ConfigError, match=f"key '{missing}"):
        read_run_defaults(trained_run)


def test_validation_files_of_one_stem_are_refused(trained_run):
    settings = yaml.safe_load((trained_run / "resolved.yaml").read_text())
    settings["data"]["val_files"] = ["a/test.parquet", "b/test.parquet"]
    (trained_run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(ConfigError, match="same stem"):
        read_run_defaults(trained_run)


@pytest.mark.parametrize(
    "argv",
    [
        ["--problems", "no-equals-sign"],
        ["--temperature", "-1"],
        ["--temperature", "nan"],
        ["--samples", "0"],
        ["--max-tokens", "many"],
        ["--top-p", "0"],
        ["--answers", "anywhere"],
        ["--model", ""],
        ["--server", " "],
        ["--template", ""],
        ["--benchmarks", ","],
    ],
)
def test_arguments_that_do_not_parse_end_with_status_2(argv, capsys):
    with pytest.raises(SystemExit) as exit_info:
        parse_arguments(argv)
    assert exit_info.value.code == 2
