"""``seele.rollout_correction`` in verl's terms: importance weights between engine and trainer.

verl computes the weights once a step, from the trainer's old log-probabilities and the engine's, and
multiplies the clipped surrogate by them (``verl/trainer/ppo/rollout_corr_helper.py``). Formulas are in
docs/rollout_correction.md.
"""

import json
from typing import Any

from omegaconf import DictConfig

from seele.config import SeeleConfig
from seele.errors import ConfigError

SECTION = "algorithm.rollout_correction"

UNSET = {
    "rollout_is": None,
    "rollout_is_threshold": 2.0,
    "rollout_is_batch_normalize": False,
    "rollout_rs": None,
    "rollout_rs_threshold": None,
}
"""The settings of verl's own correction, with their defaults."""

# verl wants a lower bound above 0. Its weights are never below exp(-20).
NO_LOWER_BOUND = "1e-9"


def verl_rollout_correction(seele: SeeleConfig) -> dict[str, Any]:
    """Return verl's settings under ``algorithm.rollout_correction``; empty where the run corrects nothing."""
    if seele.rollout_correction == "none":
        return {}
    threshold: float | str = seele.rollout_correction_threshold
    if seele.rollout_correction == "mis":
        # A pair of bounds: weights outside them become 0.
        threshold = f"{NO_LOWER_BOUND}_{threshold}"
    return {"rollout_is": seele.rollout_correction_level, "rollout_is_threshold": threshold}


def check_rollout_correction(config: DictConfig, seele: SeeleConfig) -> None:
    """Raise ``ConfigError`` where weights would have nothing to compare, or two settings request them."""
    verls = config.algorithm.rollout_correction
    asked = {f"{SECTION}.{name}": verls[name] for name in ("rollout_is", "rollout_rs") if verls[name]}
    key = "seele.rollout_correction"
    if seele.rollout_correction != "none":
        for name, default in UNSET.items():
            if verls[name] != default:
                raise ConfigError(
                    f"{key}: {seele.rollout_correction}, but {SECTION}.{name}={verls[name]} is for verl's "
                    f"own correction; leave that at {json.dumps(default)}, or set {key}=none"
                )
        asked = {key: seele.rollout_correction}
    if asked and verls.bypass_mode:
        name, value = next(iter(asked.items()))
        raise ConfigError(
            f"{name}: {value}, but with {SECTION}.bypass_mode the engine's log-probabilities are the old "
            "ones, so the surrogate's own ratio covers the difference and no weights are left to apply; "
            f"set {SECTION}.bypass_mode=false (hardware=cpu has it on), or turn the correction off"
        )
