"""Prompt and worked solution as tokens: nothing is said twice, no blank is added, and hints are prefixes."""

import random
from itertools import accumulate

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from seele.data.steps.cutting import split_steps
from seele.errors import ConfigError
from seele.rollout.solutions import encode_problem, without_repeat
from seele.rollout.templates import TEMPLATES, prompt_text
from seele_models.tokenizer import byte_tokenizer

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


def test_a_tokenizer_that_does_not_tell_where_tokens_stand_is_refused():
    class Slow:
        eos_token_id = 0

        def encode(self, text, *, add_special_tokens):
            return [ord(character) for character in text]

        def __call__(self, text, **_):
            raise NotImplementedError

    assert encode_problem(Slow(), "q", (), "plain").step_ids == []
    with pytest.raises(ConfigError, match=r"model.path: its tokenizer does not tell where in a text"):
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

    with pytest.raises(ConfigError, match="does not give back the texts"):
        encode_problem(Marked(), "q", ("a",), "plain")
