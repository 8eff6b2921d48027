"""A system message and variables of the chat template, from the settings to what the model reads."""

import copy
import dataclasses
import json

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

import torch
from transformers import Qwen2Config

from seele.config import from_mapping
from seele.config.settings import PromptConfig
from seele.data.storage.schema import write_problems
from seele.errors import ConfigError
from seele.records import Chat, Instance
from seele.reward.extract import opens_thoughts
from seele.rollout.solutions import encode_problem
from seele.rollout.templates import stop_strings
from seele_eval.arguments import parse_arguments
from seele_eval.conditions import read_run_defaults
from seele_eval.generation import EngineSettings
from seele_eval.hint_curve import parse as parse_hint_curve
from seele_eval.plan import make_plan
from seele_eval.prompts import Request, encode_requests
from seele_eval.server import Server, complete_on_server
from seele_eval.validation import read_conditions, requests_of_step
from seele_models.tokenizer import byte_tokenizer
from seele_verl import train
from seele_verl.checks.preflight import check_run
from seele_verl.settings import read_settings
from seele_verl.sft.dataset import SolutionDataset

# As Qwen3's: thinking that is switched off is shown as an empty thought.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
BRIEF = Chat("Be brief.", {"enable_thinking": False})
PROMPT = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
OVERRIDES = [
    "seele.prompt.template=chat",
    "seele.prompt.system='Be brief.'",
    "+data.apply_chat_template_kwargs.enable_thinking=false",
]


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory, tokenizer):
    folder = tmp_path_factory.mktemp("chat_model")
    Qwen2Config(vocab_size=512, hidden_size=32, intermediate_size=64).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def problems(tmp_path):
    path = tmp_path / "problems.parquet"
    instances = [
        Instance(instance_id=f"x-{i}", data_source="x", question=f"{i}+1?", steps=("a\n", "b"), answer="2")
        for i in range(8)
    ]
    write_problems(path, instances, split="train")
    return path


@pytest.fixture
def overrides(model, problems, tmp_path):
    return [
        *("method=seele", "hardware=cpu", "job=tiny", f"actor_rollout_ref.model.path={model}", *OVERRIDES),
        *(f"data.train_files=[{problems}]", f"data.val_files=[{problems}]"),
        *("data.train_batch_size=8", "data.max_prompt_length=160"),
        *("actor_rollout_ref.rollout.max_model_len=248", f"trainer.default_local_dir={tmp_path}/run"),
    ]


def text_of(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def test_both_stand_in_the_prompt(tokenizer):
    encoded = encode_problem(tokenizer, "1+1?", ["so 2"], "chat", BRIEF)
    assert text_of(tokenizer, encoded.prompt_ids) == PROMPT.format("1+1?")
    without = encode_problem(tokenizer, "1+1?", [], "chat")
    assert text_of(tokenizer, without.prompt_ids) == (
        "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert stop_strings("chat", tokenizer) == ("<|im_end|>",)


def test_verls_key_reaches_training(overrides):
    config = train.compose(overrides)
    assert read_settings(config).prompt.chat == BRIEF
    check_run(config, overrides)


def test_the_longer_prompt_counts_against_the_limits(overrides):
    short = [*overrides, "data.max_prompt_length=60", "seele.data.overlong=refuse"]
    with pytest.raises(ValueError, match=r"prompt"):
        check_run(train.compose(short), short)


def test_supervised_training_reads_the_same_prompt(problems, tokenizer):
    config = {"template": "chat", "chat": dataclasses.asdict(BRIEF), "seed": 0}
    from omegaconf import OmegaConf

    row = SolutionDataset([str(problems)], tokenizer, OmegaConf.create(config))[3]
    assert text_of(tokenizer, row["input_ids"]).startswith(PROMPT.format("3+1?") + "a\nb")
    assert isinstance(row["input_ids"], torch.Tensor)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"system": "x"}, "system needs template 'chat'.*; got 'r1_zero'"),
        ({"chat_kwargs": {"a": 1}}, r"chat_kwargs needs template 'chat'.*data.apply_chat_template_kwargs"),
        ({"open_thinking": True}, "open_thinking needs template 'chat'.*; got 'r1_zero'"),
        ({"template": "chat", "chat_kwargs": {"tokenize": True}}, r"\['tokenize'\] are none"),
    ],
)
def test_what_would_be_ignored_or_break_the_prompt_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        from_mapping(PromptConfig, settings, "seele.prompt")


# Hints before the thoughts, inside them, and behind empty ones

THINKING = {
    "before the thoughts": (Chat(), ""),
    "inside the thoughts": (Chat(open_thinking=True), "<think>\n"),
    "behind empty thoughts": (Chat(kwargs={"enable_thinking": False}), "<think>\n\n</think>\n\n"),
}


@pytest.mark.parametrize(("chat", "opening"), THINKING.values(), ids=THINKING)
def test_a_hint_goes_on_from_where_the_prompt_leaves_the_thoughts(tokenizer, chat, opening):
    encoded = encode_problem(tokenizer, "1+1?", ["so 1+1\n", "is 2"], "chat", chat)
    prompt = text_of(tokenizer, encoded.prompt_ids)
    assert prompt == f"<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n{opening}"
    assert text_of(tokenizer, encoded.hint(1)) == "so 1+1\n"
    assert opens_thoughts(prompt) is chat.open_thinking


