"""The seams of the released verl that need more than a subclass, each in one place.

VERL is the release that these seams were read in and tested on; ``tests/contract/test_verl_seams.py`` fails
when another release moves one of them.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from seele.errors import DependencyError

VERL = "0.9.1"


def undecorated(actor_class: Any) -> type:
    """The class behind an ``@ray.remote`` class. Ray forbids subclassing the decorated one."""
    modified: type = actor_class.__ray_metadata__.modified_class
    return modified


def call_on_every_rank(worker_group: Any, function: Any, *args: Any) -> None:
    """Call a function in every process of a worker group, not only in the one that verl's dispatch picks."""
    worker_group.execute_all_sync("execute_func_rank_zero", function, *args)


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
            f"verl {installed} is installed, this release of SEELE runs on verl {VERL}; "
            "run: bash scripts/setup.sh"
        )
