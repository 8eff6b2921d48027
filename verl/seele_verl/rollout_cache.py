"""Rollouts on disk, so that the same steps can be repeated without the engine (docs/debugging.md).

    CACHE/step_N/KEY.json     a problem's completions of a round; KEY is a hash of the request to the engine

A request includes its seeds, which follow from the run's seed, step, problem, round and rollout. So an answer
is reused only for the identical request, whatever the weights are by then.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seele.config import SeeleConfig
from seele.data.storage.files import write_atomically
from seele.errors import ConfigError, DataError
from seele.records import Completion, Finish

Part = tuple[dict[int, Completion], int]
"""Completions by position in the round, and the step whose weights generated them."""


class RolloutCache:
    """The completions of training rollouts in a folder; several processes may share it."""

    def __init__(self, folder: Path, *, model: str) -> None:
        self._folder, self._model = folder, model

    def find(self, step: int, request: Mapping[str, Any]) -> list[Part] | None:
        """Return the engine's answer to the request, in the parts in which it came; None if it is not cached.

        Raises:
            DataError: The file was not written by this class.
        """
        path = self._path(step, request)
        if not path.is_file():
            return None
        try:
            return [_part(stored) for stored in json.loads(path.read_text())]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: not a cached round ({error}); remove the file") from error

    def keep(self, step: int, request: Mapping[str, Any], parts: list[Part]) -> None:
        """Store a whole answer."""
        path = self._path(step, request)
        path.parent.mkdir(parents=True, exist_ok=True)
        stored = [
            {"version": version, "completions": {at: dataclasses.asdict(each) for at, each in found.items()}}
            for found, version in parts
        ]
        write_atomically(path, json.dumps(stored))

    def _path(self, step: int, request: Mapping[str, Any]) -> Path:
        asked = json.dumps({"model": self._model, **request}, sort_keys=True, default=str)
        return self._folder / f"step_{step}" / f"{hashlib.sha256(asked.encode()).hexdigest()[:32]}.json"


def _part(stored: Mapping[str, Any]) -> Part:
    found = {
        int(at): Completion(
            text=each["text"],
            token_ids=tuple(each["token_ids"]),
            log_probs=tuple(each["log_probs"]),
            finish=Finish(each["finish"]),
            cached_prompt_tokens=each["cached_prompt_tokens"],
        )
        for at, each in stored["completions"].items()
    }
    return found, stored["version"]


def check_rollout_cache(config: DictConfig, seele: SeeleConfig) -> None:
    """Raise ``ConfigError`` where the cache cannot be a folder, or where verl's own cache would lose what
    SEELE keeps beside its rows.
    """
    for name in ("rollout", "rollout_tq", "async_rollout"):
        if config.skip[name].enable:
            raise ConfigError(
                f"skip.{name}.enable: true, but verl's cache holds only its rows, without hints, grades or "
                "controller observations; set seele.rollout_cache to a folder instead"
            )
    if seele.rollout_cache is not None and Path(seele.rollout_cache).is_file():
        raise ConfigError(f"seele.rollout_cache: expected a folder, got the file {seele.rollout_cache!r}")
