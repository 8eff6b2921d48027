"""The seams of the released verl, and two of Ray's, that need more than a subclass.

VERL is the release on which these seams were written and tested; ``tests/contract/test_verl_seams.py`` fails
when another release moves one of them.
"""

import importlib.util
import inspect
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from seele.errors import DependencyError
from seele_verl.environment import variables_set

VERL = "0.9.1"
RAY_PATIENCE_S = 180
RAY_STARTS = 3
"""Number of attempts to start Ray before a run is given up."""
NOT_STARTED = "The current node timed out during startup"
"""Message of the error that Ray raises when it did not start."""


AGENT_PORTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)
"""Ports of the agents that a raylet starts, as ``ray._private.services.start_raylet`` calls them."""
AGENT_PATIENCE = {"RAY_agent_register_timeout_ms": str(RAY_PATIENCE_S * 1000)}


def undecorated(actor_class: Any) -> type:
    """Return the class behind an ``@ray.remote`` class. Ray forbids subclassing the decorated one."""
    modified: type = actor_class.__ray_metadata__.modified_class
    return modified


def call_on_every_rank(worker_group: Any, function: Any, *args: Any) -> None:
    """Call a function in every process of a worker group, not only in the one that verl's dispatch picks."""
    worker_group.execute_all_sync("execute_func_rank_zero", function, *args)


@contextmanager
def patient_ray() -> Iterator[None]:
    """While open, Ray waits three minutes for a node that it starts.

    On a node under load Ray's own 30 seconds are not always enough (``NOT_STARTED``). That number is not a
    setting but fixed in ``ray._private.node.Node``, which polls for its node until then. Here the function
    that answers the poll waits instead. It does not wait for a raylet that has ended.
    """
    from ray._private import services

    asked = services.get_node
    earlier = ended_raylets()
    services.get_node = answered_later(
        asked, attempts=RAY_PATIENCE_S, is_hopeless=lambda: not ended_raylets() <= earlier
    )
    try:
        yield
    finally:
        services.get_node = asked


@contextmanager
def patient_raylet() -> Iterator[None]:
    """While open, a raylet is told the ports of its agents, and waits three minutes for the agents.

    A raylet waits for the files that the agents write their ports to, and ends after 15 seconds, which has no
    setting (https://github.com/ray-project/ray/issues/65983). So the ports are chosen, and the files written,
    before it starts. They are free then; the agents open them seconds later.
    """
    from ray._private import services
    from ray._raylet import persist_port  # type: ignore[attr-defined]

    start = services.start_raylet

    def start_with_ports(*args: Any, **kwargs: Any) -> Any:
        ports = dict(zip(AGENT_PORTS, free_ports(len(AGENT_PORTS)), strict=True))
        given = inspect.signature(start).bind(*args, **kwargs | ports).arguments
        for name, port in ports.items():
            persist_port(given["session_dir"], given["node_id"], name, port)
        return start(**given)

    services.start_raylet = start_with_ports
    try:
        with variables_set(AGENT_PATIENCE):
            yield
    finally:
        services.start_raylet = start


def free_ports(number: int) -> list[int]:
    """Ports that no program on this node listens on."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def kept_sigterm_handler() -> Iterator[None]:
    """While open, this process keeps its SIGTERM handler when Ray starts.

    Ray replaces it twice: by one in Python, which ends the process at once, and below that by one in C++,
    which lets Python's run but aborts the process three seconds after the signal (absl's failure signal
    handler).
    """
    from ray._private import utils, worker

    kept, set_handler = signal.getsignal(signal.SIGTERM), utils.set_sigterm_handler

    def restore() -> None:
        signal.signal(signal.SIGTERM, kept)

    utils.set_sigterm_handler = lambda handler: None
    worker._post_init_hooks.append(restore)
    try:
        yield
    finally:
        utils.set_sigterm_handler = set_handler
        worker._post_init_hooks.remove(restore)


def ended_raylets() -> set[int]:
    """Return the ids of ended raylet processes that this process started. A raylet ends itself without its
    agents, which start slowly on a node under load (``patient_raylet``).
    """
    children = psutil.Process().children()
    return {
        child.pid for child in children if child.name() == "raylet" and child.status() == psutil.STATUS_ZOMBIE
    }


def answered_later(
    ask: Callable[..., Any],
    *,
    attempts: int,
    is_hopeless: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> Callable[..., Any]:
    """Wrap ``ask`` to retry every second while it raises ``RuntimeError`` and ``is_hopeless`` is false."""

    def answer(*args: Any) -> Any:
        for _ in range(attempts - 1):
            try:
                return ask(*args)
            except RuntimeError:
                if is_hopeless():
                    raise
                sleep(1.0)
        return ask(*args)

    return answer


def require_verl() -> None:
    """Check that the released verl is installed.

    Raises:
        DependencyError: verl is missing or is another release.
    """
    try:
        installed = version("verl")
    except PackageNotFoundError:
        raise DependencyError("verl is not installed; run: bash scripts/setup.sh") from None
    if installed != VERL:
        raise DependencyError(
            f"verl {installed} is installed, but this release of SEELE runs on verl {VERL}; "
            "run: bash scripts/setup.sh"
        )


def verl_config_folder() -> Path:
    """Return the folder of the released verl's configuration without importing verl, whose import reads the
    run's environment.

    Raises:
        DependencyError: As ``require_verl``.
    """
    require_verl()
    spec = importlib.util.find_spec("verl")
    assert spec is not None and spec.submodule_search_locations is not None, (
        "an installed package has a location"
    )
    folders = [Path(location) / "trainer" / "config" for location in spec.submodule_search_locations]
    return next(folder for folder in folders if folder.is_dir())
