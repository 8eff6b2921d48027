"""Statistics of a file of problems: counts, how solutions are cut, how much the hints give away."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seele.data.steps.leakage import mentioned_at, with_revelation
from seele.records import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemStatistics:
    """Statistics of a group of problems.

    Shares lie in [0, 1]. A *hint* is a prefix of at least one step but not all.
    """

    data_source: str
    level: str
    """A difficulty, or ``all``."""
    problems: int
    unhintable_share: float
    """Share of problems without tiers whose solution has fewer than two steps."""
    steps_median: float
    steps_max: int
    question_chars_median: float
    solution_chars_median: float
    solution_chars_max: int
    step_chars_median: float
    """Median over all steps of the group; 0 if there are none."""
    stated_early_share: float
    """Share of problems whose answer is stated before the last step."""
    revealing_share: float
    """Share of hints that state the answer."""
    mentioning_share: float
    """Share of hints that contain the answer at all, even by chance: an upper bound."""


def describe_problems(instances: Iterable[Instance]) -> list[ProblemStatistics]:
    """Return statistics of each source, of each level of a source with several levels, and of everything if
    there are several sources; sorted by name and level.
    """
    by_group: dict[tuple[str, int], list[_Counts]] = defaultdict(list)
    for instance in instances:
        by_group[instance.data_source, instance.level].append(_count(instance))
    sources = sorted({source for source, _ in by_group})
    found = []
    for source in sources:
        levels = sorted(level for name, level in by_group if name == source)
        found.append(_summary(source, "all", [c for level in levels for c in by_group[source, level]]))
        if len(levels) > 1:
            found += [_summary(source, str(level), by_group[source, level]) for level in levels]
    if len(sources) > 1:
        found.append(_summary("all", "all", [count for group in by_group.values() for count in group]))
    return found


@dataclass(frozen=True, slots=True)
class _Counts:
    is_hintable: bool
    question_chars: int
    step_chars: tuple[int, ...]
    revealed_at: int
    mentioned_at: int


def _count(instance: Instance) -> _Counts:
    return _Counts(
        instance.num_hint_units >= 2,
        len(instance.question),
        tuple(map(len, instance.steps)),
        with_revelation(instance).revealed_at or 0,
        mentioned_at(instance.steps, instance.answer),
    )


def _summary(source: str, level: str, counts: Sequence[_Counts]) -> ProblemStatistics:
    steps = [len(count.step_chars) for count in counts]
    solution_chars = [sum(count.step_chars) for count in counts]
    num_hints = sum(max(num - 1, 0) for num in steps)
    # A solution that states its answer before its first step still has one hint less than steps.
    revealing = sum(
        num - max(count.revealed_at, min(num, 1)) for num, count in zip(steps, counts, strict=True)
    )
    mentioning = sum(num - count.mentioned_at for num, count in zip(steps, counts, strict=True))
    return ProblemStatistics(
        data_source=source,
        level=level,
        problems=len(counts),
        unhintable_share=sum(not count.is_hintable for count in counts) / len(counts),
        steps_median=statistics.median(steps),
        steps_max=max(steps),
        question_chars_median=statistics.median(count.question_chars for count in counts),
        solution_chars_median=statistics.median(solution_chars),
        solution_chars_max=max(solution_chars),
        step_chars_median=statistics.median([size for count in counts for size in count.step_chars] or [0]),
        stated_early_share=sum(count.revealed_at < len(count.step_chars) for count in counts) / len(counts),
        revealing_share=revealing / num_hints if num_hints else 0.0,
        mentioning_share=mentioning / num_hints if num_hints else 0.0,
    )
