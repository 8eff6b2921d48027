"""Samples of the policy: their noise, their cache, where they stop, and un-hinted accuracy."""

import asyncio
import dataclasses
import functools
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("verl.trainer", reason="verl is not installed")
pytest.importorskip("omegaconf", reason="omegaconf is not installed")

import torch
from omegaconf import OmegaConf

from seele import host
from seele.config import PromptConfig, RewardConfig, SeeleConfig, from_mapping
from seele.data.storage.schema import write_problems
from seele.errors import ConfigError, DataError
from seele.records import Chat, Completion, Finish, GradeReason, Instance
from seele.reward.grader import GraderPool
from seele.rollout.sampling import rollout_seed, text_before_stop
from seele.rollout.templates import STOP_STRINGS, TEMPLATES, render_prompt, stop_strings
from seele.rollout.unanswered import Advice, Graded, advise_run, find_unanswered, warn_of_unanswered
from seele_eval import difficulty, hint_curve, run, validation
from seele_eval.arguments import advise, parse_arguments
from seele_eval.conditions import differing
from seele_eval.generation import EngineSettings
from seele_eval.predictions import read_predictions
from seele_eval.prompts import Prompt, Request, Response
from seele_eval.server import Server, complete_on_server
from seele_eval.validation import Conditions, measure_splits, read_conditions, requests_of_step
from seele_verl.engine import seeded_sampling
from seele_verl.engine.seeded_sampling import GAMMA, draw_tokens, exponential_noise, mix_32, mix_64, seeds_of
from seele_verl.rollout_cache import RolloutCache, check_rollout_cache
from seele_verl.round_sampler import TrainingSampler
from seele_verl.settings import read_settings
from seele_verl.train import compose

# --- Noise of seeded requests, drawn for a whole batch


def test_the_keys_are_those_of_splitmix64():
    # Its first five outputs from the seed 1234567, as published with the generator's Java and C versions.
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    states = 1234567 + torch.arange(1, 6, dtype=torch.int64) * GAMMA
    assert [word % 2**64 for word in mix_64(states).tolist()] == published


def test_the_words_are_those_of_murmurhash3():
    # The hash of an empty text is the mixed seed; published for the seeds 0, 1 and 2^32 - 1.
    words = mix_32(torch.tensor([0, 1, -1], dtype=torch.int32))
    assert [word % 2**32 for word in words.tolist()] == [0, 0x514E28B7, 0x81F16F39]


def test_noise_depends_on_seed_position_and_token_alone():
    seeds_R, positions_R = torch.tensor([5, -9, 2**62]), torch.tensor([0, 3, 100])
    tokens_V = torch.arange(50, dtype=torch.int32)
    noise_RV = exponential_noise(seeds_R, positions_R, tokens_V)
    for row in range(3):
        alone_RV = exponential_noise(seeds_R[row : row + 1], positions_R[row : row + 1], tokens_V)
        assert torch.equal(alone_RV[0], noise_RV[row])
    assert torch.equal(exponential_noise(seeds_R, positions_R, tokens_V[20:30]), noise_RV[:, 20:30])


def test_noise_is_exponential_and_independent_in_every_direction():
    seeds_R = torch.arange(400).repeat_interleave(50)  # neighbours: the worst seeds there are
    positions_R = torch.arange(50).repeat(400)
    noise = exponential_noise(seeds_R, positions_R, torch.arange(64, dtype=torch.int32))
    noise = noise.double().view(400, 50, 64)
    assert noise.min() > 0 and noise.max() < 17
    # Kolmogorov-Smirnov: the distance is below 1.63 / sqrt(n) in 99 of 100 samples.
    uniform = (-torch.expm1(-noise)).flatten().sort().values
    expected = (torch.arange(len(uniform)) + 0.5) / len(uniform)
    assert (uniform - expected).abs().max() < 1.63 / len(uniform) ** 0.5
    centred = noise - noise.mean()
    for first, second in (
        (centred[1:], centred[:-1]),
        (centred[:, 1:], centred[:, :-1]),
        (centred[:, :, 1:], centred[:, :, :-1]),
    ):
        correlation = (first * second).mean().item()
        assert abs(correlation) < 4 / first.numel() ** 0.5


