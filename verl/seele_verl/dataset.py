"""Problems in the form that verl's trainer takes: one small dictionary per row, because every column travels
with every prompt.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
from torch.utils.data import Dataset

from seele.config import HintConfig
from seele.data.overlong import Problem, read_fitting_problems
from seele.data.own_solutions import OwnSolutions
from seele.data.steps.hint_units import for_hints
from seele.data.storage.schema import GUIDED_BY, read_columns
from seele.reward.milestones import milestones_of
from seele_verl.settings import read_hints


class ProblemDataset(Dataset[dict[str, Any]]):
    """Rows of our parquet files; named in ``data.custom_cls``.

    A row's ``data_source`` is ``<data set>/<file>``, such as ``chains/heldout``, so that validation reports
    each split separately.
    """

    def __init__(
        self,
        data_files: str | Sequence[str],
        tokenizer: Any = None,
        config: Any = None,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        """Read all files with ``read_fitting_problems``, following ``config.overlong_record``.

        Raises:
            DataError: A file is missing or a row does not match the schema.
            ConfigError: ``config.hints``, the run's ``seele.hints``, is not valid.
        """
        self._hints = HintConfig() if config is None else read_hints(config.hints)
        self._tokenizer = tokenizer
        self.own_solutions = OwnSolutions(goes_on_from_hint=self._hints.user_request is None)
        record = None if config is None else config.get("overlong_record")
        self._problems = read_fitting_problems(data_files, max_samples, record)
        count = 0 if config is None else config.get("validated_training_problems", 0)
        if count and [*data_files] == [*config.val_files]:
            training = read_fitting_problems(config.train_files, config.train_max_samples, record)
            self._problems += spread(without_guided_copies(training), count)

    def __len__(self) -> int:
        return len(self._problems)

    def __getitem__(self, index: int) -> dict[str, Any]:
        problem = self._problems[index]
        own = self.own_solutions.applied(index, problem.instance)
        whole = own
        if self._hints.gives_hints and self._hints.unit != "step" and own.milestones is None:
            # Found before the solution is cut: a token holds no equation.
            whole = dataclasses.replace(own, milestones=milestones_of(own))
        instance = for_hints(whole, self._hints, self._tokenizer)
        if problem.hint_steps is not None and own is problem.instance:
            instance = dataclasses.replace(instance, longest_hint=problem.hint_steps)
        return {
            "raw_prompt": [{"role": "user", "content": instance.question}],
            "index": index,
            "data_source": f"{instance.data_source}/{problem.path.stem}",
            "instance": instance,
        }

    @property
    def instance_ids(self) -> list[str]:
        """The problems' ids, in order."""
        return [problem.instance.instance_id for problem in self._problems]

    def columns(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return each problem's values of these columns.

        Raises:
            DataError: A file lacks a column, or a row has no value in it.
        """
        rows = {path: read_columns(path, names) for path in {problem.path for problem in self._problems}}
        return [rows[problem.path][problem.row] for problem in self._problems]


def without_guided_copies(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems whose question has no hint in it."""
    guided = {
        path: pq.read_table(path, columns=[GUIDED_BY])[GUIDED_BY].to_pylist()
        for path in {problem.path for problem in problems}
        if GUIDED_BY in pq.read_schema(path).names
    }
    return [each for each in problems if each.path not in guided or not guided[each.path][each.row]]


def spread(problems: Sequence[Problem], count: int) -> list[Problem]:
    """Return ``count`` evenly spaced problems, or all of them if there are fewer."""
    if count >= len(problems):
        return [*problems]
    return [problems[index * len(problems) // count] for index in range(count)]
