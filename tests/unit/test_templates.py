"""Prompts: their templates, and those of an evaluation as token ids."""

import shutil
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from seele import plugins
from seele.errors import ConfigError, DataError
from seele.records import BOX_REQUEST, Chat
from seele.rollout.templates import absolute_template, encode_prompt, render_prompt, stop_strings
from seele_eval.prompts import Request, begins_thinking, encode_requests

# --- Prompts: training, validation and evaluation see the same bytes


class Characters:
    """A tokenizer of code points, with 1 at the start of a sequence."""

    def encode(self, text, *, add_special_tokens):
        return [1] * add_special_tokens + [ord(character) for character in text]

    def apply_chat_template(self, conversation, *, tokenize, add_generation_prompt):
        assert not tokenize and add_generation_prompt
        return f"<{conversation[0]['role']}>{conversation[0]['content']}<assistant>"


def text_of(ids):
    return "".join(map(chr, ids))


def test_plain_is_the_question_and_a_line_end():
    assert render_prompt("7+5", "plain") == "7+5\n"


def test_r1_zero_ends_where_the_assistant_begins_to_think():
    prompt = render_prompt("What is {x}?", "r1_zero")
    assert prompt.endswith("Assistant: <think>\n")
    assert "User: What is {x}?\n" in prompt and "\\boxed{}" in prompt


def test_prompts_begin_with_what_the_model_expects_at_the_start():
    assert encode_prompt(Characters(), "7+5", "plain") == [1, *map(ord, "7+5\n")]


def test_chat_is_rendered_by_the_tokenizer():
    assert text_of(encode_prompt(Characters(), "7+5", "chat")) == f"<user>7+5\n{BOX_REQUEST}<assistant>"


def test_an_unknown_template_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"unknown prompt template 'qwem'; allowed are \['chat', 'luffy',"):
        render_prompt("q", "qwem")


def test_a_templates_text_in_place_of_its_file_is_refused():
    with pytest.raises(ConfigError, match="unknown prompt template 'Question: "):
        render_prompt("q", "Question: {question}\nAnswer:")
    with pytest.raises(
        ConfigError, match=r"template 'Solve .{74}'; .* and a text file with \{question\} in it"
    ):
        render_prompt("q", "Solve the problem. " * 20 + "{question}")


@pytest.mark.parametrize("template", ["r1_zero", "qwen", "luffy", "prime"])
def test_templates_of_the_papers_ask_for_a_box_and_keep_braces(template):
    prompt = render_prompt("What is {x}?", template)
    assert prompt.count("What is {x}?") == 1
    assert "\\boxed{" in prompt and "{question}" not in prompt and "{{" not in prompt


def test_templates_of_the_peers_are_theirs():
    # LUFFY's evaluation, eval_scripts/generate_vllm.py.
    assert render_prompt("Q", "qwen") == (
        "<|im_start|>system\nPlease reason step by step, and put your final answer within "
        "\\boxed{}.<|im_end|>\n"
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    )
    assert render_prompt("Q", "prime").endswith(
        "User: Q\n\nPresent the answer in LaTex format: \\boxed{Your answer}. Assistant:"
    )
    assert render_prompt("Q", "luffy").endswith("\n\nUser: This is the problem:\nQ\nAssistant: <think>\n")


