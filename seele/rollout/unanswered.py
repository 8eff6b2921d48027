"""Responses without an answer and responses without an end: counts, quotes, and advice for the user.

A response without an answer is wrong whatever the model knows, and a text cut by the token limit seldom
reaches an answer. If most responses are such, an accuracy measures their form. An answer is what the current
grader looks for, in training the last ``\\boxed{}``.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seele.config import SeeleConfig
from seele.records import Chat, Finish, GradeReason
from seele.rollout.templates import CHAT, asks_for_box, box_templates

MOST = 0.5
"""Shares above this cause a warning."""

_NUM_QUOTES = 3
_HEAD_CHARS, _TAIL_CHARS = 200, 80


class Graded(NamedTuple):
    """A response, its grade's reason and how it ended."""

    text: str
    reason: GradeReason
    finish: Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """The responses that lack an answer or an end."""

    responses: int
    no_answer: tuple[str, ...]
    """Texts without an answer."""
    truncated: tuple[str, ...]
    """Texts cut by the token limit."""

    @property
    def no_answer_share(self) -> float:
        """Share of the responses, in [0, 1]; 0 without responses."""
        return len(self.no_answer) / max(self.responses, 1)

    @property
    def truncated_share(self) -> float:
        """Share of the responses, in [0, 1]; 0 without responses."""
        return len(self.truncated) / max(self.responses, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Remedies, one line each, in the options of the current command."""

    no_answer: tuple[str, ...]
    truncated: tuple[str, ...]


def find_unanswered(responses: Iterable[Graded]) -> Unanswered:
    """Count the responses, except those that we stopped, and keep the ones that lack an answer or an end."""
    graded = [each for each in responses if each.finish is not Finish.FLAGGED]
    return Unanswered(
        responses=len(graded),
        no_answer=tuple(each.text for each in graded if each.reason is GradeReason.NO_ANSWER),
        truncated=tuple(each.text for each in graded if each.finish is Finish.LENGTH),
    )


def share_metrics(unanswered: Unanswered, split: str) -> dict[str, float]:
    """The shares of a validation file's responses, by the metrics' names."""
    return {
        f"val/no_answer_share/{split}": unanswered.no_answer_share,
        f"val/truncated_share/{split}": unanswered.truncated_share,
    }


def warn_of_unanswered(groups: Mapping[str, Unanswered], advice: Advice) -> str:
    """A warning about the groups in which most responses lack an answer or an end, with three examples.

    Args:
        groups: Responses by a readable name, such as a file's.
        advice: What the user can do.

    Returns:
        Lines for a terminal; empty if there is nothing to warn about.
    """
    no_answer = {name: group for name, group in groups.items() if group.no_answer_share > MOST}
    truncated = {name: group for name, group in groups.items() if group.truncated_share > MOST}
    lines = []
    if no_answer:
        shares = _listed({name: (group.no_answer_share, group) for name, group in no_answer.items()})
        lines += [
            f"warning: most responses have no answer ({shares}). They count as wrong, whatever the model "
            "knows. What helps:",
            *(f"- {line}" for line in advice.no_answer),
            *_quotes([text for group in no_answer.values() for text in group.no_answer]),
        ]
    if truncated:
        shares = _listed({name: (group.truncated_share, group) for name, group in truncated.items()})
        lines += [
            f"warning: most responses have no end: they hit the token limit ({shares}). What helps:",
            *(f"- {line}" for line in advice.truncated),
        ]
        if not no_answer:
            lines += _quotes([text for group in truncated.values() for text in group.truncated])
    return "".join(f"{line}\n" for line in lines)


def advise_template(template: str, chat: Chat, *, template_option: str, ask_option: str) -> tuple[str, ...]:
    """Advice to use another prompt if this one does not ask for a box.

    Args:
        template: The prompt's template.
        chat: Further inputs of the template ``chat`` besides the question.
        template_option: The text before the name of a template, such as ``--template ``.
        ask_option: The option for ``Chat.ask``.
    """
    if asks_for_box(template, chat):
        return ()
    if template == CHAT:
        return (f"ask for the box: {ask_option}, whose text does not ask for it here",)
    others = ", ".join(box_templates())
    return (
        f"a prompt that asks for the box, which {template!r} does not: {template_option}{CHAT} for a model "
        f"with a chat template, or one of {others}",
    )


def advise_run(seele: SeeleConfig, *, max_tokens: int, supervised: bool = False) -> Advice:
    """Advice for a training run.

    Args:
        seele: The run's settings.
        max_tokens: Tokens of the longest response.
        supervised: Whether the run learns worked solutions, and so is itself a warm start.
    """
    prompt = seele.prompt
    another = advise_template(
        prompt.template,
        prompt.chat,
        template_option="seele.prompt.template=",
        ask_option="seele.prompt.ask",
    )
    more = "more supervised training: seele.sft.epochs"
    start = (
        "a warm start on worked solutions: seele model warm-start first, or method=sft_rl for both in turn"
    )
    going_on = "if texts continue after the answer: seele.prompt.stop ends them in validation"
    if not (supervised or seele.reward.truncated_is_wrong):
        going_on += ", and with seele.reward.truncated_is_wrong=true the policy learns to end them"
    return Advice(
        no_answer=(
            *another,
            more if supervised else start,
            "for answers elsewhere in the text: a reward function of your own, "
            "seele.reward.grader=FILE.py:FUNCTION (docs/grading.md)",
        ),
        truncated=(f"longer responses: data.max_response_length, which is {max_tokens}", going_on),
    )


def _listed(shares: Mapping[str, tuple[float, Unanswered]]) -> str:
    return ", ".join(f"{name}: {share:.1%} of {group.responses:,}" for name, (share, group) in shares.items())


def _quotes(texts: Sequence[str]) -> list[str]:
    """Some of the texts, evenly spaced, each on its own line."""
    count = min(_NUM_QUOTES, len(texts))
    chosen = [texts[index * len(texts) // count] for index in range(count)]
    return ["For example:", *(f"  {_quote(text)}" for text in chosen)]


def _quote(text: str) -> str:
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        text = f"{text[:_HEAD_CHARS]} [...] {text[-_TAIL_CHARS:]}"
    return json.dumps(text, ensure_ascii=False)
