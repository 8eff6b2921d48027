"""Worked solutions in the form that verl's SFT trainer takes: one sequence per problem, with a mask of the
tokens that are learnt. The prompt is that of an un-hinted rollout; the solution is encoded like hints.
"""

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from seele.curriculum import UniformCurriculum
from seele.curriculum.planner import problems_sha256
from seele.data.overlong import read_fitting_problems
from seele.records import Chat
from seele.rollout.solutions import encode_problem


class SolutionDataset(Dataset[dict[str, torch.Tensor]]):
    """Rows of our parquet files; named in ``data.custom_cls`` of verl's SFT configuration."""

    def __init__(
        self,
        parquet_files: Sequence[str],
        tokenizer: Any,
        config: Any,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        """Read all files with ``read_fitting_problems``, following ``config.overlong_record``.

        Raises:
            DataError: A file is missing or a row does not match the schema.
        """
        record: str | None = getattr(config, "overlong_record", None)
        kept = read_fitting_problems(parquet_files, max_samples, record)
        self._problems = [problem.instance for problem in kept]
        self.problems_sha256 = problems_sha256(each.instance_id for each in self._problems)
        """Digest of the problems that are kept, and of their order."""
        # Longer solutions are cut, and then have no end-of-text token.
        self._max_response_tokens: int | None = getattr(config, "max_response_tokens", None)
        self._tokenizer = tokenizer
        self._template: str = config.template
        self._chat = Chat(**getattr(config, "chat", {}))

    def __len__(self) -> int:
        return len(self._problems)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        problem = self._problems[index]
        encoded = encode_problem(self._tokenizer, problem.question, problem.steps, self._template, self._chat)
        prompt_ids = encoded.prompt_ids
        response_ids = encoded.solution(self._tokenizer)[: self._max_response_tokens]
        input_ids = torch.tensor(prompt_ids + response_ids)
        loss_mask = torch.ones_like(input_ids)
        loss_mask[: len(prompt_ids)] = 0
        return {
            "input_ids": input_ids,
            "position_ids": torch.arange(len(input_ids)),
            "loss_mask": loss_mask,
            "prompts": input_ids[: len(prompt_ids)],  # used by seele_verl.packed_engine
        }


class StepBatches:
    """One rank's rows, one batch per step, forever; replaces verl's data loader and its sampler.

    Problems come in the order of ``UniformCurriculum``, so that the problems of a step depend only on seed
    and step. verl's own loader drops a remainder of each epoch, has to be restored, and yields nothing for a
    whole epoch when it is resumed at the end of one.
    """

    def __init__(
        self, dataset: SolutionDataset, *, batch_size: int, seed: int, rank: int, ranks: int, collate: Any
    ) -> None:
        """Make batches of ``batch_size`` rows over all ``ranks``, of which this is number ``rank``."""
        self._dataset = dataset
        self._batch_size = batch_size
        self._seed = seed
        self._rank, self._ranks = rank, ranks
        self._collate = collate
        self.steps_done = 0
        """Steps that an earlier process has trained; the first batch is that of the next step."""
        self.began_at = 0.0
        """When the last batch's step began, on ``time.perf_counter``."""

    def __len__(self) -> int:
        """Number of steps that an epoch extends over, from which verl computes the current epoch."""
        return math.ceil(len(self._dataset) / self._batch_size)

    def __iter__(self) -> Iterator[Any]:
        curriculum = UniformCurriculum(len(self._dataset), seed=self._seed)
        for step in itertools.count(1):
            problems = curriculum.draw(self._batch_size)
            if step > self.steps_done:
                self.began_at = time.perf_counter()
                rows = [self._dataset[problem] for problem in problems[self._rank :: self._ranks]]
                yield self._collate(rows)

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: verl tells its sampler the epoch, but this one does not need it."""

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state, which verl saves beside the checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: a caller that resumes sets ``steps_done``."""
