"""Every problem once per epoch, in an order that depends on nothing but the seed and the epoch."""

import numpy as np

from seele.errors import DataError


class UniformCurriculum:
    """Shuffled epochs without state: which problems a step sees is a pure function of the step.

    So a run that is resumed at step N sees the problems that the run would have seen that was never
    interrupted. Where the batch size does not divide the number of problems, an epoch leaves out a
    remainder, another one each time.
    """

    def __init__(self, num_problems: int, *, batch_size: int, seed: int) -> None:
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

    def problems_of_step(self, step: int) -> list[int]:
        """Indices of the problems that step ``step`` (counted from 1) trains on, all distinct."""
        epoch, step_of_epoch = divmod(step - 1, self._num_problems // self._batch_size)
        order: list[int] = np.random.default_rng([self._seed, epoch]).permutation(self._num_problems).tolist()
        first = step_of_epoch * self._batch_size
        return order[first : first + self._batch_size]
