"""Units of a hint (stored steps, sentences, or tokens), and how much a hint may reveal.

A problem is converted to the form that a run uses: its steps become the units of ``seele.hints.unit``. Hints
end before the last box, since the response itself must produce what is graded, and with
``seele.hints.revealing=forbid`` before the answer is first stated. The converted problem is not stored.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Protocol

from seele.config import HintConfig
from seele.data.steps.cutting import split_sentences
from seele.data.steps.leakage import fewest_steps, revealed_at
from seele.errors import ConfigError
from seele.maths.boxed import OPENING
from seele.records import Instance

_LONGEST_RUN = 32  # most tokens in a unit, so that a step is cut in linear time
_PROBE = "There are 12 apples and 30 pears."


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that cutting needs."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the token ids of ``text``."""
        ...

    def decode(self, token_ids: Sequence[int], *, clean_up_tokenization_spaces: bool) -> str:
        """Return the text of tokens."""
        ...

    def __hash__(self) -> int:
        """Return a hash: results are cached per tokenizer."""
        ...


def for_hints(instance: Instance, hints: HintConfig, tokenizer: Tokenizer) -> Instance:
    """Return the problem in the form from which a run with these settings gives hints; unchanged if it gives
    none.

    With ``seele.hints.kind=tiers``, a problem without tiers has no hint.

    The first statement of the answer is located again if the units are not the stored steps, or if it is not
    stored. A solution cut into tokens has exactly the tokens of its steps.

    Raises:
        ConfigError: As in ``check_unit``.
    """
    if not hints.gives_hints:
        return instance
    if hints.kind == "tiers":
        return instance if instance.tiers else dataclasses.replace(instance, longest_hint=0)
    if instance.tiers:
        instance = dataclasses.replace(instance, tiers=())
    if not instance.steps:
        return instance
    before_answer = _start_of_answer(instance.steps, hints.unit)
    if hints.unit == "sentence":
        sentences = (sentence for step in instance.steps for sentence in split_sentences(step))
        instance = dataclasses.replace(instance, steps=tuple(sentences), revealed_at=None)
    elif hints.unit == "token":
        check_unit(hints, tokenizer)
        tokens = (token for step in instance.steps for token in split_tokens(step, tokenizer))
        instance = dataclasses.replace(instance, steps=tuple(tokens), revealed_at=None)
    longest = fewest_steps(instance.steps, before_answer + 1) - 1
    if hints.revealing == "forbid":
        revealed = instance.revealed_at
        if revealed is None:
            revealed = revealed_at(instance.steps, instance.answer)
        instance = dataclasses.replace(instance, revealed_at=revealed)
        longest = min(longest, max(revealed - 1, 0))
    return (
        dataclasses.replace(instance, longest_hint=longest) if longest < len(instance.steps) - 1 else instance
    )


def most_hint_steps(steps: Sequence[str]) -> int:
    """Return how many leading steps a hint may reveal: not all, and none that opens the last box."""
    before_answer = fewest_steps(steps, _start_of_answer(steps, "step") + 1) - 1
    return max(0, min(before_answer, len(steps) - 1))


def _start_of_answer(steps: Sequence[str], unit: str) -> int:
    """Return the number of leading characters that a hint may reveal: those before the last box.

    Without a box, a hint of steps may reveal anything but the whole; smaller units stop before the last step.
    """
    text = "".join(steps)
    box = text.rfind(OPENING)
    if box >= 0:
        return box
    return len(text) if unit == "step" else len(text) - len(steps[-1])


@functools.lru_cache(maxsize=8)
def _cuts_text(tokenizer: Tokenizer) -> bool:
    return len(split_tokens(_PROBE, tokenizer)) > 1


def check_unit(hints: HintConfig, tokenizer: Tokenizer) -> None:
    """Refuse tokens as units if the tokenizer cannot encode them one by one.

    Raises:
        ConfigError: If a text cut between tokens would have different tokens, as when SentencePiece puts a
            blank before every text.
    """
    if hints.unit == "token" and hints.gives_hints and not _cuts_text(tokenizer):
        raise ConfigError(
            "seele.hints.unit: 'token', but with this model's tokenizer, the parts of a text have different "
            "tokens than the whole; use 'step' or 'sentence'"
        )


def split_tokens(text: str, tokenizer: Tokenizer) -> tuple[str, ...]:
    """Cut a text into pieces that, encoded one by one, give the tokens of the whole.

    A piece is one token if that decodes to a text on its own and is not blank; otherwise it is joined with
    the next ones (a character of several tokens, the blanks before a word).

    Returns:
        Pieces whose concatenation is ``text``; empty for a blank text.
    """
    if not text.strip():
        return ()
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces: list[tuple[str, int]] = []
    first = position = 0
    for piece, last in _standalone_runs(ids, text, tokenizer):
        pieces.append((piece, first))
        first, position = last, position + len(piece)
    while position < len(text):
        rest = text[position:]
        if rest.strip() and tokenizer.encode(rest, add_special_tokens=False) == ids[first:]:
            pieces.append((rest, first))
            break
        if not pieces:
            return (text,)
        piece, first = pieces.pop()
        position -= len(piece)
    return tuple(piece for piece, _ in pieces)


def _standalone_runs(ids: Sequence[int], text: str, tokenizer: Tokenizer) -> Iterator[tuple[str, int]]:
    """Yield the texts of the shortest runs of tokens that can be encoded on their own, from the start, each
    with the number of tokens up to its end; stops where no such run follows.
    """
    first = position = 0
    while first < len(ids):
        for last in range(first + 1, min(first + _LONGEST_RUN, len(ids)) + 1):
            piece = _standalone_text(tokenizer, tuple(ids[first:last]))
            if piece is not None and text.startswith(piece, position):
                break
        else:
            return
        yield piece, last
        first, position = last, position + len(piece)


@functools.lru_cache(maxsize=1 << 17)
def _standalone_text(tokenizer: Tokenizer, ids: tuple[int, ...]) -> str | None:
    """Return the tokens' text if it is not blank and encodes to exactly these tokens, else None."""
    text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    is_same = text.strip() and tokenizer.encode(text, add_special_tokens=False) == list(ids)
    return text if is_same else None