def test_a_template_may_be_a_file(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("{{Q}} {question} \\boxed{}")
    assert render_prompt("1+{question}", str(path)) == "{{Q}} 1+{question} \\boxed{}"


def test_a_file_without_a_place_for_the_question_is_refused(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("Answer!")
    with pytest.raises(ConfigError, match=r"needs \{question\} where the question goes"):
        render_prompt("q", str(path))


def test_a_file_that_is_no_text_in_utf_8_is_refused(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_bytes("Löse {question}".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"mine.txt: a prompt template must be a text in UTF-8"):
        render_prompt("q", str(path))


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module with templates, in the working folder and not on the path."""
    (tmp_path / "prompts.py").write_text(
        'ASK = "Q: {question}\\nA:"\nNO_PLACE = "Q:"\n\n\ndef ask(q): pass\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_template_may_be_a_text_by_import_path_or_of_an_installed_package(module, monkeypatch):
    assert render_prompt("1+{x}", "prompts.py:ASK") == "Q: 1+{x}\nA:"
    monkeypatch.syspath_prepend(str(module))
    assert render_prompt("1", "prompts:ASK") == "Q: 1\nA:"
    points = EntryPoints([EntryPoint("mine", "prompts:ASK", "seele.templates")])
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: points.select(group=group))
    assert render_prompt("1", "mine") == "Q: 1\nA:" and stop_strings("mine", None) == ()
    with pytest.raises(ConfigError, match=r"unknown prompt template 'mime'; allowed are .*'mine'"):
        render_prompt("1", "mime")


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("prompts.py:NO_PLACE", r"prompts.py:NO_PLACE: a prompt template needs \{question\}"),
        ("prompts.py:ask", "prompts.py:ask: a prompt template must be a text, got function"),
        ("prompts.py:AKS", r"seele.prompt.template: prompts.py has no 'AKS'; it has \['ASK', 'NO_PLACE'"),
        ("no_prompts.py:ASK", "seele.prompt.template: no file .*no_prompts.py"),
    ],
)  # fmt: skip
def test_a_mistake_in_an_own_template_is_named(module, template, complaint):
    with pytest.raises(ConfigError, match=complaint):
        render_prompt("q", template)


def test_a_template_is_found_from_any_folder(module, monkeypatch, tmp_path_factory):
    (module / "mine.txt").write_text("{question}!")
    found = [absolute_template(each) for each in ("prompts.py:ASK", "mine.txt", "plain", "chat", "json:A")]
    assert found == [f"{module}/prompts.py:ASK", f"{module}/mine.txt", "plain", "chat", "json:A"]
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert [render_prompt("1", each) for each in found[:2]] == ["Q: 1\nA:", "1!"]


# --- Prompts of an evaluation as token ids, and what is refused before the engine is loaded


CONTEXT_TOKENS = 32


def request(question, template="plain", **changes):
    return Request(question=question, template=template, temperature=0.0, seed=0, **changes)


def test_a_prompt_is_the_templates_text_and_nothing_else(bytes_model):
    prompts = encode_requests(bytes_model, [request("1+1"), request("12+1")], max_tokens=8)
    # One token a byte, and the template's line end.
    assert [len(prompt.token_ids) for prompt in prompts] == [4, 5]


def test_a_hint_follows_the_prompt_step_by_step(bytes_model):
    bare, hinted = encode_requests(
        bytes_model, [request("1+1"), request("1+1", steps=("ab", "c", "d"), hint_steps=2)], max_tokens=8
    )
    assert hinted.token_ids[: len(bare.token_ids)] == bare.token_ids
    assert len(hinted.token_ids) == len(bare.token_ids) + 3


def test_a_prompt_and_response_that_do_not_fit_the_context_are_refused_with_what_would(bytes_model):
    assert encode_requests(bytes_model, [request("1+1")], max_tokens=CONTEXT_TOKENS - 4)
    with pytest.raises(ConfigError, match="choose at most 28"):
        encode_requests(bytes_model, [request("1+1")], max_tokens=CONTEXT_TOKENS - 3)
    with pytest.raises(ConfigError, match=r"longest prompt \(34 tokens\) does not fit"):
        encode_requests(bytes_model, [request("1" * 33)], max_tokens=1)


def test_the_context_of_a_model_that_also_sees_is_that_of_its_text(bytes_model, tmp_path):
    from transformers import Gemma3Config

    folder = shutil.copytree(bytes_model, tmp_path / "sees")
    Gemma3Config(text_config={"max_position_embeddings": 16}).save_pretrained(folder)
    with pytest.raises(ConfigError, match="choose at most 12"):
        encode_requests(folder, [request("1+1")], max_tokens=13)


def test_a_context_that_the_configuration_does_not_state_is_said_to_be_unknown(bytes_model, tmp_path, capsys):
    from transformers import BloomConfig

    folder = shutil.copytree(bytes_model, tmp_path / "bloom")
    BloomConfig().save_pretrained(folder)
    assert encode_requests(folder, [request("1" * 33)], max_tokens=9999)
    assert f"{folder}: its configuration has no max_position_embeddings, so its" in capsys.readouterr().err


def test_an_unknown_template_is_refused(bytes_model):
    with pytest.raises(ConfigError, match="unknown prompt template 'plane'"):
        encode_requests(bytes_model, [request("1+1", template="plane")], max_tokens=8)


def test_a_model_without_a_chat_template_cannot_chat(bytes_model):
    with pytest.raises(ConfigError, match="has no chat template; name another"):
        encode_requests(bytes_model, [request("1+1", template="chat")], max_tokens=8)


def test_a_prompt_may_leave_the_model_within_its_thoughts(bytes_model, tmp_path):
    written = "{{ messages[0].content + '<a>' + ('' if quiet else '<think>\\n') }}"
    folder = shutil.copytree(bytes_model, tmp_path / "thinks")
    (folder / "chat_template.jinja").write_text(written)
    (tmp_path / "mine.txt").write_text("{question} <think>")
    for template in ("r1_zero", "luffy", str(tmp_path / "mine.txt")):
        assert begins_thinking(template, Chat(), None)
    for template in ("qwen", "prime", "plain"):
        assert not begins_thinking(template, Chat(), None)
    assert begins_thinking("chat", Chat(), folder)
    assert not begins_thinking("chat", Chat(None, {"quiet": True}), folder)
    assert not begins_thinking("chat", Chat(), None), "a server's prompts are not known"


def test_a_folder_without_model_is_refused(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match="not a model folder"):
        encode_requests(tmp_path, [request("1+1")], max_tokens=8)
