"""Every problem once per epoch, in an order that depends on nothing but the seed and the epoch."""

import numpy as np

from seele.errors import DataError


class UniformCurriculum:
    """Shuffled epochs without state: which problems a step begins is a pure function of the step.

    So a run that is resumed at step N begins the problems that the run would have begun that was never
    interrupted. Where the batch size does not divide the number of problems, an epoch leaves out a
    remainder, another one each time.

    With spare problems the first step of an epoch begins that many more, and the last as many fewer: every
    step but the last leaves as many behind, which the next one has to roll out with its own.
    """

    def __init__(self, num_problems: int, *, batch_size: int, seed: int, spare_problems: int = 0) -> None:
        """Plan epochs over ``num_problems`` problems in steps of ``batch_size``.

        Raises:
            DataError: If a single step needs more problems than there are.
        """
        if num_problems < batch_size:
            raise DataError(
                f"the training data holds {num_problems} problems, fewer than the {batch_size} of one step; "
                "add data or lower data.train_batch_size"
            )
        self._num_problems = num_problems
        self._batch_size = batch_size
        self._seed = seed
        self._spare_problems = spare_problems

    def problems_of_step(self, step: int) -> list[int]:
        """Indices of the problems that step ``step`` (counted from 1) begins, all distinct; without spare
        problems those that it trains on.
        """
        steps_per_epoch = self._num_problems // self._batch_size
        epoch, step_of_epoch = divmod(step - 1, steps_per_epoch)
        order: list[int] = np.random.default_rng([self._seed, epoch]).permutation(self._num_problems).tolist()
        spare = self._spare_problems
        first = step_of_epoch * self._batch_size + (spare if step_of_epoch else 0)
        last = (step_of_epoch + 1) * self._batch_size + spare
        return order[first : min(last, steps_per_epoch * self._batch_size)]
