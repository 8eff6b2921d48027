"""The tokenizer of the models that are made here: a token is a byte."""

from tokenizers.pre_tokenizers import ByteLevel
from transformers import Qwen2Tokenizer

END_OF_TEXT = "<|im_end|>"
PADDING = "<|endoftext|>"
SPECIAL_TOKENS = (PADDING, "<|im_start|>", END_OF_TEXT)

# What the template "plain" writes: verl asks the tokenizer for a chat template even where it is not used.
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def byte_tokenizer() -> Qwen2Tokenizer:
    """One token a byte, whose id is the byte's value, and Qwen's three special tokens behind them."""
    vocabulary = {character: token for token, character in enumerate((*_byte_characters(), *SPECIAL_TOKENS))}
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary,
        merges=[],
        unk_token=PADDING,
        eos_token=END_OF_TEXT,
        pad_token=PADDING,
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _byte_characters() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies, in the bytes' order.

    Printable Latin-1 bytes stand for themselves, the others for the characters from U+0100 on.
    """
    alphabet = set(ByteLevel.alphabet())
    stand_ins = iter(sorted(character for character in alphabet if ord(character) >= 256))
    return [chr(byte) if chr(byte) in alphabet else next(stand_ins) for byte in range(256)]
