"""Which problems a step rolls out: curricula that go by their columns, or by what is learnt from them.

How a chosen problem is hinted, rolled out and trained on happens elsewhere; a curriculum sees indices, the
values of a few columns, and one number a problem in return. ``build_curriculum`` is the way in.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from seele.config.settings import CurriculumConfig
from seele.curriculum.contract import Curriculum
from seele.curriculum.ordered import OrderedCurriculum
from seele.curriculum.sec import SecCurriculum
from seele.curriculum.uniform import UniformCurriculum

__all__ = [
    "Curriculum",
    "OrderedCurriculum",
    "SecCurriculum",
    "UniformCurriculum",
    "build_curriculum",
    "columns_needed",
]


def columns_needed(config: CurriculumConfig) -> tuple[str, ...]:
    """Columns whose values ``build_curriculum`` asks for."""
    return () if config.name == "uniform" else config.columns


def build_curriculum(config: CurriculumConfig, rows: Sequence[Mapping[str, Any]], *, seed: int) -> Curriculum:
    """The curriculum that a run's settings ask for, ready for its first draw.

    Args:
        config: The settings.
        rows: One mapping a problem, in the order of the problems' indices, with the values of
            ``columns_needed(config)`` (``seele.data.storage.schema.read_columns``).
        seed: Seeds whatever the curriculum draws; not negative.

    Raises:
        DataError: If a value is missing, or a column mixes texts with numbers.
    """
    if config.name == "uniform":
        return UniformCurriculum(len(rows), seed=seed)
    if config.name == "ordered":
        return OrderedCurriculum(rows, columns=config.columns, seed=seed)
    return SecCurriculum(
        rows,
        columns=config.columns,
        learning_rate=config.learning_rate,
        temperature=config.temperature,
        with_replacement=config.with_replacement,
        seed=seed,
    )
