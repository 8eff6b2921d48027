"""The samples of an output folder as they come: appended one by one, so that a killed evaluation can go on.

A line is whole or, where the process was killed while it wrote, cut off at the end of the file, and then
removed before anything is appended. Nothing else in the file is ever changed. A finished evaluation under
other conditions, such as that of an older checkpoint, is moved to ``earlier_N``; an unfinished one is
refused.
"""

import fcntl
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from seele.errors import ConfigError
from seele_eval.conditions import differing
from seele_eval.predictions import PREDICTIONS, Key, Prediction, read_predictions

SCORES = ("scores.json", "scores.md")
"""What an evaluation writes at its end; the first stands for its completeness."""

# The same weights may lie elsewhere, and a server may come back at another address.
_DECIDES_NOTHING = frozenset({"model", "server"})


class Ledger:
    """Samples that are there, and samples that come. Thread-safe; open in one process at a time."""

    def __init__(self, folder: Path, conditions: Mapping[str, Any]) -> None:
        """Read what is there; nothing is changed before ``__enter__``.

        Raises:
            ConfigError: If the samples that are there were drawn under other conditions, and not all of them.
            CheckpointError: If the file is damaged elsewhere than at its end.
        """
        self._folder = folder
        self._conditions = json.loads(json.dumps(conditions))
        self._lock = threading.Lock()
        self._is_other = False
        self._whole_bytes = self._total_bytes = 0
        self.done: dict[Key, Prediction] = {}
        """Finished samples by their key."""
        if not (folder / PREDICTIONS).is_file():
            return
        there = read_predictions(folder)
        self._whole_bytes, self._total_bytes = there.whole_bytes, there.total_bytes
        others = (
            differing(there.conditions, self._conditions, ignoring=_DECIDES_NOTHING)
            if there.whole_bytes
            else []
        )
        self._is_other = bool(others) and (folder / SCORES[0]).is_file()
        if others and not self._is_other:
            raise ConfigError(
                f"{folder / PREDICTIONS}: unfinished, and drawn under other conditions: {'; '.join(others)}. "
                "Name another --out, or remove the folder"
            )
        if not others:
            self.done = {prediction.key: prediction for prediction in there.predictions}

    def append(self, prediction: Prediction) -> None:
        """Write one more sample; it survives this process once this returns."""
        line = json.dumps(asdict(prediction), ensure_ascii=False) + "\n"
        with self._lock:
            _write(self._descriptor, line)
            self.done[prediction.key] = prediction

    def __enter__(self) -> Self:
        """Open for appending. The scores that are there are no longer those of the whole, and go.

        Raises:
            ConfigError: If another process writes to the same folder, or has written meanwhile.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._descriptor = self._open()
        if self._is_other:
            self._set_aside()
            os.close(self._descriptor)
            self._whole_bytes = self._total_bytes = 0
            self._descriptor = self._open()
        for name in SCORES:
            (self._folder / name).unlink(missing_ok=True)
        os.ftruncate(self._descriptor, self._whole_bytes)
        if not self._whole_bytes:
            _write(self._descriptor, json.dumps({"conditions": self._conditions}, ensure_ascii=False) + "\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.fsync(self._descriptor)
        os.close(self._descriptor)

    def _open(self) -> int:
        path = self._folder / PREDICTIONS
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise ConfigError(f"{path}: another evaluation is writing to it; name another --out") from error
        if os.fstat(descriptor).st_size != self._total_bytes:
            os.close(descriptor)
            raise ConfigError(f"{path}: another evaluation has written to it meanwhile; start again")
        return descriptor

    def _set_aside(self) -> None:
        number = 1 + len(list(self._folder.glob("earlier_*")))
        earlier = self._folder / f"earlier_{number}"
        earlier.mkdir()
        for name in (*SCORES, PREDICTIONS):
            if (self._folder / name).is_file():
                (self._folder / name).rename(earlier / name)


def _write(descriptor: int, text: str) -> None:
    # A lone surrogate becomes its JSON escape.
    content = text.encode(errors="backslashreplace")
    while content:
        content = content[os.write(descriptor, content) :]
