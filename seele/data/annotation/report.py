"""Results of an annotation: the problems with their new texts, the counts, the manifest, the summary."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from seele.data.annotation.annotate import Outcome
from seele.data.annotation.calls import Annotator, Task
from seele.data.annotation.cost import Forecast, Prices
from seele.data.annotation.ledger import Account
from seele.data.annotation.reply import Rejection
from seele.data.steps.leakage import revealed_at
from seele.data.storage.schema import content_id, rewrite_problems, write_tiers
from seele.records import Instance

ACCEPTED = "accepted"
ANNOTATED = "annotated"
HINTED = "hinted"
TWIN = "twin"
"""Identical to an annotated problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts of an annotation. Each of the two mappings adds up to the total."""

    problems: Mapping[str, int]
    """First the annotated or hinted problems, then the others by the reason why there are no texts."""
    replies: Mapping[str, int]
    """First the accepted replies, then the others by the reason why they were not kept."""
    revealed_early: int | None = None
    """Annotated problems whose answer appears before the last step; None for hints."""

    @property
    def kept(self) -> int:
        """Number of annotated or hinted problems."""
        return next(iter(self.problems.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Output that is made from a file of problems and the replies."""

    counts: Tally
    write: Callable[[Path], None]
    """Writes the file."""


Maker = Callable[[Path, Sequence[Instance], Sequence[Task], Mapping[Task, Outcome]], Output]
"""Makes the output from the file, its problems, the task of each problem, and the outcome of each task."""


def make_solutions(
    file: Path, instances: Sequence[Instance], tasks: Sequence[Task], outcomes: Mapping[Task, Outcome]
) -> Output:
    """Return the problems whose new solution was kept."""
    annotated = annotated_instances(instances, tasks, outcomes)
    return Output(
        counts=tally(
            ANNOTATED,
            tasks,
            outcomes,
            twins=sum(bool(outcomes[task].texts) for task in tasks) - len(annotated),
            revealed_early=sum(_shows_early(instance) for _, instance in annotated),
        ),
        write=lambda out: rewrite_problems(file, out, annotated, split="train"),
    )


def make_hints(
    file: Path, instances: Sequence[Instance], tasks: Sequence[Task], outcomes: Mapping[Task, Outcome]
) -> Output:
    """Return a copy of the file with the tiers of its problems, null where none were kept."""
    return Output(
        counts=tally(HINTED, tasks, outcomes),
        write=lambda out: write_tiers(file, out, [outcomes[task].texts for task in tasks]),
    )


def annotated_instances(
    instances: Sequence[Instance], tasks: Sequence[Task], outcomes: Mapping[Task, Outcome]
) -> list[tuple[int, Instance]]:
    """Return the problems whose annotation was kept, with the new steps, in their order, each with its place
    among all problems.

    Ids are derived from content, so they are new. Among problems that became identical because they were
    asked as one, the first is kept.

    Args:
        instances: All problems.
        tasks: The task of each problem.
        outcomes: The outcome of each task.
    """
    by_id: dict[str, tuple[int, Instance]] = {}
    for place, (instance, task) in enumerate(zip(instances, tasks, strict=True)):
        if steps := outcomes[task].texts:
            answer = instance.answer
            annotated = replace(
                instance,
                instance_id=content_id(instance.data_source, instance.question, steps, answer),
                steps=steps,
                revealed_at=revealed_at(steps, answer),
                milestones=None,
            )
            by_id.setdefault(annotated.instance_id, (place, annotated))
    return list(by_id.values())


