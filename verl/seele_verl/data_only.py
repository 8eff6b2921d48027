"""Reads checkpoints as data: torch builds only tensors and the types below from them, and executes no code
from a file, where verl would let it execute any.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed.tensor  # the types of FSDP2's shards

from seele_verl.environment import variables_set

FORCED = {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"}
"""Overrules ``torch.load(weights_only=False)``."""
RANDOM_STATE = [np.ndarray, np.dtype, np.empty(0).__reduce__()[0], type(np.dtype(np.uint32))]
"""The types that numpy's random state consists of."""


@contextmanager
def reading_data_only(strategy: str) -> Iterator[None]:
    """While open, ``torch.load`` reads data only; except under the strategy ``fsdp`` (FSDP1), whose shards it
    could not read that way.
    """
    if strategy == "fsdp":
        yield
        return
    with variables_set(FORCED), torch.serialization.safe_globals(RANDOM_STATE):
        yield
