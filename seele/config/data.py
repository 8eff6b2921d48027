"""Settings of the problems that a run trains and validates on."""

from dataclasses import dataclass

from seele.config.require import require

OVERLONG = ("drop", "refuse", "truncate")


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """What becomes of the problems in ``data.train_files`` and ``data.val_files``."""

    overlong: str = "drop"
    """Of a problem that does not fit ``data.max_prompt_length`` and ``data.max_response_length``. ``drop``:
    it is left out and counted. ``refuse``: the run does not start. ``truncate``: a worked solution in the
    response is cut at the limit, as in LUFFY, and hints are kept short enough; only a prompt that is too long
    by itself is left out.
    """

    def __post_init__(self) -> None:
        require(self.overlong in OVERLONG, f"overlong must be one of {list(OVERLONG)}, got {self.overlong!r}")
