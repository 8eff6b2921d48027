"""Prompts: training, validation and evaluation see the same bytes."""

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from seele import plugins
from seele.errors import ConfigError
from seele.rollout.templates import absolute_template, encode_prompt, render_prompt, stop_strings


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
    assert text_of(encode_prompt(Characters(), "7+5", "chat")) == "<user>7+5<assistant>"


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
        ("no_prompts.py:ASK", "seele.prompt.template: no file 'no_prompts.py'"),
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
