"""Prompts and worked solutions as tokens, in rollouts and in supervised fine-tuning."""

import copy
import dataclasses
import itertools
import json
import random
from itertools import accumulate
from types import SimpleNamespace

import pytest
import yaml

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("torch", reason="torch is not installed")

import torch
from omegaconf import OmegaConf
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config

from seele.config import from_mapping
from seele.config.settings import PromptConfig
from seele.data.steps.cutting import split_steps
from seele.data.storage.schema import write_problems
from seele.errors import ConfigError
from seele.records import BOX_REQUEST, Chat, Instance
from seele.reward.extract import opens_thoughts
from seele.rollout.solutions import encode_problem, encode_with_solution, without_repeat
from seele.rollout.templates import TEMPLATES, prompt_text, stop_strings
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
from seele_verl.dataset import ProblemDataset
from seele_verl.settings import read_settings
from seele_verl.sft.dataset import SolutionDataset, StepBatches

# --- Prompt and worked solution as tokens: nothing is said twice, no blank is added, and hints are prefixes


TEXT = [
    "Then the plums cost 4 each.\n\nSo x = 12 and y = 7.\n",
    "Let $a+b=7$. We add: 3 + 4 = 7.\nHence \\boxed{7}.\n",
    "<think>\nOkay, so the train leaves at 9.\n</think>\n\nThe answer is \\boxed{9}.",
    "Answer: 2 apples, 30 pears; naïve Σ ≤ 3 → done.\n\n",
] * 8
# Of Qwen2's tokenizer.json.
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level() -> PreTrainedTokenizerFast:
    """BPE over bytes with Qwen2's pre-tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=["<eos>"], show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


def single_digits() -> PreTrainedTokenizerFast:
    """BPE over bytes as SmolLM2's: every digit by itself, else GPT-2's pre-tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=480, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator([*TEXT, *[" The The\n\n"] * 8], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")


def sentence_piece(prepend: str) -> PreTrainedTokenizerFast:
    """BPE that falls back to bytes and puts a blank before every text: Metaspace, or Llama 2's normalizer."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    if prepend == "normalizer":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", left=1, right=0),
        ]
    )
    special = ["<unk>", "<eos>", *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = [text.replace("\n", " ").encode("ascii", "ignore").decode() for text in TEXT]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(letters, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", unk_token="<unk>")


TOKENIZERS = {
    "byte-level BPE": byte_level,
    "digits by themselves": single_digits,
    "Metaspace, first": lambda: sentence_piece("first"),
    "Metaspace, always": lambda: sentence_piece("always"),
    "Llama's normalizer": lambda: sentence_piece("normalizer"),
    "bytes": byte_tokenizer,
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def decode(tokenizer, ids):
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def random_steps(seed):
    """A solution cut anywhere, also inside words, blanks and characters' neighbours."""
    draw = random.Random(seed)
    text = "".join(draw.choices(TEXT, k=3))[draw.randrange(20) :]
    cuts = sorted(draw.sample(range(1, len(text)), k=draw.randrange(1, 8)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize("template", ["plain", "r1_zero", "prime", "qwen"])
def test_prompt_and_solution_decode_to_their_text_and_hints_are_prefixes(tokenizer, template):
    for seed in range(40):
        steps = random_steps(seed)
        encoded = encode_problem(tokenizer, "How much is 3+4?", steps, template)
        prompt = prompt_text(tokenizer, "How much is 3+4?", template)
        kept = without_repeat(prompt.partition("3+4?")[2], steps)
        whole = encoded.hint(len(steps))
        assert decode(tokenizer, encoded.prompt_ids + whole) == prompt + "".join(kept)
        assert encoded.prompt_ids == tokenizer.encode(prompt)
        assert len(encoded.step_ids) == len(steps)
        for revealed, end in enumerate(accumulate(map(len, kept), initial=0)):
            hint = encoded.hint(revealed)
            assert hint == whole[: len(hint)]
            # A cut inside a token is moved to the token's start: a hint never says more than its steps.
            assert (prompt + "".join(kept)[:end]).startswith(
                decode(tokenizer, encoded.prompt_ids + hint).rstrip("\ufffd")
            )
        assert encoded.solution(tokenizer) == [*whole, tokenizer.eos_token_id]


def test_cuts_inside_a_token_are_counted():
    tokenizer = byte_level()
    clean = encode_problem(tokenizer, "q", ["Then the plums cost 4 each.\n\n", "So x = 12"], "plain")
    assert clean.moved_cuts == 0
    inside = encode_problem(tokenizer, "q", ["Then the plu", "ms cost 4", " each.\n", "\nSo x"], "plain")
    whole = inside.hint(4)
    assert decode(tokenizer, whole) == "Then the plums cost 4 each.\n\nSo x"
    hints = [decode(tokenizer, inside.hint(revealed)) for revealed in range(4)]
    assert hints[1] in ("Then the", "Then the p", "Then the pl") and inside.moved_cuts >= 1
    moved = sum(
        hint != "Then the plums cost 4 each.\n\nSo x"[:end]
        for hint, end in zip(hints[1:], (12, 21, 28), strict=True)
    )
    assert inside.moved_cuts == moved


@pytest.fixture(params=["made", "real"])
def digits(request):
    """A tokenizer like SmolLM2's, and SmolLM2's."""
    if request.param == "made":
        return single_digits()
    return AutoTokenizer.from_pretrained(request.getfixturevalue("smollm2"))


LINES = ("Natalia sold 48/2 = 24 clips.\n", "Then 48+24 = 72.\n", "The answer is \\boxed{72}.")
PARAGRAPHS = ("Then the plums cost 4 each.\n\n", "The rest is 3.\n\n", "12 The end.\n\n", "Then.")
SENTENCES = ("Then the plums cost 4 each. ", "The rest is 3. ", "12 is left.")


@pytest.mark.parametrize("template", ["plain", "r1_zero", "qwen"])
@pytest.mark.parametrize("steps", [LINES, PARAGRAPHS, SENTENCES], ids=["lines", "paragraphs", "sentences"])
def test_prompt_hint_and_continuation_are_the_tokens_of_their_text(digits, steps, template):
    encoded = encode_problem(digits, "How much is 48+24?", steps, template)
    text = prompt_text(digits, "How much is 48+24?", template) + "".join(steps)
    assert encoded.prompt_ids + encoded.hint(len(steps)) == digits.encode(text, add_special_tokens=False)
    assert decode(digits, encoded.prompt_ids + encoded.hint(len(steps))) == text


def test_a_hint_ends_where_the_model_would_go_on(digits):
    def tokens(steps):
        encoded = encode_problem(digits, "How much?", steps, "plain")
        return [digits.convert_ids_to_tokens(ids) for ids in encoded.step_ids], encoded.moved_cuts

    def one_by_one(steps):
        return [digits.tokenize(step) for step in steps]

    # The line's end is the hint's, and the next line begins without a blank.
    lines, moved = tokens(LINES)
    assert moved == 0 and lines == one_by_one(LINES)
    assert [line[-1] for line in lines[:2]] == ["Ċ", "Ċ"] and not lines[1][0].startswith(("Ġ", "Ċ"))
    # Two ends are two tokens before a letter and one before a digit: as in the text, not as by themselves.
    paragraphs, moved = tokens(PARAGRAPHS)
    assert moved == 0 and paragraphs != one_by_one(PARAGRAPHS)
    assert [step[-2:] for step in paragraphs[:3]] == [["Ċ", "Ċ"], [".", "ĊĊ"], ["Ċ", "Ċ"]]
    assert {step[-1] for step in one_by_one(PARAGRAPHS)[:3]} == {"ĊĊ"}
    # A blank is the next word's, so the hint ends before it; before a digit it is a token, and the hint's.
    sentences, moved = tokens(SENTENCES)
    assert moved == 1
    assert (sentences[0][-1], sentences[1][0]) == (".", "ĠThe")
    assert (sentences[1][-2:], sentences[2][0]) == ([".", "Ġ"], "1")


@pytest.mark.parametrize("template", ["plain", "r1_zero"])
def test_a_hint_of_the_users_stands_in_the_prompt(tokenizer, template):
    steps, request = ["First 3.\n", "Then 4.\n", "So 7."], "{question}\nA start: {hint}\nAll of it, please."
    encoded = encode_problem(tokenizer, "3 + 4?", steps, template, hint_request=request)
    without = encode_problem(tokenizer, "3 + 4?", steps, template)
    assert encoded.before_response(0) == without.prompt_ids == encoded.prompt_ids
    assert encoded.hint(3) == without.hint(3)
    asked = decode(tokenizer, encoded.before_response(2))
    whole = "3 + 4?\nA start: First 3.\nThen 4.\nAll of it, please."
    assert asked == prompt_text(tokenizer, whole, template)
    for revealed in range(4):
        added = sum(encoded.tokens_by_step[:revealed])
        assert len(encoded.before_response(revealed)) == len(encoded.prompt_ids) + added
        assert without.before_response(revealed) == without.prompt_ids + without.hint(revealed)
        assert sum(without.tokens_by_step[:revealed]) == len(without.hint(revealed))


def test_a_tier_stands_in_the_prompt_by_itself(tokenizer):
    tiers, request = ("Add them, add them, add them.", "Seven"), "{question} Hint: {hint}"
    encoded = encode_problem(tokenizer, "3 + 4?", ["3+4=7"], "plain", hint_request=request, tiers=tiers)
    for number, tier in enumerate(tiers, start=1):
        asked = decode(tokenizer, encoded.before_response(number))
        assert asked == prompt_text(tokenizer, f"3 + 4? Hint: {tier}", "plain")
        added = sum(encoded.tokens_by_step[:number])
        assert len(encoded.before_response(number)) == len(encoded.prompt_ids) + added
    assert encoded.tokens_by_step[1] < 0, "the second is shorter"
    assert encoded.solution(tokenizer)[:-1] == encoded.hint(1)


@pytest.mark.parametrize("name", ["Metaspace, first", "Metaspace, always", "Llama's normalizer"])
def test_a_step_of_a_sentence_piece_model_has_no_blank_of_its_own(name):
    tokenizer = TOKENIZERS[name]()
    steps = ["Then 2\n", "Then 2\n", "Then 2\n"]
    encoded = encode_problem(tokenizer, "q", steps, "plain")
    assert decode(tokenizer, encoded.prompt_ids + encoded.hint(3)) == "q\n" + "Then 2\n" * 3
    assert encoded.step_ids[0] == encoded.step_ids[1] == encoded.step_ids[2]
    # Encoded one by one they have three more.
    one_by_one = encoded.prompt_ids + tokenizer.encode("Then 2\n", add_special_tokens=False) * 3
    assert decode(tokenizer, one_by_one) == "q\n" + " Then 2\n" * 3


def test_the_bytes_of_the_small_models_are_what_they_were():
    tokenizer = byte_tokenizer()
    steps = ("a=1+2\n", "b=a-7\n", "\\boxed{é}")
    encoded = encode_problem(tokenizer, "1+2", steps, "plain")
    assert encoded.step_ids == [list(step.encode()) for step in steps]


TRACE = "<think>\nOkay, so it is 4.\n</think>\n\nThe answer is \\boxed{4}."


@pytest.mark.parametrize("template", [*TEMPLATES])
def test_a_trace_says_nothing_that_the_prompt_ends_with(template):
    steps = split_steps(TRACE)
    tokenizer = byte_tokenizer()
    encoded = encode_problem(tokenizer, "What is 2+2?", steps, template)
    behind = decode(tokenizer, encoded.prompt_ids + encoded.hint(len(steps))).rpartition("2+2?")[2]
    ends_with_tag = TEMPLATES[template].endswith("<think>\n")
    assert behind.count("<think>") == 1 and behind.count("</think>") == 1
    assert decode(tokenizer, encoded.hint(len(steps))) == TRACE.removeprefix("<think>\n" * ends_with_tag)
    assert {"r1_zero", "luffy"} == {name for name, text in TEMPLATES.items() if text.endswith("<think>\n")}


def test_so_does_one_behind_the_tokenizers_own_template_and_behind_a_file(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ messages[0].content | trim + '<|im_start|>assistant\n<think>\n' }}"
    chat = encode_problem(tokenizer, " 2+2? ", [TRACE], "chat")
    assert decode(tokenizer, chat.hint(1)).startswith("Okay")
    tokenizer.chat_template = "{{ messages[0].content | replace('+', ' plus ') + '\n<think>\n' }}"
    changed = encode_problem(tokenizer, "2+2?", [TRACE], "chat")
    assert decode(tokenizer, changed.hint(1)).startswith("Okay")
    mine = tmp_path / "mine.txt"
    mine.write_text("Q: {question}\nA: <think>")
    file = encode_problem(tokenizer, "2+2?", [TRACE], str(mine))
    assert decode(tokenizer, file.hint(1)).startswith("\nOkay")


@pytest.mark.parametrize(
    ("prompt_end", "steps", "left"),
    [
        ("\nAssistant: <think>\n", ["<think>", "\n\nOkay"], ["", "Okay"]),
        ("\nAssistant: <think>\n", ["<think>Okay"], ["Okay"]),
        ("\nAssistant: <think>\n", ["Assistant: <think> Okay"], ["Okay"]),
        ("\nAssistant:", ["Assistant: Okay"], [" Okay"]),
        ("\nAssistant: <think>\n", ["Okay <think>"], ["Okay <think>"]),
        ("\nLet me go step", ["steps are two"], ["steps are two"]),
        ("\n", ["\nOkay"], ["\nOkay"]),
        ("", ["Okay"], ["Okay"]),
        ("<think>\n\n</think>\n\n", ["<think>\nOkay"], ["<think>\nOkay"]),
    ],
)
def test_whole_words_at_the_prompts_end_are_taken_off_and_no_others(prompt_end, steps, left):
    assert without_repeat(prompt_end, steps) == left


@pytest.mark.parametrize("error", [NotImplementedError, ValueError("unsupported: return_offsets_mapping")])
def test_a_tokenizer_that_does_not_tell_where_tokens_stand_is_refused(error):
    class Slow:
        eos_token_id = 0

        def encode(self, text, *, add_special_tokens):
            return [ord(character) for character in text]

        def __call__(self, text, **_):
            raise error

    assert encode_problem(Slow(), "q", (), "plain").step_ids == []
    with pytest.raises(
        ConfigError, match=r"model.path: its tokenizer \(Slow\) does not report where in a text"
    ):
        encode_problem(Slow(), "q", ("a",), "plain")


def test_a_tokenizer_that_adds_to_every_text_is_refused():
    class Marked:
        eos_token_id = 0

        def encode(self, text, *, add_special_tokens):
            return [95, *map(ord, text)]

        def __call__(self, text, **_):
            offsets = [(0, 0), *((at, at + 1) for at in range(len(text)))]
            return {"input_ids": [*map(ord, text), 95], "offset_mapping": [*offsets[1:], (len(text),) * 2]}

        def decode(self, token_ids, *, clean_up_tokenization_spaces):
            return "".join(map(chr, token_ids))

    with pytest.raises(ConfigError, match="does not decode to the texts"):
        encode_problem(Marked(), "q", ("a",), "plain")


# --- A system message and variables of the chat template, from the settings to what the model reads


# As Qwen3's: thinking that is switched off is shown as an empty thought.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
BRIEF = Chat("Be brief.", {"enable_thinking": False})
PROMPT = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{}"
    "\nPut your final answer within \\boxed{{}}.<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
OVERRIDES = [
    "seele.prompt.template=chat",
    "seele.prompt.system='Be brief.'",
    "+data.apply_chat_template_kwargs.enable_thinking=false",
]


@pytest.fixture(scope="module")
def chat_tokenizer():
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory, chat_tokenizer):
    folder = tmp_path_factory.mktemp("chat_model")
    Qwen2Config(vocab_size=512, hidden_size=32, intermediate_size=64).save_pretrained(folder)
    chat_tokenizer.save_pretrained(folder)
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


def test_both_stand_in_the_prompt(chat_tokenizer):
    encoded = encode_problem(chat_tokenizer, "1+1?", ["so 2"], "chat", BRIEF)
    assert text_of(chat_tokenizer, encoded.prompt_ids) == PROMPT.format("1+1?")
    without = encode_problem(chat_tokenizer, "1+1?", [], "chat")
    assert text_of(chat_tokenizer, without.prompt_ids) == (
        f"<|im_start|>user\n1+1?\n{BOX_REQUEST}<|im_end|>\n<|im_start|>assistant\n"
    )
    asked = Chat("Answer in \\boxed{}.")
    system = f"<|im_start|>system\n{asked.system}<|im_end|>\n"
    assert text_of(chat_tokenizer, encode_problem(chat_tokenizer, "1+1?", [], "chat", asked).prompt_ids) == (
        f"{system}<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"
    )
    for question, chat in (("A number in \\boxed{}: 1+1?", Chat()), ("1+1?", Chat(ask=""))):
        silent = encode_problem(chat_tokenizer, question, [], "chat", chat)
        assert text_of(chat_tokenizer, silent.prompt_ids) == (
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        )
    # A box in a hint that the user states, or in a solution, does not take the request's place.
    problem = Instance(
        instance_id="x", data_source="x", question="1+1?", steps=("So \\boxed{2}.",), answer="2"
    )
    request = "{question} {hint}"
    told = encode_problem(chat_tokenizer, "1+1?", problem.steps, "chat", hint_request=request).asking_ids[0]
    assert told == encode_with_solution(chat_tokenizer, problem, request, "chat")
    assert text_of(chat_tokenizer, told) == (
        f"<|im_start|>user\n1+1? So \\boxed{{2}}.\n{BOX_REQUEST}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert stop_strings("chat", chat_tokenizer) == ("<|im_end|>",)


def test_verls_key_reaches_training(overrides):
    config = train.compose(overrides)
    assert read_settings(config).prompt.chat == BRIEF
    check_run(config, overrides)


def test_the_longer_prompt_counts_against_the_limits(overrides):
    short = [*overrides, "data.max_prompt_length=60", "seele.data.overlong=refuse"]
    with pytest.raises(ValueError, match=r"prompt"):
        check_run(train.compose(short), short)


def test_supervised_training_reads_the_same_prompt(problems, chat_tokenizer):
    config = {"template": "chat", "chat": dataclasses.asdict(BRIEF), "seed": 0}
    from omegaconf import OmegaConf

    row = SolutionDataset([str(problems)], chat_tokenizer, OmegaConf.create(config))[3]
    assert text_of(chat_tokenizer, row["input_ids"]).startswith(PROMPT.format("3+1?") + "a\nb")
    assert isinstance(row["input_ids"], torch.Tensor)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"system": "x"}, "system needs template 'chat'.*; got 'r1_zero'"),
        ({"chat_kwargs": {"a": 1}}, r"chat_kwargs needs template 'chat'.*data.apply_chat_template_kwargs"),
        ({"open_thinking": True}, "open_thinking needs template 'chat'.*; got 'r1_zero'"),
        ({"template": "chat", "chat_kwargs": {"tokenize": True}}, r"\['tokenize'\] are not"),
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
def test_a_hint_goes_on_from_where_the_prompt_leaves_the_thoughts(chat_tokenizer, chat, opening):
    encoded = encode_problem(chat_tokenizer, "1+1?", ["so 1+1\n", "is 2"], "chat", chat)
    prompt = text_of(chat_tokenizer, encoded.prompt_ids)
    assert prompt == f"<|im_start|>user\n1+1?\n{BOX_REQUEST}<|im_end|>\n<|im_start|>assistant\n{opening}"
    assert text_of(chat_tokenizer, encoded.hint(1)) == "so 1+1\n"
    assert opens_thoughts(prompt) is chat.open_thinking