def tally(
    kept: str,
    tasks: Sequence[Task],
    outcomes: Mapping[Task, Outcome],
    *,
    twins: int = 0,
    revealed_early: int | None = None,
) -> Tally:
    """Count what was kept and what was not.

    Args:
        kept: The word for problems whose texts were kept.
        tasks: The task of each problem.
        outcomes: The outcome of each task.
        twins: Number of problems whose texts were kept but which are not written.
        revealed_early: See ``Tally``.
    """
    problems = Counter(_word(outcomes[task].reason, kept) for task in tasks)
    problems[kept] -= twins
    replies: Counter[str] = Counter()
    for outcome in outcomes.values():
        replies.update(rejection.value for rejection in outcome.rejections)
        replies[ACCEPTED] += bool(outcome.texts)
    return Tally(
        problems=_in_order(problems, kept) | ({TWIN: twins} if twins else {}),
        replies=_in_order(replies, ACCEPTED),
        revealed_early=revealed_early,
    )


def describe_settings(annotator: Annotator, *, grader: str | None) -> dict[str, Any]:
    """Return what determines the outcome besides problems and replies, without address and API key."""
    prompt = annotator.prompt
    return {
        "model": annotator.model,
        "prompt_sha256": prompt.sha256,
        "prompt": prompt.template,
        **prompt.settings,
        "temperature": annotator.temperature,
        "retry_temperature": annotator.retry_temperature,
        "max_tokens": annotator.max_tokens,
        "attempts": annotator.attempts,
        "seed": annotator.seed,
        "extra": dict(annotator.extra),
        **({} if grader is None else {"grader": grader}),
    }


def describe_costs(account: Account, prices: Prices) -> dict[str, Any]:
    """Return tokens and cost for the manifest."""
    return {
        **asdict(account),
        **asdict(prices),
        "cost": round(prices.paid(account), 6),
        "lost_cost_at_most": round(prices.lost(account), 6),
    }


def forecast_text(expected: Forecast, account: Account, prices: Prices) -> str:
    """Describe what is left to ask, in a sentence or two."""
    text = (
        f"{expected.tasks} different problems, {expected.calls} of them still to be asked about: about "
        f"{expected.tokens_in:,} tokens in, {expected.tokens_out:,} out"
    )
    if not prices.are_given:
        return f"{text}; no prices given, so no cost"
    so_far = f"spent so far {prices.spent(account):.2f}"
    return f"{text}, cost {expected.cost:.2f} (at most {expected.most:.2f}); {so_far}"


def summary_text(counts: Tally, account: Account, prices: Prices, outcomes: Iterable[Outcome]) -> str:
    """Return the summary of a run, one line each: problems, replies, an example of each failure, payments."""
    early = ""
    if counts.revealed_early is not None:
        early = f"; answer visible before the last step: {counts.revealed_early} of the accepted"
    lines = [
        f"problems: {sum(counts.problems.values())}, {_list(counts.problems)}",
        f"replies: {sum(counts.replies.values())}, {_list(counts.replies)}{early}",
        *_failure_lines(outcomes),
        f"paid: {account.replies} replies, {account.tokens_in:,} tokens in, {account.tokens_out:,} out, "
        f"cost {prices.paid(account):.4f}",
    ]
    if account.lost_calls:
        lines.append(
            f"lost: {account.lost_calls} requests without a readable reply, which may have been paid for, at "
            f"most {prices.lost(account):.4f}"
        )
    return "\n".join(lines)


def _failure_lines(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the server's message, once for each reason."""
    said = {each.failure: " ".join(each.failure_text.split()) for each in outcomes if each.failure_text}
    return [f"{reason}, for instance: {said[reason]}" for reason in Rejection if reason in said]


def _shows_early(instance: Instance) -> bool:
    return instance.revealed_at is not None and instance.revealed_at < len(instance.steps)


def _word(reason: Rejection | None, otherwise: str) -> str:
    return otherwise if reason is None else reason.value


def _in_order(counts: Counter[str], first: str) -> dict[str, int]:
    """Return ``first``, even if its count is 0, then all reasons that occur, in their order."""
    words = [reason.value for reason in Rejection if counts[reason.value]]
    return {word: counts[word] for word in (first, *words)}


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in counts.items())
