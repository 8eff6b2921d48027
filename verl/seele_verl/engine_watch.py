"""Finishes a step without the engines that died in it. The run is saved and ends after that step."""

from collections.abc import Callable
from typing import Any

import ray


class EngineWatch:
    """Watches a run's engines.

    Args:
        manager: verl's ``CheckpointEngineManager``, which has the engines that receive weights.
        warn: Prints a line on the terminal.
    """

    def __init__(self, manager: Any, *, warn: Callable[[str], None]) -> None:
        self._manager, self._warn = manager, warn
        self._engines = {server.live.remote(): each for each in manager.replicas for server in each.servers}
        """Reference that yields an error once an engine's server is dead -> the server's replica."""
        self.has_lost_some = False
        """True once a step goes on without an engine."""

    def have_all_died(self) -> bool:
        """Return True if no engine is left of those that there were."""
        return bool(self._engines) and self._dead() == {*self._engines.values()}

    def let_go_of_dead(self, step: int) -> None:
        """Finish the step without engines that have died. Their requests went to the others.

        Raises:
            RuntimeError: All engines have died.
        """
        if lost := self._dead() & {*self._manager.replicas}:
            before = len(self._manager.replicas)
            self._manager.remove_replicas([*lost])
            if not self._manager.replicas:
                raise RuntimeError(f"the engine died in step {step}")
            self.has_lost_some = True
            self._warn(
                f"step {step}: {len(lost)} of {before} engines died; the others take over, and the run ends "
                "after this step\n"
            )

    def _dead(self) -> set[Any]:
        """Return the replicas whose server is dead."""
        dead, _ = ray.wait([*self._engines], num_returns=len(self._engines), timeout=0)
        return {self._engines[each] for each in dead}
