"""A problem as token ids: its prompt, and the worked solution from which hints, prefixes and traces are cut.

The solution does not repeat the end of the prompt: if the prompt ends with ``<think>``, a solution that
begins with it loses it. The solution is encoded as a whole and cut where its steps end, so that a hint's
tokens are a prefix of the whole solution's, and a longer hint begins with a shorter one's.
"""

import functools
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from seele.errors import ConfigError
from seele.records import Chat, Instance
from seele.rollout.templates import (
    CHAT,
    NO_CHAT,
    Tokenizer,
    ask_with_hint,
    box_request,
    encode_prompt,
    encode_text,
    prompt_text,
)

ANCHORS = ("", "\n", ".\n", ": ")
"""Texts after which a solution may be encoded. SentencePiece models put a blank before every text, which must
not appear between prompt and solution."""

_PROBES = ("Then 2", "\nThen", " x = 2", "$x$", "\\boxed{7}\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedProblem:
    """Token ids of a problem's parts, to be concatenated unchanged."""

    prompt_ids: list[int]
    step_ids: list[list[int]]
    """Token ids of each step of the worked solution."""
    moved_cuts: int
    """Number of steps that end inside a token, which then belongs to the next step."""
    asking_ids: tuple[list[int], ...] = ()
    """If hints are in the user's turn: the prompt with a hint of 1, 2, ... steps, or with each tier; else
    empty."""

    def before_response(self, num_steps: int) -> list[int]:
        """Token ids before a response whose hint has ``num_steps`` steps."""
        if num_steps and self.asking_ids:
            return self.asking_ids[num_steps - 1]
        return self.prompt_ids + self.hint(num_steps)

    @property
    def tokens_by_step(self) -> tuple[int, ...]:
        """Number of tokens that each further step of a hint adds before the response; negative for a shorter
        tier.
        """
        if not self.asking_ids:
            return tuple(map(len, self.step_ids))
        lengths = [len(self.prompt_ids), *map(len, self.asking_ids)]
        return tuple(longer - shorter for shorter, longer in pairwise(lengths))

    def hint(self, num_steps: int) -> list[int]:
        """Token ids of the first ``num_steps`` steps."""
        return [token for ids in self.step_ids[:num_steps] for token in ids]

    def solution(self, tokenizer: Tokenizer) -> list[int]:
        """The worked solution as a whole response: its tokens, then the end of the text."""
        return [*self.hint(len(self.step_ids)), tokenizer.eos_token_id]


def encode_problem(
    tokenizer: Tokenizer,
    question: str,
    steps: Sequence[str],
    template: str,
    chat: Chat = NO_CHAT,
    *,
    hint_request: str | None = None,
    tiers: Sequence[str] = (),
) -> EncodedProblem:
    """Encode the prompt, and the worked solution after it.

    Args:
        tokenizer: The model's; a fast one, which reports the position of each token in the text.
        question: The question without the template.
        steps: The worked solution; ``"".join(steps)`` is its text. May be empty.
        template: As for ``encode_prompt``.
        chat: As for ``encode_prompt``.
        hint_request: The user's turn for a problem with a hint, containing ``{question}`` and ``{hint}``;
            None if the assistant's turn begins with the hint.
        tiers: Hints that are separate texts and replace the solution's prefixes; only with a request.

    Raises:
        ConfigError: The template is unknown, or the tokenizer cannot continue a text.
    """
    prompt = prompt_text(tokenizer, question, template, chat)
    steps = without_repeat(_behind_question(prompt, question), steps)
    step_ids, moved_cuts = encode_steps(tokenizer, steps) if steps else ([], 0)
    hints = (tiers or accumulate(steps)) if hint_request else ()
    return EncodedProblem(
        prompt_ids=encode_text(tokenizer, prompt, template),
        step_ids=step_ids,
        moved_cuts=moved_cuts,
        asking_ids=tuple(
            _encode_with_hint(tokenizer, hint_request or "", question, hint, template, chat) for hint in hints
        ),
    )


def encode_with_solution(
    tokenizer: Tokenizer, instance: Instance, request: str, template: str, chat: Chat = NO_CHAT
) -> list[int]:
    """Token ids of a prompt that shows the worked solution: ``request`` with the solution as its hint.

    Args:
        tokenizer: The model's tokenizer.
        instance: The problem.
        request: A text containing ``{question}`` and ``{hint}``.
        template: As for ``encode_prompt``.
        chat: As for ``encode_prompt``.

    Raises:
        ConfigError: The template is unknown.
    """
    return _encode_with_hint(tokenizer, request, instance.question, "".join(instance.steps), template, chat)


def _encode_with_hint(
    tokenizer: Tokenizer, request: str, question: str, hint: str, template: str, chat: Chat
) -> list[int]:
    """Token ids of a prompt whose user states the hint, with a request for a box as if without the hint."""
    asked = ask_with_hint(request, question, hint)
    if template == CHAT:
        asked += box_request(ask_with_hint(request, question, ""), chat)
        chat = replace(chat, ask="")
    return encode_prompt(tokenizer, asked, template, chat)


def _behind_question(prompt: str, question: str) -> str:
    """The prompt's text after the question, which a chat template may have trimmed or changed."""
    if not question.strip():
        return prompt
    _, found, behind = prompt.rpartition(question.strip())
    return behind if found else prompt[prompt.rstrip().rfind("\n") + 1 :]


def without_repeat(prompt_end: str, steps: Sequence[str]) -> list[str]:
    """The steps without a repetition of the end of the prompt.

    The longest sequence of the prompt's last words with which the solution begins is removed, with the blanks
    after it if the prompt also ends with blanks. The number of steps stays the same; one may become empty.

    Args:
        prompt_end: The prompt's text after the question.
        steps: The worked solution.
    """
    solution, words = "".join(steps), prompt_end.split()
    for first, word in enumerate(words):
        if solution.lstrip().startswith(word):
            repeat = re.match(
                r"\s*" + r"\s+".join(map(re.escape, words[first:])) + r"(?:(?<!\w)|(?!\w))", solution
            )
            if repeat:
                break
    else:
        return list(steps)
    said = repeat.end()
    if prompt_end != prompt_end.rstrip():
        said = len(solution) - len(solution[said:].lstrip())
    starts = accumulate(map(len, steps), initial=0)
    return [step[max(said - start, 0) :] for start, step in zip(starts, steps, strict=False)]


def encode_steps(tokenizer: Tokenizer, steps: Sequence[str]) -> tuple[list[list[int]], int]:
    """Token ids of each step of a solution after a prompt, and the number of steps that end inside a token.
    Such a token belongs to the next step, so that no hint reveals more than its steps.

    Raises:
        ConfigError: As in ``encode_problem``.
    """
    ids, starts, ends = _encode_continuation(tokenizer, "".join(steps))
    step_ids, moved_cuts, first = [], 0, 0
    for boundary in accumulate(map(len, steps[:-1])):
        last = bisect_right(ends, boundary, lo=first)
        moved_cuts += last < len(ids) and starts[last] < boundary
        step_ids.append(ids[first:last])
        first = last
    return [*step_ids, ids[first:]], moved_cuts


def _encode_continuation(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[int], list[int]]:
    """Token ids of a text that follows another one, and where in it each token starts and ends."""
    for anchor in _anchors(tokenizer):
        ids, starts, ends = _encode_with_offsets(tokenizer, anchor + text)
        first = bisect_right(ends, len(anchor)) if anchor else 0
        if first == len(ids) or starts[first] >= len(anchor):
            return (
                ids[first:],
                [start - len(anchor) for start in starts[first:]],
                [end - len(anchor) for end in ends[first:]],
            )
    raise ConfigError(f"the tokenizer joins the start of {text[:40]!r} with whatever precedes it")


@functools.lru_cache(maxsize=8)
def _anchors(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The anchors after which a text is encoded unchanged."""
    anchors = tuple(
        anchor for anchor in ANCHORS if all(_continues(tokenizer, anchor, probe) for probe in _PROBES)
    )
    if not anchors:
        raise ConfigError(
            "actor_rollout_ref.model.path: its tokenizer does not decode to the texts that it encodes, so "
            "a solution cannot follow a prompt; hints and worked solutions need another tokenizer"
        )
    return anchors


def _continues(tokenizer: Tokenizer, anchor: str, probe: str) -> bool:
    before = "Question: 7?\n"
    ids, _, ends = _encode_with_offsets(tokenizer, anchor + probe)
    first = bisect_right(ends, len(anchor)) if anchor else 0
    joined = [*tokenizer.encode(before, add_special_tokens=False), *ids[first:]]
    return tokenizer.decode(joined, clean_up_tokenization_spaces=False) == before + probe


def _encode_with_offsets(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[int], list[int]]:
    """Token ids, and where each token starts and ends, in characters; ends never decrease."""
    try:
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    except (NotImplementedError, ValueError) as error:  # transformers' slow tokenizers; Mistral's own
        raise ConfigError(
            f"actor_rollout_ref.model.path: its tokenizer ({type(tokenizer).__name__}) does not report where "
            "in a text a token is, which hints and worked solutions need; save a fast one there "
            "(tokenizer.json)"
        ) from error
    offsets = encoded["offset_mapping"]
    ends = list(accumulate((end for _, end in offsets), max))
    return list(encoded["input_ids"]), [start for start, _ in offsets], ends