def test_thoughts_are_opened_once(chat_tokenizer):
    opening = copy.deepcopy(chat_tokenizer)
    opening.chat_template = TEMPLATE.replace("assistant\n{%", "assistant\n<think>\n{%")
    solution = ["<think>\nso 1+1\n", "is 2"]
    for each, chat in ((opening, Chat(open_thinking=True)), (chat_tokenizer, Chat(open_thinking=True))):
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
    requests = requests_of_step(read_conditions(run), 1)
    assert requests and all(request.chat == chat for request in requests)
    of_run = make_plan(parse_arguments(["--run", str(run), "--model", str(model), "--out", "o"]))
    where = ["--model", str(model), "--template", "chat", "--problems", f"a={problems}", "--out", "o"]
    asked = make_plan(parse_arguments([*where, "--system", "Be brief.", "--open-thinking"]))
    closed = ["--run", str(run), "--model", str(model), "--out", "o", "--no-open-thinking"]
    assert make_plan(parse_arguments(closed)).chat == Chat("Be brief.", {})
    for plan in (of_run, asked):
        described = {"system": "Be brief.", "kwargs": {}, "open_thinking": True, "ask": BOX_REQUEST}
        assert plan.conditions["chat"] == described
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
        described = {"system": "Be brief.", "kwargs": {"enable_thinking": False}, "ask": BOX_REQUEST}
        assert plan.conditions["chat"] == described
    # An option replaces its own part of the run's settings.
    over = ["--run", str(train_run), "--model", str(model), "--out", "o"]
    for option, changes in (
        (("--system", "Think."), {"system": "Think."}),
        (("--chat-template-kwarg", "tone=dry"), {"kwargs": {"enable_thinking": False, "tone": "dry"}}),
        (("--ask", "A box?"), {"ask": "A box?"}),
    ):
        chat = make_plan(parse_arguments([*over, *option])).chat
        assert chat == dataclasses.replace(BRIEF, **changes)
    silent = make_plan(parse_arguments([*where, "--ask", ""]))
    assert silent.conditions["chat"] == {"system": None, "kwargs": {}}
    # A run from before the box was asked for.
    settings = yaml.safe_load((train_run / "resolved.yaml").read_text())
    del settings["seele"]["prompt"]["ask"]
    (train_run / "resolved.yaml").write_text(yaml.safe_dump(settings))
    assert read_run_defaults(train_run).chat == dataclasses.replace(BRIEF, ask="")
    assert make_plan(parse_arguments([*over, "--ask", BOX_REQUEST])).chat == BRIEF
    # Another template than the run's leaves the run's aside.
    other = ["--run", str(train_run), "--model", str(model), "--template", "plain", "--out", "o"]
    assert make_plan(parse_arguments(other)).conditions["chat"] == {"system": None, "kwargs": {}}