def test_the_smallest_and_the_largest_word_give_noise_that_a_logarithm_takes(monkeypatch):
    monkeypatch.setattr(seeded_sampling, "mix_32", lambda words: words)
    monkeypatch.setattr(seeded_sampling, "mix_64", torch.zeros_like)
    zero_R, tokens_V = torch.tensor([0]), torch.tensor([0, 2**31 - 1], dtype=torch.int32)
    least, most = exponential_noise(zero_R, zero_R, tokens_V)[0].tolist()
    assert least == pytest.approx(2.0**-32) and 16 < most < 17


@pytest.mark.parametrize("block", [1, 7, 2**18])
def test_blocks_of_the_vocabulary_draw_what_the_whole_draws(block, monkeypatch):
    monkeypatch.setattr(seeded_sampling, "BLOCK_NUMBERS", block * 30)
    logits_RV = torch.randn(30, 100, generator=torch.Generator().manual_seed(0)) * 2
    seeds_R, positions_R = torch.arange(30), torch.arange(30) % 7
    noise_RV = exponential_noise(seeds_R, positions_R, torch.arange(100, dtype=torch.int32))
    drawn_R = draw_tokens(logits_RV, seeds_R, positions_R)
    assert torch.equal(drawn_R, (logits_RV - noise_RV.log()).argmax(dim=1))


def test_a_token_that_is_excluded_is_never_drawn():
    logits_RV = torch.full((2000, 9), float("-inf"))
    logits_RV[:, 4] = -30.0
    assert draw_tokens(logits_RV, torch.arange(2000), torch.zeros(2000, dtype=torch.int64)).unique() == 4


def test_the_gpus_function_compiles_as_one_graph_and_draws_the_same():
    first = torch.compile(seeded_sampling._first_to_ring, dynamic=True, fullgraph=True, backend="eager")
    logits_RV, tokens_V = torch.randn(5, 40), torch.arange(40, dtype=torch.int32)
    seeds_R, positions_R = torch.arange(5), torch.arange(5)
    drawn_R = first(logits_RV, tokens_V, seeds_R, positions_R)[1]
    assert torch.equal(drawn_R, draw_tokens(logits_RV, seeds_R, positions_R))


def test_a_request_without_a_seed_is_given_one():
    generators = {2: torch.Generator().manual_seed(7), 0: torch.Generator().manual_seed(-1)}
    first, second = seeds_of(generators, 4).tolist(), seeds_of(generators, 4).tolist()
    assert (first[0], first[2]) == (second[0], second[2]) == (-1, 7)
    assert first[1] != second[1] and first[3] != second[3]


# --- Rollouts on disk: only the request that was answered finds its answer. tests/integration replays a
# step


REQUEST = {"prompt_ids": [1, 2], "sampling_params": {"temperature": 1.0}, "max_tokens": 8, "seeds": [5, 6]}


def completion(*tokens, finish=Finish.STOP):
    log_probs = tuple(-1 / (token + 3) for token in tokens)
    return Completion(text="x", token_ids=tokens, log_probs=log_probs, finish=finish, cached_prompt_tokens=1)


# A quorum's part and the stragglers', from different weights.
PARTS = [({1: completion(7, 8)}, 2), ({0: completion(9, finish=Finish.LENGTH)}, 3)]


def test_an_answer_comes_back_as_it_came(tmp_path):
    RolloutCache(tmp_path / "new", model="m").keep(4, REQUEST, PARTS)
    assert RolloutCache(tmp_path / "new", model="m").find(4, dict(reversed(REQUEST.items()))) == PARTS


@pytest.mark.parametrize(("quorum", "expected"), [(1, PARTS), (2, [({**PARTS[0][0], **PARTS[1][0]}, 3)])])
def test_a_round_that_a_quorum_divided_is_whole_without_one(tmp_path, quorum, expected):
    cache, told = RolloutCache(tmp_path, model="m"), []
    controller = SimpleNamespace(
        count_tokens=lambda *_, **tokens: told.append(tokens), time_round=lambda *_: 0
    )
    sampler = object.__new__(TrainingSampler)
    sampler.step, sampler.cache, sampler.controller, sampler.watch_of = 4, cache, controller, None
    sampler._request, sampler.run = lambda *_: REQUEST, tmp_path
    cache.keep(4, REQUEST, PARTS)

    async def sample():
        asked = {"hint_steps": 0, "round_index": 0, "first_rollout": 0, "num_rollouts": 2, "quorum": quorum}
        return [part async for part in sampler(**asked)]

    assert asyncio.run(sample()) == [completions for completions, _ in expected]
    assert len(told) == len(expected) and sampler.model_version == 3


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_ids": [1, 2, 3]},
        {"sampling_params": {"temperature": 0.5}},
        {"max_tokens": 9},
        {"seeds": [5, 7]},
        {"seeds": [5]},
    ],
    ids=str,
)
def test_another_request_finds_nothing(tmp_path, change):
    cache = RolloutCache(tmp_path, model="m")
    cache.keep(4, REQUEST, PARTS)
    assert cache.find(4, REQUEST | change) is None
    assert cache.find(5, REQUEST) is None
    assert RolloutCache(tmp_path, model="another").find(4, REQUEST) is None


