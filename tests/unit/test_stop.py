"""A response is over where the next turn would begin: whoever draws it, and whatever the engine does."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("omegaconf", reason="omegaconf is not installed")

from seele.config import PromptConfig, SeeleConfig, from_mapping
from seele.data.storage.schema import write_problems
from seele.errors import ConfigError
from seele.records import Finish, Instance
from seele.reward.grader import GraderPool
from seele.rollout.stop import text_before_stop
from seele.rollout.templates import STOP_STRINGS, TEMPLATES, render_prompt, stop_strings
from seele_eval import difficulty, hint_curve, run
from seele_eval.arguments import parse_arguments
from seele_eval.conditions import differing
from seele_eval.generation import EngineSettings
from seele_eval.predictions import read_predictions
from seele_eval.prompts import Request, Response
from seele_eval.server import Server, complete_on_server
from seele_eval.validation import Conditions, accuracy_by_split, requests_of_step

# Answers 4, then makes up another turn.
RUNS_ON = "so it is \\boxed{4}. User: And 3+4? Assistant: That is \\boxed{7}"
ANSWER = "so it is \\boxed{4}. "

FOUR = Instance(instance_id="p", data_source="d", question="3+1", steps=("a\n", "b"), answer="4")

STYLES = ("r1_zero", "sec", "luffy", "prime")


# The strings


@pytest.mark.parametrize("template", STYLES)
def test_a_text_that_runs_on_into_another_turn_ends_before_it(template):
    assert text_before_stop(RUNS_ON, STOP_STRINGS[template]) == ANSWER


def test_an_answer_between_its_tags_is_kept():
    text = "reasoning </think> <answer> \\boxed{4} </answer> \\boxed{7}"
    assert text_before_stop(text, STOP_STRINGS["r1_zero"]).endswith("<answer> \\boxed{4} ")


def test_chatml_ends_at_either_of_its_marks():
    stop = STOP_STRINGS["qwen"]
    assert text_before_stop("\\boxed{4}<|im_end|>\n<|im_start|>user", stop) == "\\boxed{4}"
    assert text_before_stop("\\boxed{4}\n<|im_start|>user", stop) == "\\boxed{4}\n"


def test_the_first_of_several_counts_also_at_the_start():
    assert text_before_stop("a b c", ("c", "b")) == "a "
    assert text_before_stop("Assistant: 4", ("Assistant:",)) == ""
    assert text_before_stop("a b c", ()) == "a b c"


def test_every_turn_that_a_template_writes_is_one_that_it_stops_at():
    for name in TEMPLATES:
        prompt = render_prompt("", name)
        begun = [mark for mark in ("User:", "Assistant:", "<|im_start|>", "<|im_end|>") if mark in prompt]
        assert set(begun) <= set(stop_strings(name, None)), name


def test_a_template_without_turns_has_no_stop_strings(tmp_path):
    assert stop_strings("plain", None) == stop_strings(str(tmp_path / "mine.txt"), None) == ()


class Chats:
    """A tokenizer whose chat template is a function."""

    def __init__(self, write):
        self.write = write

    def apply_chat_template(self, conversation, *, tokenize, add_generation_prompt):
        assert not tokenize and not add_generation_prompt
        return self.write(conversation[0]["content"], conversation[1]["content"])


@pytest.mark.parametrize(
    ("write", "stop"),
    [
        (
            lambda q, a: f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n{a}<|im_end|>\n",
            "<|im_end|>",
        ),
        (lambda q, a: f"[INST] {q} [/INST] {a} </s>", "</s>"),
        (lambda q, a: f"<eot>{q}<eot>{a}<eot>", "<eot>"),
    ],
)
def test_chat_stops_at_the_tokenizers_own_end_of_turn(write, stop):
    assert stop_strings("chat", Chats(write)) == (stop,)


@pytest.mark.parametrize("write", [lambda q, a: f"{q}\n{a}", lambda q, a: f"{q}: {a}\n", lambda q, a: q])
def test_a_chat_template_that_ends_no_turn_has_no_stop_string(write):
    assert stop_strings("chat", Chats(write)) == ()


def test_a_server_that_chats_ends_its_own_turns():
    assert stop_strings("chat", None) == ()


# Settings


def test_a_run_takes_the_templates_strings_others_or_none():
    def stop(value):
        return from_mapping(SeeleConfig, {"method": "grpo", "prompt": {"stop": value}}, "seele").prompt.stop

    assert (stop(None), stop([]), stop(["Q:", "A:"])) == (None, (), ("Q:", "A:"))
    with pytest.raises(
        ConfigError, match=r"seele.prompt.stop: expected a list such as \[User:\], got 'User:'"
    ):
        stop("User:")
    with pytest.raises(ConfigError, match=r"seele.prompt.stop\[0\]: expected str, got 7"):
        stop([7])
    with pytest.raises(
        ConfigError, match=r"seele.prompt: stop must hold texts that are not empty, got \[''\]"
    ):
        stop([""])


def test_the_option_may_be_repeated_and_an_empty_one_means_none(capsys):
    def stop(*argv):
        return parse_arguments([*argv, "--model", "m"]).stop

    assert stop() is None
    assert stop("--stop", "") == stop("--stop") == ()
    assert stop("--stop", "Q:", "--stop", "\n\n", "--stop", "Q:") == ("Q:", "\n\n")
    with pytest.raises(SystemExit):
        stop("--stop", "Q:", "--stop", "")
    assert "an empty one means none at all and stands alone" in capsys.readouterr().err
    assert hint_curve.parse(["--model", "m", "--problems", "p", "--out", "o", "--stop", ""]).stop == ()


# Evaluation


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def problems(tmp_path):
    path = tmp_path / "p.parquet"
    write_problems(path, [FOUR], split="p")
    return path


class RunsOn:
    """An engine that ignores stop strings and is cut off by the limit."""

    def __init__(self):
        self.requests = []

    def __call__(self, requests):
        self.requests = list(requests)
        for index in range(len(requests)):
            yield index, Response(text=RUNS_ON, num_tokens=30, finish=Finish.LENGTH)


def evaluate(model, problems, out, *argv):
    engine = RunsOn()
    arguments = ["--model", str(model), "--problems", f"p={problems}", "--out", str(out), *argv]
    report = run.evaluate(parse_arguments(arguments), complete=engine)
    return report.scores[0], engine.requests


@pytest.mark.parametrize("template", STYLES)
def test_what_stands_behind_a_stop_string_never_counts(model, problems, tmp_path, template):
    score, requests = evaluate(model, problems, tmp_path / "out", "--template", template)
    assert score.accuracy == 1.0 and score.truncated_share == 0.0
    [prediction] = read_predictions(tmp_path / "out").predictions
    assert (prediction.text, prediction.extracted, prediction.finish) == (ANSWER, "4", Finish.STOP)
    assert prediction.response_tokens == 30, "what was generated was generated"
    assert [request.stop for request in requests] == [STOP_STRINGS[template]]
    written = json.loads((tmp_path / "out" / "scores.json").read_text())["conditions"]["stop"]
    assert written == list(STOP_STRINGS[template])
    assert '- stop: ["User:"' in (tmp_path / "out" / "scores.md").read_text()


@pytest.mark.parametrize("argv", [("--stop", ""), ("--stop", "Q:"), ("--template", "plain")])
def test_without_a_stop_string_the_last_box_counts(model, problems, tmp_path, argv):
    score, _ = evaluate(model, problems, tmp_path / "out", *argv)
    assert score.accuracy == 0.0
    assert read_predictions(tmp_path / "out").predictions[0].text == RUNS_ON


def test_an_unfinished_evaluation_with_other_stop_strings_is_refused_and_a_finished_one_set_aside(
    model, problems, tmp_path
):
    out = tmp_path / "out"
    evaluate(model, problems, out)
    (out / "scores.json").rename(tmp_path / "scores.json")
    with pytest.raises(ConfigError, match=r"under other conditions: stop was \['User:', .* and is \[\]"):
        evaluate(model, problems, out, "--stop", "")
    (tmp_path / "scores.json").rename(out / "scores.json")
    evaluate(model, problems, out, "--stop", "")
    assert (out / "earlier_1" / "predictions.jsonl").is_file()


def test_a_file_that_names_no_stop_strings_had_none():
    assert differing({}, {"stop": []}, ignoring=frozenset()) == []
    assert differing({}, {"stop": ["User:"]}, ignoring=frozenset()) == ["stop was [] and is ['User:']"]


@pytest.mark.parametrize(
    ("of_run", "argv", "stop"),
    [
        (["Q:"], (), ("Q:",)),
        ([], (), ()),
        (None, (), STOP_STRINGS["r1_zero"]),
        (["Q:"], ("--stop", "A:"), ("A:",)),
        # The run's are for its own template.
        (["Q:"], ("--template", "qwen"), STOP_STRINGS["qwen"]),
    ],
)
def test_a_run_says_where_its_responses_end(model, problems, tmp_path, of_run, argv, stop):
    folder = tmp_path / "run"
    folder.mkdir()
    settings = {
        "seele": {"prompt": {"template": "r1_zero", "stop": of_run}},
        "data": {"max_response_length": 24, "val_files": [str(problems)]},
    }
    (folder / "resolved.yaml").write_text(json.dumps(settings))
    _, requests = evaluate(model, problems, tmp_path / "out", "--run", str(folder), *argv)
    assert [request.stop for request in requests] == [stop]


# Servers, and the filter by difficulty


def ask(server, template, stop):
    request = Request(question="?", template=template, temperature=0.0, seed=0, stop=stop)
    where = Server(url=server.url, model="stand-in")
    dict(complete_on_server(where, [request], EngineSettings(max_tokens=50)))
    asked = server.asked[-1]
    return {key: asked[key] for key in ("stop", "skip_special_tokens") if key in asked}


def test_a_server_is_told_and_keeps_marks_in_the_text_that_it_searches(server):
    asked = ask(server, "qwen", STOP_STRINGS["qwen"])
    assert asked == {"stop": ["<|im_end|>", "<|im_start|>"], "skip_special_tokens": False}
    # Servers that only chat may know no such option, and need none.
    assert ask(server, "chat", ("Q:",)) == {"stop": ["Q:"]}
    assert ask(server, "plain", ()) == {}


def test_no_template_asks_for_more_strings_than_openais_interface_takes():
    assert max(map(len, STOP_STRINGS.values())) <= 4


def test_a_filter_counts_what_stands_before_the_stop_string_of_a_server_that_ignores_it(
    server, problems, tmp_path
):
    server.answer = lambda prompt, seed: RUNS_ON
    common = ["--server", server.url, "--model", "stand-in", "--samples", "2"]

    def correct(*argv):
        out = tmp_path / f"samples{len(argv)}"
        file, arguments = difficulty.parse([str(problems), *common, "--out", str(out), *argv])
        difficulty.sample(file, arguments)
        head, count = map(json.loads, (out / "counts.jsonl").read_text().splitlines())
        return count["correct"], head["conditions"]["stop"]

    assert correct() == (2, list(STOP_STRINGS["r1_zero"]))
    assert correct("--stop", "") == (0, [])


# Hint curve and validation


def test_a_hint_curve_stops_there_too(monkeypatch, tmp_path):
    engine = RunsOn()
    monkeypatch.setattr(hint_curve, "complete_here", lambda model, requests, settings: engine(requests))

    def verdicts(template, stop=None):
        return hint_curve.sample_hinted(
            tmp_path,
            [(FOUR, 1)],
            samples=1,
            template=template,
            temperature=1.0,
            settings=EngineSettings(max_tokens=9),
            stop=stop,
        )

    assert verdicts("r1_zero") == [[True]]
    assert engine.requests[0].stop == STOP_STRINGS["r1_zero"]
    assert verdicts("r1_zero", ()) == verdicts("plain") == [[False]]


def test_validation_stops_there_too():
    conditions = Conditions(
        seele=SeeleConfig(method="sft", prompt=PromptConfig(template="r1_zero")),
        engine=EngineSettings(max_tokens=9),
        temperature=0.0,
        samples=1,
        stop=STOP_STRINGS["r1_zero"],
        problems=(("d/p", FOUR),),
    )
    assert [request.stop for request in requests_of_step(conditions, 1)] == [STOP_STRINGS["r1_zero"]]
    response = Response(text=RUNS_ON, num_tokens=30, finish=Finish.STOP)
    with GraderPool() as grader:
        assert accuracy_by_split(conditions, [response], grader) == {"d/p": 1.0}
        assert accuracy_by_split(replace(conditions, stop=()), [response], grader) == {"d/p": 0.0}