def test_validation_after_supervised_training_asks_alike(overrides, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "resolved.yaml").write_text(_resolved(overrides))
    requests = requests_of_step(read_conditions(run), 1)
    assert requests and all(request.chat == BRIEF for request in requests)


def _resolved(overrides):
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(train.compose(overrides), resolve=True)


def test_an_engine_and_a_server_are_asked_alike(model, chat_tokenizer, server):
    request = Request(question="1+1?", template="chat", chat=BRIEF, temperature=0.0, seed=0)
    [encoded] = encode_requests(model, [request], max_tokens=8)
    assert text_of(chat_tokenizer, encoded.token_ids) == PROMPT.format("1+1?")
    server.answer = lambda prompt, seed: "2"
    where = Server(url=server.url, model="stand-in", first_wait_s=0.001)
    dict(complete_on_server(where, [request], EngineSettings(max_tokens=8)))
    [asked] = server.asked
    assert asked["chat_template_kwargs"] == {"enable_thinking": False}
    messages = chat_tokenizer.apply_chat_template(
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
    with pytest.raises(ConfigError, match="--open-thinking and --ask: need --template chat"):
        make_plan(parse_arguments([*where, "--system", "x"]))
    assert json.dumps(parse_arguments([*where, "--system", ""]).chat) == '{"system": ""}'


# --- Problems as verl's trainer takes them: cut into the units of the run's hints


PROBLEM = Instance(
    instance_id="toy/1",
    data_source="toy",
    question="3 * 4?",
    steps=("Take 3. Take 4.\n", "3 * 4 = 12.\n", "So \\boxed{12}."),
    answer="12",
)


class Characters:
    """A tokenizer of code points."""

    def encode(self, text, *, add_special_tokens):
        return [ord(character) for character in text]

    def decode(self, token_ids, *, clean_up_tokenization_spaces):
        return "".join(map(chr, token_ids))


def instance_under(tmp_path, **hints):
    write_problems(tmp_path / "train.parquet", [PROBLEM], split="train")
    config = OmegaConf.create({"seele": {"hints": hints}, "data": {"hints": "${seele.hints}"}}).data
    dataset = ProblemDataset(str(tmp_path / "train.parquet"), Characters(), config)
    return dataset[0]["instance"]


def test_by_default_a_problem_is_as_its_file_has_it(tmp_path):
    assert instance_under(tmp_path) == PROBLEM


def test_the_run_decides_units_and_how_far_hints_go(tmp_path):
    sentences = instance_under(tmp_path, unit="sentence", revealing="forbid")
    assert sentences.steps == ("Take 3. ", "Take 4.\n", "3 * 4 = 12.\n", "So \\boxed{12}.")
    assert sentences.legal_hint_ratios == (0.0, 0.25, 0.5)
    tokens = instance_under(tmp_path, unit="token")
    assert "".join(tokens.steps) == "".join(PROBLEM.steps) and len(tokens.steps) > 20


def test_its_problems_are_named_in_order(tmp_path):
    for name, ids in {"a": ["x", "y"], "b": ["z"]}.items():
        problems = [dataclasses.replace(PROBLEM, instance_id=each) for each in ids]
        write_problems(tmp_path / f"{name}.parquet", problems, split="train")
    files = [str(tmp_path / f"{name}.parquet") for name in "ba"]
    assert ProblemDataset(files).instance_ids == ["z", "x", "y"]
    assert ProblemDataset(files, max_samples=2).instance_ids == ["z", "x"]


def test_a_method_without_hints_is_unaffected(tmp_path):
    assert instance_under(tmp_path, controller="none", unit="token", revealing="forbid") == PROBLEM


def test_a_bad_setting_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"seele\.hints: unit must be one of"):
        instance_under(tmp_path, unit="word")