@pytest.mark.parametrize("text", ["", "[", '[{"version": 1}]', '[{"version": 1, "completions": {"a": 1}}]'])
def test_a_broken_file_is_named(tmp_path, text):
    cache = RolloutCache(tmp_path, model="m")
    cache.keep(4, REQUEST, PARTS)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(text)
    with pytest.raises(DataError, match=f"{path.name}: not a cached round .*; remove the file"):
        cache.find(4, REQUEST)


@pytest.mark.parametrize("name", ["rollout", "rollout_tq", "async_rollout"])
def test_verls_own_cache_is_refused(name):
    config = compose(["hardware=cpu", "job=tiny", f"skip.{name}.enable=true"])
    with pytest.raises(ConfigError, match=f"skip.{name}.enable: true, .*set seele.rollout_cache to a folder"):
        check_rollout_cache(config, read_settings(config))


def test_the_cache_is_a_folder(tmp_path):
    (tmp_path / "file").touch()
    for name in ("null", tmp_path, tmp_path / "new"):
        config = compose(["hardware=cpu", "job=tiny", f"seele.rollout_cache={name}"])
        check_rollout_cache(config, read_settings(config))
    config = compose(["hardware=cpu", "job=tiny", f"seele.rollout_cache={tmp_path}/file"])
    with pytest.raises(ConfigError, match="expected a folder, got the file"):
        check_rollout_cache(config, read_settings(config))