def test_thoughts_are_opened_once(tokenizer):
    opening = copy.deepcopy(tokenizer)
    opening.chat_template = TEMPLATE.replace("assistant\n{%", "assistant\n<think>\n{%")
    solution = ["<think>\nso 1+1\n", "is 2"]
    for each, chat in ((opening, Chat(open_thinking=True)), (tokenizer, Chat(open_thinking=True))):
        encoded = encode_problem(each, "1+1?", solution, "chat", chat)
        text = text_of(each, encoded.prompt_ids + encoded.hint(1))
        assert text.endswith("<|im_start|>assistant\n<think>\nso 1+1\n")


def test_thoughts_that_the_template_closes_are_not_opened(overrides):
    both = [*overrides, "seele.prompt.open_thinking=true"]
    with pytest.raises(ConfigError, match=r"open_thinking: true, but .*enable_thinking=false"):
        check_run(train.compose(both), both)


def test_open_thoughts_reach_training_and_evaluation_alike(model, problems, overrides, tmp_path):
    thinking = [each for each in overrides if "enable_thinking" not in each]
    thinking.append("seele.prompt.open_thinking=true")
    config = train.compose(thinking)
    check_run(config, thinking)
    chat = Chat("Be brief.", {}, open_thinking=True)
    assert read_settings(config).prompt.chat == chat
    run = tmp_path / "run"
    run.mkdir()
    (run / "resolved.yaml").write_text(_resolved(thinking))
    assert all(request.chat == chat for request in requests_of_step(read_conditions(run), 1))
    of_run = make_plan(parse_arguments(["--run", str(run), "--model", str(model), "--out", "o"]))
    where = ["--model", str(model), "--template", "chat", "--problems", f"a={problems}", "--out", "o"]
    asked = make_plan(parse_arguments([*where, "--system", "Be brief.", "--open-thinking"]))
    for plan in (of_run, asked):
        assert plan.conditions["chat"] == {"system": "Be brief.", "kwargs": {}, "open_thinking": True}
        assert all(draw.request.chat == chat for draw in plan.draws)
    server = Server(url="http://none", model="stand-in")
    with pytest.raises(ConfigError, match="a server begins the model's turn by itself"):
        complete_on_server(server, [of_run.draws[0].request], EngineSettings(max_tokens=8))


# Evaluation


def test_evaluation_takes_them_from_its_options_or_from_the_run(model, problems, overrides, tmp_path):
    train_run = tmp_path / "run"
    train_run.mkdir()
    (train_run / "resolved.yaml").write_text(_resolved(overrides))
    assert read_run_defaults(train_run).chat == BRIEF
    of_run = make_plan(parse_arguments(["--run", str(train_run), "--model", str(model), "--out", "o"]))
    options = ["--system", "Be brief.", "--chat-template-kwarg", "enable_thinking=false"]
    where = ["--model", str(model), "--template", "chat", "--problems", f"a={problems}", "--out", "o"]
    for plan in (of_run, make_plan(parse_arguments([*where, *options]))):
        assert {draw.request.chat.system for draw in plan.draws} == {"Be brief."}
        assert plan.conditions["chat"] == {"system": "Be brief.", "kwargs": {"enable_thinking": False}}
    # Another template than the run's leaves the run's aside.
    other = ["--run", str(train_run), "--model", str(model), "--template", "plain", "--out", "o"]
    assert make_plan(parse_arguments(other)).conditions["chat"] == {"system": None, "kwargs": {}}


def test_validation_after_supervised_training_asks_alike(overrides, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "resolved.yaml").write_text(_resolved(overrides))
    assert all(request.chat == BRIEF for request in requests_of_step(read_conditions(run), 1))


def _resolved(overrides):
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(train.compose(overrides), resolve=True)


def test_an_engine_and_a_server_are_asked_alike(model, tokenizer, server):
    request = Request(question="1+1?", template="chat", chat=BRIEF, temperature=0.0, seed=0)
    [encoded] = encode_requests(model, [request], max_tokens=8)
    assert text_of(tokenizer, encoded.token_ids) == PROMPT.format("1+1?")
    server.answer = lambda prompt, seed: "2"
    where = Server(url=server.url, model="stand-in", first_wait_s=0.001)
    dict(complete_on_server(where, [request], EngineSettings(max_tokens=8)))
    [asked] = server.asked
    assert asked["chat_template_kwargs"] == {"enable_thinking": False}
    messages = tokenizer.apply_chat_template(
        asked["messages"], tokenize=False, add_generation_prompt=True, **asked["chat_template_kwargs"]
    )
    assert messages == PROMPT.format("1+1?")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--chat-template-kwarg", "enable_thinking"], "expected NAME=VALUE, got 'enable_thinking'"),
        (["--chat-template-kwarg", "a b=1"], "expected NAME=VALUE, got 'a b'"),
        (["--chat-template-kwarg", "a=[1"], "not a value in YAML"),
    ],
)
def test_an_option_that_does_not_parse_is_named(options, message, capsys):
    for parse in (
        parse_arguments,
        lambda argv: parse_hint_curve(["--model", "m", "--problems", "f", "--out", "o", *argv]),
    ):
        with pytest.raises(SystemExit, match="2"):
            parse(options)
        assert message in capsys.readouterr().err


def test_options_that_the_template_would_ignore_are_refused(model, problems):
    where = ["--model", str(model), "--template", "plain", "--problems", f"a={problems}", "--out", "o"]
    with pytest.raises(ConfigError, match="and --open-thinking: need --template chat"):
        make_plan(parse_arguments([*where, "--system", "x"]))
    assert json.dumps(parse_arguments([*where, "--system", ""]).chat.system) == '""'
