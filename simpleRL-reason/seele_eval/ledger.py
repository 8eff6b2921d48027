"""The samples of an output folder, appended one by one so that a killed evaluation can resume.

``seele.data.storage.append_log`` makes lines survive a kill. A finished evaluation under other
conditions, such as that of an older checkpoint, is moved to ``earlier_N``; an unfinished one is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from seele.data.difficulty import COUNTS
from seele.data.storage.append_log import LineAppender
from seele.errors import ConfigError
from seele_eval.conditions import differing
from seele_eval.predictions import PREDICTIONS, Key, Prediction, read_predictions

PASS_FIGURE = "pass_at_k.png"

SCORES = ("scores.json", "scores.md", PASS_FIGURE, COUNTS)
"""Files written when all samples are there; the first marks a complete evaluation."""

# The same weights may have moved, and a server may return at another address.
_DECIDES_NOTHING = frozenset({"model", "server"})


class Ledger:
    """Finished samples, read and appended. Thread-safe; open in one process at a time."""

    def __init__(self, folder: Path, conditions: Mapping[str, Any]) -> None:
        """Read the existing samples; ``__enter__`` makes the first change.

        Raises:
            ConfigError: If the folder holds an unfinished evaluation under other conditions.
            CheckpointError: If the file is damaged elsewhere than at its end.
        """
        self._folder = folder
        self._conditions = json.loads(json.dumps(conditions))
        self._is_other = False
        self._whole_bytes = self._total_bytes = 0
        self.done: dict[Key, Prediction] = {}
        """Finished samples by their key."""
        if not (folder / PREDICTIONS).is_file():
            return
        there = read_predictions(folder)
        self._whole_bytes, self._total_bytes = there.whole_bytes, there.total_bytes
        differences = (
            differing(there.conditions, self._conditions, ignoring=_DECIDES_NOTHING)
            if there.whole_bytes
            else []
        )
        self._is_other = bool(differences) and (folder / SCORES[0]).is_file()
        if differences and not self._is_other:
            raise ConfigError(
                f"{folder / PREDICTIONS}: unfinished, and drawn under other conditions: "
                f"{'; '.join(differences)}. Name another --out, or remove the folder"
            )
        if not differences:
            self.done = {prediction.key: prediction for prediction in there.predictions}

    def append(self, prediction: Prediction) -> None:
        """Write one more sample, which survives a kill once this returns."""
        self._appender.append(json.dumps(asdict(prediction), ensure_ascii=False))
        self.done[prediction.key] = prediction

    def __enter__(self) -> Self:
        """Open for appending, and remove the scores, which no longer cover all samples.

        Raises:
            ConfigError: If another process writes to the same folder, or has written meanwhile.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._appender = self._open()
        if self._is_other:
            self._set_aside()
            self._appender.close()
            self._whole_bytes = self._total_bytes = 0
            self._appender = self._open()
        for name in SCORES:
            (self._folder / name).unlink(missing_ok=True)
        if not self._whole_bytes:
            self._appender.append(json.dumps({"conditions": self._conditions}, ensure_ascii=False))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._appender.close()

    def _open(self) -> LineAppender:
        return LineAppender(
            self._folder / PREDICTIONS, whole_bytes=self._whole_bytes, total_bytes=self._total_bytes
        )

    def _set_aside(self) -> None:
        names = (path.name.removeprefix("earlier_") for path in self._folder.glob("earlier_*"))
        number = 1 + max((int(name) for name in names if name.isdecimal()), default=0)
        earlier = self._folder / f"earlier_{number}"
        earlier.mkdir()
        for name in (*SCORES, PREDICTIONS):
            if (self._folder / name).is_file():
                (self._folder / name).rename(earlier / name)