# --- A response is over where the next turn would begin: whoever draws it, and whatever the engine does


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
    with pytest.raises(ConfigError, match=r"seele.prompt.stop\[0\]: expected a text, got 7"):
        stop([7])
    with pytest.raises(
        ConfigError, match=r"seele.prompt: stop must contain only non-empty texts, got \[''\]"
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
    assert "an empty one means none and must stand alone" in capsys.readouterr().err
    assert hint_curve.parse(["--model", "m", "--problems", "p", "--out", "o", "--stop", ""]).stop == ()


# Evaluation


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
    monkeypatch.setattr(hint_curve, "completion", lambda model, settings, *, copies: engine)

    def is_right(template, stop=None):
        [[response]] = hint_curve.sample_hinted(
            tmp_path,
            [(FOUR, 1)],
            samples=1,
            template=template,
            temperature=1.0,
            settings=EngineSettings(max_tokens=9),
            stop=stop,
        )
        return response.reason is GradeReason.CORRECT

    assert is_right("r1_zero")
    assert engine.requests[0].stop == STOP_STRINGS["r1_zero"]
    assert not is_right("r1_zero", ()) and not is_right("plain")


def test_a_hint_curve_tells_format_from_knowledge(monkeypatch, problems, tmp_path, capsys):
    monkeypatch.setattr(hint_curve, "find_weights", lambda model: [])
    monkeypatch.setattr(hint_curve, "find_model", lambda model: model)
    said = "So 2+2 is 4."

    def complete(requests):
        # Only a hint makes the model box its answer.
        for index, request in enumerate(requests):
            text = ANSWER if request.hint_steps else said
            yield index, Response(text=text, num_tokens=9, finish=Finish.STOP)

    monkeypatch.setattr(hint_curve, "completion", lambda model, settings, *, copies: complete)

    def points(*argv):
        common = ["--model", str(tmp_path), "--problems", str(problems), "--out", str(tmp_path / "out")]
        assert hint_curve.main([*common, *argv]) == 0
        written = json.loads((tmp_path / "out" / "hint_curve.json").read_text())
        assert written["conditions"]["steps"] == len(FOUR.steps)
        said = capsys.readouterr().err.removeprefix(
            f"{problems}: 1 problems of 2 steps; --steps N for others\n"
        )
        return [(p["accuracy"], p["no_answer_share"]) for p in written["points"]], said

    in_boxes, warning = points()
    assert in_boxes[0] == (0.0, 1.0) and in_boxes[1] == (1.0, 0.0)
    first, *advice, head, quote = warning.splitlines()
    assert "no answer (0 of 2 steps revealed: 100.0% of 1)" in first and "1 of 2" not in first
    assert (head, quote) == ("For example:", f'  "{said}"')
    assert (
        "--template chat" in advice[0] and "--answers box-or-last" in advice[1] and "warm-start" in advice[2]
    )
    followed, silence = points("--answers", "box-or-last")
    assert followed == [(1.0, 0.0), (1.0, 0.0)] and silence == ""


# Responses without an answer or an end


def responses(*, silent, endless, others):
    """Graded responses of which so many have no answer, so many no end, and the others neither."""
    rows = [Graded(f"silent {n}", GradeReason.NO_ANSWER, Finish.STOP) for n in range(silent)]
    rows += [Graded(f"endless {n}", GradeReason.WRONG, Finish.LENGTH) for n in range(endless)]
    fine = Graded("fine", GradeReason.CORRECT, Finish.STOP)
    return find_unanswered([*rows, *[fine] * others])


ADVICE = Advice(no_answer=("box it",), truncated=("wait",))


def test_a_warning_names_the_groups_of_which_more_than_half_lack_something():
    groups = {
        "a": responses(silent=7, endless=0, others=6),
        "b": responses(silent=1, endless=0, others=1),
        "c": responses(silent=2, endless=0, others=1),
    }
    assert [group.no_answer_share for group in groups.values()] == [7 / 13, 0.5, 2 / 3]
    first, advice, head, *quotes = warn_of_unanswered(groups, ADVICE).splitlines()
    assert "(a: 53.8% of 13, c: 66.7% of 3)" in first and (advice, head) == ("- box it", "For example:")
    # Three of the nine, evenly spaced.
    assert quotes == ['  "silent 0"', '  "silent 3"', '  "silent 6"']
    assert warn_of_unanswered({"b": groups["b"], "none": find_unanswered([])}, ADVICE) == ""


def test_responses_without_an_end_are_warned_of_and_quoted_by_both_their_ends():
    text = "x" * 200 + "y" * 100 + "\n" + "z" * 79
    groups = {"a": find_unanswered([Graded(text, GradeReason.WRONG, Finish.LENGTH)])}
    first, advice, _, quote = warn_of_unanswered(groups, ADVICE).splitlines()
    assert "no end" in first and "(a: 100.0% of 1)" in first and advice == "- wait"
    assert quote == f'  "{"x" * 200} [...] \\n{"z" * 79}"'
    both = {"a": find_unanswered([Graded("both", GradeReason.NO_ANSWER, Finish.LENGTH)])}
    assert warn_of_unanswered(both, ADVICE).count("both") == 1, "quoted once"


@pytest.mark.parametrize(
    ("prompt", "advised"),
    [
        ({"template": "plain"}, "seele.prompt.template=chat for a model with a chat template"),
        ({"template": "chat", "ask": ""}, "seele.prompt.ask, whose text does not ask for it here"),
        ({"template": "chat"}, None),
        ({"template": "chat", "ask": "", "system": "Use \\boxed{}."}, None),
        ({"template": "r1_zero"}, None),
    ],
)
def test_a_prompt_that_asks_for_the_box_is_advised_where_this_one_does_not(prompt, advised):
    advice = advise_run(SeeleConfig(method="grpo", prompt=PromptConfig(**prompt)), max_tokens=9).no_answer
    assert (advised is None and "method=sft" in advice[0]) or advised in advice[0]


def test_advice_names_options_and_templates_that_there_are():
    run_advice = advise_run(SeeleConfig(method="grpo", prompt=PromptConfig(template="plain")), max_tokens=9)
    command = advise("plain", Chat(), answers="box", stop=("Q:",), max_tokens=9)
    said = " ".join([*run_advice.no_answer, *run_advice.truncated, *command.no_answer, *command.truncated])
    settings = {name.rstrip(".") for name in re.findall(r"seele(?:\.\w+){2}|data\.\w+", said)}
    config = compose(["method=grpo", "hardware=cpu", "job=tiny"])
    for name in settings:
        functools.reduce(getattr, name.split("."), config)  # raises for a key that there is not
    assert len(settings) == 5
    options = set(re.findall(r"--[a-z-]+", said))
    assert options == {"--template", "--answers", "--max-tokens", "--stop", "--problems"}
    parse_arguments(["--model", "m", "--template", "chat", "--answers", "box-or-last", "--max-tokens", "9"])
    assert said.count("one of luffy, prime, qwen, r1_zero, sec_math") == 2


def test_an_evaluation_warns_once_of_all_its_benchmarks(model, problems, tmp_path, capsys):
    write_problems(tmp_path / "q.parquet", [replace(FOUR, question="5-1")], split="p")

    def say(text, *argv):
        def engine(requests):
            for index in range(len(requests)):
                yield index, Response(text=text, num_tokens=9, finish=Finish.STOP)

        files = [f"p={problems}", f"q={tmp_path / 'q.parquet'}"]
        arguments = ["--model", str(model), "--out", str(tmp_path / "out"), "--problems", *files, *argv]
        run.evaluate(parse_arguments(arguments), complete=engine)
        return capsys.readouterr().err.partition("warning: ")[2]

    warning = say("It is 4.")
    assert "(p: 100.0% of 1, q: 100.0% of 1)" in warning and warning.count('"It is 4."') == 2
    # What is there already is told again, as the scores are.
    assert say("nothing is drawn") == warning
    assert say("It is 4.", "--answers", "box-or-last") == ""


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
        assert measure_splits(conditions, [response], grader)[0] == {"d/p": 1.0}
        assert measure_splits(replace(conditions, stop=()), [response], grader)[0] == {"d/p": 0.0}


# --- Un-hinted accuracy of checkpoints: asked and judged as the RL trainer's own validation


def problem(index: int, source: str = "chains") -> Instance:
    return Instance(
        instance_id=f"{source}-{index}", data_source=source, question=f"q{index}", steps=(), answer=str(index)
    )


def response(text: str, finish: Finish = Finish.STOP) -> Response:
    return Response(text=text, num_tokens=1, finish=finish)


def conditions(*, samples: int = 1, temperature: float = 0.0, truncated_is_wrong: bool = True) -> Conditions:
    return Conditions(
        seele=SeeleConfig(method="sft", seed=3, reward=RewardConfig(truncated_is_wrong=truncated_is_wrong)),
        engine=EngineSettings(max_tokens=9),
        temperature=temperature,
        samples=samples,
        problems=(("chains/heldout", problem(1)), ("chains/heldout", problem(2)), ("gsm8k/hard", problem(3))),
    )


def test_accuracy_is_a_share_of_each_file():
    answers = [response(r"\boxed{1}"), response(r"\boxed{7}"), response(r"\boxed{3}")]
    with GraderPool() as grader:
        assert measure_splits(conditions(), answers, grader)[0] == {"chains/heldout": 0.5, "gsm8k/hard": 1.0}


@pytest.mark.parametrize(("truncated_is_wrong", "accuracy"), [(True, 0.0), (False, 0.5)])
def test_a_truncated_answer_counts_as_in_training(truncated_is_wrong, accuracy):
    answers = [response(r"\boxed{1}", Finish.LENGTH), response("no"), response("no")]
    asked = conditions(truncated_is_wrong=truncated_is_wrong)
    with GraderPool() as grader:
        assert measure_splits(asked, answers, grader)[0]["chains/heldout"] == accuracy
        # An answer is not looked for in a response that does not count.
        answers[0] = response("no", Finish.LENGTH)
        unanswered = measure_splits(asked, answers, grader)[1]["chains/heldout"]
    assert unanswered.no_answer_share == (0.5 if truncated_is_wrong else 1.0)
    assert unanswered.truncated_share == 0.5


@pytest.mark.parametrize(("begins_thinking", "accuracy"), [(True, 0.5), (False, 1.0)])
def test_thoughts_count_as_in_training(begins_thinking, accuracy):
    answers = [response(r"\boxed{7}</think> \boxed{1}"), response(r"\boxed{2}"), response("no")]
    reward = RewardConfig(after_thinking=True)
    asked = dataclasses.replace(
        conditions(),
        seele=SeeleConfig(method="sft", seed=3, reward=reward),
        begins_thinking=begins_thinking,
    )
    with GraderPool() as grader:
        assert measure_splits(asked, answers, grader)[0]["chains/heldout"] == accuracy


def test_samples_have_the_seeds_of_an_rl_validation_at_that_step():
    requests = requests_of_step(conditions(samples=2, temperature=1.0), 20)
    assert [request.question for request in requests] == ["q1", "q1", "q2", "q2", "q3", "q3"]
    assert [request.seed for request in requests[:2]] == [
        rollout_seed(3, -21, "chains-1", 0, sample) for sample in (0, 1)
    ]


@pytest.fixture
def evaluated_run(tmp_path) -> Path:
    write_problems(tmp_path / "heldout.parquet", [problem(1), problem(2)], split="heldout")
    config = {
        "seele": {"method": "sft", "seed": 3, "prompt": {"template": "plain"}},
        "data": {"max_response_length": 9, "val_files": [str(tmp_path / "heldout.parquet")]},
        "actor_rollout_ref": {
            "rollout": {
                **{"tensor_model_parallel_size": 2, "gpu_memory_utilization": 0.7, "dtype": "bfloat16"},
                "val_kwargs": {"temperature": 0, "n": 1},
            }
        },
    }
    OmegaConf.save(OmegaConf.create(config), tmp_path / "resolved.yaml")
    return tmp_path


def test_conditions_are_the_runs(evaluated_run):
    found = read_conditions(evaluated_run)
    assert (found.engine.max_tokens, found.engine.tensor_parallel, found.engine.dtype) == (
        9,
        2,
        "bfloat16",
    )
    assert (found.seele.prompt.template, found.temperature, found.samples) == ("plain", 0, 1)
    assert [split for split, _ in found.problems] == ["chains/heldout", "chains/heldout"]


def test_one_engine_measures_all_models_in_turn(evaluated_run, monkeypatch, capfd):
    loaded = []
    prompts = [Prompt(token_ids=[n], temperature=0.0, seed=n) for n in (1, 2)]
    monkeypatch.setattr(validation, "encode_requests", lambda *_, **__: prompts)
    monkeypatch.setattr(validation, "start_engine", lambda model, *_, **__: loaded.append(model) or "engine")
    monkeypatch.setattr(validation, "load_weights", lambda engine, model: loaded.append(model))
    monkeypatch.setattr(
        validation,
        "complete",
        # The second one is finished first.
        lambda *_: iter([(1, response(r"\boxed{2}")), (0, response(rf"\boxed{{{len(loaded)}}}"))]),
    )
    assert validation.main(["--run", str(evaluated_run), "--models", "0=base", "10=trained"]) == 0
    assert loaded == [Path("base"), Path("trained")]
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    shares = {"val/no_answer_share/chains/heldout": 0.0, "val/truncated_share/chains/heldout": 0.0}
    assert all(line["metrics"].pop("timing_s/testing") >= 0.0 for line in lines)
    assert lines == [
        {"step": 0, "metrics": shares | {"val/accuracy/chains/heldout": 1.0}, "warning": ""},
        {"step": 10, "metrics": shares | {"val/accuracy/chains/heldout": 0.5}, "warning": ""},
    ]


def test_models_that_mostly_give_no_answer_are_warned_of(evaluated_run, monkeypatch):
    prompts = [Prompt(token_ids=[n], temperature=0.0, seed=n) for n in (1, 2)]
    monkeypatch.setattr(validation, "encode_requests", lambda *_, **__: prompts)
    monkeypatch.setattr(validation, "start_engine", lambda *_, **__: "engine")
    said = [(0, response("It is 1.", Finish.LENGTH)), (1, response("It is 2."))]
    monkeypatch.setattr(validation, "complete", lambda *_: iter(said))
    [measured] = validation.validate(evaluated_run, {10: Path("trained")})
    assert measured["metrics"]["val/no_answer_share/chains/heldout"] == 1.0
    assert measured["metrics"]["val/truncated_share/chains/heldout"] == 0.5
    warning = measured["warning"]
    assert "(step 10, chains/heldout: 100.0% of 2)" in warning and '"It is 1."' in warning
    assert "seele.sft.epochs" in warning and "warm start" not in warning and "no end" not in warning


def test_bfloat16_is_refused_where_the_processor_emulates_it(tmp_path, monkeypatch):
    pytest.importorskip("vllm.platforms", reason="vLLM is not installed")
    from seele_eval.generation import start_engine

    monkeypatch.setattr(host, "CPU_INFO", tmp_path / "cpuinfo")
    with pytest.raises(ConfigError, match=r"--dtype: got 'bfloat16', but this processor .* is 'float32'"):
        start_engine(tmp_path, EngineSettings(max_tokens=9, dtype="bfloat16"), context_tokens=10)
