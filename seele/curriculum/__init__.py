"""Which problems a step rolls out: curricula based on the problems' columns, or on what is learnt from them.

Hints, rollouts and training of a chosen problem are handled elsewhere; a curriculum sees indices, the values
of a few columns, and one number per problem in return. ``build_curriculum`` is the entry point.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from seele.config.settings import CurriculumConfig
from seele.curriculum.contract import Curriculum
from seele.curriculum.epochs import EpochCurriculum, OrderedCurriculum, UniformCurriculum
from seele.curriculum.own import CURRICULUM, CheckedCurriculum, build_own, check_same
from seele.curriculum.sec import SecCurriculum
from seele.curriculum.selection import SELECTIONS, NoSelection, check_selection
from seele.errors import ConfigError
from seele.plugins import check_restores, find_part

__all__ = [
    "CURRICULA",
    "SELECTIONS",
    "Curriculum",
    "EpochCurriculum",
    "NoSelection",
    "OrderedCurriculum",
    "SecCurriculum",
    "UniformCurriculum",
    "build_curriculum",
    "check_curriculum",
    "check_selection",
    "columns_needed",
]

CURRICULA: dict[str, Any] = {
    "uniform": UniformCurriculum,
    "ordered": OrderedCurriculum,
    "sec": SecCurriculum,
}


def columns_needed(config: CurriculumConfig) -> tuple[str, ...]:
    """Return the columns whose values ``build_curriculum`` needs."""
    return () if config.name == "uniform" else config.columns


def build_curriculum(config: CurriculumConfig, rows: Sequence[Mapping[str, Any]], *, seed: int) -> Curriculum:
    """Return the curriculum that a run's settings select, ready for its first draw.

    Args:
        config: The settings.
        rows: One mapping per problem, in the order of the problems' indices, with the values of
            ``columns_needed(config)`` (``seele.data.storage.schema.read_columns``).
        seed: Seed of everything that the curriculum draws; not negative.

    Raises:
        ConfigError: If there is no such curriculum, or it does not implement ``Curriculum``.
        DataError: If a value is missing, or a column mixes texts with numbers.
    """
    part = _find(config)
    if config.name in CURRICULA and config.settings:
        raise ConfigError(
            f"seele.curriculum.settings: got {dict(config.settings)}, but seele.curriculum.name="
            f"{config.name} takes its settings from seele.curriculum; these are for a curriculum of your own"
        )
    if part is UniformCurriculum:
        return UniformCurriculum(len(rows), seed=seed)
    if part is OrderedCurriculum:
        return OrderedCurriculum(rows, columns=config.columns, seed=seed)
    if part is SecCurriculum:
        return SecCurriculum(
            rows,
            columns=config.columns,
            learning_rate=config.learning_rate,
            temperature=config.temperature,
            with_replacement=config.with_replacement,
            seed=seed,
        )
    given = {"columns": config.columns, "seed": seed}
    own = build_own(part, rows, key=CURRICULUM, given=given, settings=config.settings)
    return CheckedCurriculum(own, len(rows))


def check_curriculum(
    config: CurriculumConfig, rows: Sequence[Mapping[str, Any]], *, seed: int, num_problems: int
) -> None:
    """Check the curriculum of a run before it starts. If it is not one of SEELE's own, let it draw and learn,
    restore another from its state, and compare the two.

    Args:
        config: As in ``build_curriculum``.
        rows: All problems of the run, as in ``build_curriculum``.
        seed: The run's seed.
        num_problems: Problems that a step draws.

    Raises:
        ConfigError, DataError: As in ``build_curriculum``, or if its state does not restore it.
        PluginError: If the curriculum raised an error or returned an invalid draw.
    """
    saved = build_curriculum(config, rows, seed=seed)
    if config.name in CURRICULA:
        return
    restored, part = build_curriculum(config, rows, seed=seed), _find(config)
    for _ in range(2):
        drawn = saved.draw(num_problems)
        saved.observe({problem: 0.1 * (1 + problem % 3) for problem in drawn})
        _ = saved.epochs, saved.metrics()
    check_restores(saved, restored, part=part, key=CURRICULUM)
    check_same(saved.draw(num_problems), restored.draw(num_problems), part=part, key=CURRICULUM)


def _find(config: CurriculumConfig) -> Any:
    return find_part(config.name, key=CURRICULUM, group="curricula", built_in=CURRICULA)
