"""Checkpoints are read as data: torch makes tensors of them and the types below, and runs nothing that a
file asks for, where verl would have it run everything.
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
"""What numpy's random state consists of."""


@contextmanager
def reading_data_only(strategy: str) -> Iterator[None]:
    """While open, ``torch.load`` reads data only; but for the strategy ``fsdp``, FSDP1, whose shards it could
    not read.
    """
    if strategy == "fsdp":
        yield
        return
    with variables_set(FORCED), torch.serialization.safe_globals(RANDOM_STATE):
        yield
