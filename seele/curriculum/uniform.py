"""Every problem once an epoch, in a random order."""

from typing import ClassVar

from seele.curriculum.epoch_queue import shuffled
from seele.curriculum.epochs import EpochCurriculum


class UniformCurriculum(EpochCurriculum):
    """Shuffled epochs; the order of one depends on nothing but the seed and its number."""

    name: ClassVar[str] = "uniform"

    def __init__(self, num_problems: int, *, seed: int) -> None:
        """Shuffle ``num_problems`` problems anew in each epoch."""
        super().__init__(num_problems, lambda epoch: shuffled(num_problems, seed=(seed, epoch)))
