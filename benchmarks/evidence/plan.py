"""The plan of docs/evidence.md as records: plan.yaml -> the jobs of a task."""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
STORED = HERE / "runs"
TUNED = HERE / "tuned.json"
BASE_ACCURACY = HERE / "base_accuracy.json"
MISTAKES = HERE / "mistakes.json"
TUNING = "tuning"
"""Name, among the tasks, of the runs that choose learning rates."""
LEARNING_RATE = "actor_rollout_ref.actor.optim.lr"
_NO_STOP = "seele.credit.stop=false"
_SHARE = re.compile(r"\{([01]\.\d+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run."""

    name: str
    """``TASK/ARM/seed_N``: the row ``ARM/seed_N`` of the file of packed runs of TASK."""
    overrides: tuple[str, ...]
    sampled: str | None = None
    """File of problems on which the trained model is sampled, for pass@k; None for no sampling."""


@cache
def load_plan() -> dict[str, Any]:
    """Return plan.yaml."""
    plan: dict[str, Any] = yaml.safe_load((HERE / "plan.yaml").read_text())
    return plan


def problems_of(task: str) -> str:
    """Folder of a task's prepared problems."""
    return f"data/prepared/evidence/{task}"


def heldout_of(task: str) -> str:
    """The problems of the primary metric."""
    return f"{problems_of(task)}/heldout.parquet"


def response_tokens(plan: Mapping[str, Any]) -> int:
    """Return the longest response of every run, in tokens."""
    (setting,) = (each for each in plan["common"] if each.startswith("data.max_response_length="))
    return int(setting.partition("=")[2])


def all_arms(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arms of the comparison: those with credit and its changes, other authors' methods and their
    released forms, the ablations, and those that were only tried on the tuning problems.
    """
    rest = {**plan["published"], **plan["released"], **plan["ablations"], **plan["tried"]}
    return {**plan["arms"], **credit_arms(plan), **rest}


def credit_arms(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arms with credit by milestones, then each with each change."""
    arms = dict(plan["credit"])
    for name, arm in plan["credit"].items():
        for change, changes in plan["credit_changes"].items():
            overrides = [*arm["overrides"], *changes["overrides"]]
            if _NO_STOP in overrides:
                # A run refuses settings of a part that it turns off.
                overrides = [each for each in overrides if not each.startswith("seele.credit.stop_below=")]
            arms[f"{name}-{change}"] = {
                "what": arm["what"].replace("credit by milestones", changes["what"]),
                "overrides": overrides,
                "tuned_as": arm.get("tuned_as", name),
            }
    return arms


def default_arms(plan: Mapping[str, Any], task: str) -> list[str]:
    """Return the arms that the task names; for the main task, which names none, all, with ablations last."""
    if task == TUNING:
        return tuned_arms(plan)
    return plan["tasks"][task].get("arms", [*plan["arms"], *plan["ablations"]])


def tuned_arms(plan: Mapping[str, Any]) -> list[str]:
    """Arms that have their own learning rates."""
    arms = {**plan["arms"], **plan["credit"], **plan["published"]}
    return [name for name, arm in arms.items() if "tuned_as" not in arm]


def tuning_jobs(plan: Mapping[str, Any], arms: Sequence[str]) -> Iterator[Job]:
    """Yield a run for each arm and learning rate; arms that start from another's result, once that is tuned.

    Arms that take another's rate are allowed: changes that are tried before they are reported on.
    """
    tuning, tuned = plan["tuning"], _tuned()
    size = tuning | {"splits": ["tune"]}
    for rate in tuning["learning_rates"]:
        for name in arms:
            arm = all_arms(plan)[name]
            if arm.get("after", name) in {name, *tuned}:
                overrides = _overrides(plan, arm, tuning["task"], size, tuned | {"this": rate}, "this")
                yield Job(
                    name=f"{TUNING}/{name}/lr_{rate:g}",
                    overrides=(*overrides, f"seele.seed={tuning['seed']}"),
                )


def task_jobs(plan: Mapping[str, Any], task: str, arms: Sequence[str], seeds: Sequence[int]) -> Iterator[Job]:
    """Yield one run for each arm and seed; all arms have the first seed before any has the second.

    If ``seeds`` is empty, the plan's apply. Ablations have their own seeds and budget.
    """
    size, tuned = plan["tasks"][task] | {"splits": ["heldout", "harder"]}, _tuned()
    sizes = {name: size | plan["ablation_size"] if name in plan["ablations"] else size for name in arms}
    for seed in seeds or size["seeds"]:
        for name in arms:
            if not seeds and seed not in sizes[name]["seeds"]:
                continue
            arm = all_arms(plan)[name]
            overrides = _overrides(plan, arm, task, sizes[name], tuned, arm.get("tuned_as", name))
            yield Job(
                name=f"{task}/{name}/seed_{seed}",
                overrides=(*overrides, f"seele.seed={seed}"),
                sampled=None if name in plan["ablations"] else heldout_of(task),
            )


def _overrides(
    plan: Mapping[str, Any],
    arm: Mapping[str, Any],
    task: str,
    size: Mapping[str, Any],
    rates: Mapping[str, float],
    rate_of: str,
) -> Iterator[str]:
    folder = problems_of(task)
    yield from plan["common"]
    yield from plan["tasks"][task].get("overrides", ())
    yield f"data={plan['tasks'][task]['source']}"
    yield f"actor_rollout_ref.model.path=models/{plan['tasks'][task]['base_model']}"
    yield f"data.train_files=[{folder}/train.parquet]"
    yield f"data.val_files=[{','.join(f'{folder}/{split}.parquet' for split in size['splits'])}]"
    if times := arm.get("schedule"):
        yield f"trainer.total_training_steps={times * size['planned_steps']}"
    elif not arm.get("supervised"):
        yield f"seele.max_generated_tokens={size['generated_tokens']}"
    for override in arm["overrides"]:
        yield _SHARE.sub(
            lambda share: str(round(float(share[1]) * arm["expects"] * size["planned_steps"])), override
        )
    for setting, name in ((LEARNING_RATE, rate_of), ("seele.sft.learning_rate", arm.get("after"))):
        if name is not None and name not in rates:
            sys.exit(f"{name} has no learning rate yet; run run.py {TUNING} and tables.py in {HERE.name}/")
        if name is not None:
            yield f"{setting}={rates[name]:g}"


def _tuned() -> dict[str, float]:
    """Arm -> learning rate, as tables.py chose it."""
    rates: dict[str, float] = json.loads(TUNED.read_text()) if TUNED.exists() else {}
    return rates