# --- Rows of supervised fine-tuning, token by token, and which of them a step and a rank train on


TOKENIZER = byte_tokenizer()


def problem(index: int) -> Instance:
    steps = ("7a+5=2\n", f"2b-{index}=9\n", "\\boxed{9}")
    return Instance(
        instance_id=f"p-{index}", data_source="chains", question=f"7 a+5 b-{index}", steps=steps, answer="9"
    )


@pytest.fixture
def dataset(tmp_path) -> SolutionDataset:
    write_problems(tmp_path / "train.parquet", [problem(i) for i in range(10)], split="train")
    return SolutionDataset(
        [str(tmp_path / "train.parquet")], tokenizer=TOKENIZER, config=SimpleNamespace(template="plain")
    )


def test_the_loss_is_on_the_solution_and_the_end_of_the_text_and_on_nothing_else(dataset):
    row = dataset[3]
    tokens, learnt = row["input_ids"].tolist(), row["loss_mask"].tolist()
    question, solution = "7 a+5 b-3\n", "7a+5=2\n2b-3=9\n\\boxed{9}"
    assert TOKENIZER.decode(tokens) == question + solution + TOKENIZER.eos_token
    # A byte is a token: ten of the question, then all of the solution and the end.
    assert learnt == [0] * len(question) + [1] * len(solution) + [1]
    assert row["position_ids"].tolist() == list(range(len(tokens)))
    assert TOKENIZER.decode(row["prompts"].tolist()) == question


