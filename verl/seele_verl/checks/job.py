"""Commands from the time when hardware files set a run's sizes."""

from collections.abc import Iterable

from seele.errors import ConfigError

SIZES_WERE_SET_BY = {
    "cpu": "tiny",
    "gpu_tiny": "tiny",
    "gpu1": "small",
    "gpu1_24": "small",
    "gpu1_48": "small",
}
"""Hardware -> the job whose sizes it set."""


def check_job(overrides: Iterable[str]) -> None:
    """Raise ``ConfigError`` where a command would train with other sizes than it did, and name the choice.

    Args:
        overrides: What the user typed.
    """
    typed = dict(override.partition("=")[::2] for override in overrides)
    hardware = typed.get("hardware", "")
    job = SIZES_WERE_SET_BY.get(hardware)
    if job is None or "job" in typed:
        return
    # Sizes of a recipe always stood above those of gpu1, and never above those of a tiny job.
    if job == "small" and typed.get("recipe", "null") != "null":
        return
    raise ConfigError(
        f"hardware={hardware} no longer sets batch, steps, learning rate and lengths: add job={job} for the "
        f"{job} job, as before, or job=method for the sizes of the method or recipe"
    )