def test_tokens_are_those_of_the_prompt_and_of_the_longest_hint_and_what_follows_it(dataset):
    encoded = encode_problem(TOKENIZER, problem(3).question, problem(3).steps, "plain")
    hinted = encoded.prompt_ids + encoded.hint(2)
    tokens = dataset[3]["input_ids"].tolist()
    assert tokens[: len(hinted)] == hinted
    assert tokens[len(hinted) :] == [*encoded.step_ids[-1], TOKENIZER.eos_token_id]
    assert tokens[len(encoded.prompt_ids) :] == encoded.solution(TOKENIZER)


def batches(
    dataset, *, rank: int = 0, ranks: int = 1, after_step: int = 0, count: int = 4
) -> list[list[str]]:
    """The problems of the next ``count`` steps, by the digit in their question."""
    rows = StepBatches(dataset, batch_size=4, seed=5, rank=rank, ranks=ranks, collate=list)
    rows.steps_done = after_step
    texts = ([TOKENIZER.decode(row["input_ids"].tolist()) for row in batch] for batch in rows)
    return [[text[8] for text in batch] for batch in itertools.islice(texts, count)]


def test_ranks_divide_a_steps_problems(dataset):
    whole = batches(dataset)
    first, second = (batches(dataset, rank=rank, ranks=2) for rank in (0, 1))
    for step, problems in enumerate(whole):
        assert sorted(first[step] + second[step]) == sorted(problems)
        assert len(first[step]) == len(second[step]) == 2


@pytest.mark.parametrize("step", [1, 2, 3, 5])  # five steps are two epochs
def test_a_resumed_run_trains_on_what_the_other_one_would_have(dataset, step):
    assert batches(dataset, after_step=step, count=2) == batches(dataset, count=7)[step : step + 2]


def test_each_epoch_trains_on_every_problem_once_also_where_a_step_belongs_to_two(dataset):
    order = [problem for step in batches(dataset, count=5) for problem in step]
    assert sorted(order[:10]) == sorted(order[10:]) == list("0123456789")


def test_verl_finds_itself_in_an_epoch_that_has_not_ended(dataset):
    # It trains epochs step // len(loader) and later; 7 steps are three epochs less a remainder.
    loader = StepBatches(dataset, batch_size=4, seed=5, rank=0, ranks=1, collate=list)
    assert all(step // len(loader) < 3 for step in range(7))
