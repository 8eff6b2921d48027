"""Run several methods on one start of the stack: before each step the trainer, controller, rollout workers
and the actor's loss change to the next configuration.

    python tests/integration/methods_in_turn.py RUN TURN... -- COMMON...

Each TURN holds the overrides of one step, on top of the common ones; equal turns in a row are one run.
Everything else is the run that `seele_verl.train` would start with the common ones, except that it has a
critic and a reference model for the methods that need one.
"""

import os
import pickle
import sys
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seele.config import SeeleConfig
from seele.curriculum import columns_needed
from seele.curriculum.planner import StepPlanner
from seele.reward.function_grader import open_grader
from seele_verl import train
from seele_verl.changes import with_changes
from seele_verl.checks.preflight import check_run
from seele_verl.cpu.fork_server import forked_workers
from seele_verl.plan import what_verl_is_told
from seele_verl.settings import read_settings

TURNS = "METHODS_IN_TURN"
"""Environment variable: a file with the configuration of each step, pickled."""
ALL_MODELS = ("method=ppo", "actor_rollout_ref.actor.use_kl_loss=true")
"""Overrides at the start: the models of all methods."""


def change_worker(worker: Any, config: DictConfig) -> None:
    reward = read_settings(config).reward
    if reward != worker.seele.reward:
        worker.answers.close()
        worker.answers = open_grader(reward)
    worker.config = config
    worker.apply_settings()


def change_controller(controller: Any, settings: SeeleConfig) -> None:
    type(controller).__init__(controller, settings)


def task_runner() -> type:
    """Return the runner class; its bases read the run's environment when they are imported."""
    import ray
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.utils.losses import ppo_loss

    from seele.data.own_solutions import OwnSolutions
    from seele.methods.credit import MilestoneCredit
    from seele.methods.interleave import FailedProblems
    from seele.methods.loss_terms import LossTerms
    from seele.methods.sources import build_source
    from seele_verl.cost_meter import CostMeter
    from seele_verl.losses import seele_loss
    from seele_verl.runner import SeeleTaskRunner
    from seele_verl.trainer import SeeleTrainer

    class MethodsInTurn(SeeleTrainer):
        def __init__(self, config: DictConfig) -> None:
            super().__init__(config)
            # Equal turns are one object in the file.
            self.configs = pickle.loads(Path(os.environ[TURNS]).read_bytes())

        def on_step_begin(self) -> None:
            super().on_step_begin()
            config = self.configs[self.global_steps - 1]
            if self.global_steps == 1 or config is not self.configs[self.global_steps - 2]:
                self.change_to(config)

        def change_to(self, config: DictConfig) -> None:
            seele = read_settings(config)
            epochs = {"trainer.total_epochs": self.config.trainer.total_epochs}
            config = with_changes(config, what_verl_is_told(config, seele) | epochs)
            self.config, self.seele = config, seele
            self.train_dataset._hints, self.train_dataset.own_solutions = seele.hints, OwnSolutions()
            self.source, self.terms = build_source(self.seele.off_policy), LossTerms(self.seele)
            self.credit = MilestoneCredit(self.seele.credit) if self.seele.credit.walks else None
            self.failed = FailedProblems(count) if (count := self.seele.interleave.problems) else None
            self.use_reference_policy, self.use_critic = need_reference_policy(config), need_critic(config)
            self.cost_meter = CostMeter(config, seele, self.source, has_critic=self.use_critic)
            ray.get(self.controller.__ray_call__.remote(change_controller, self.seele))
            for worker in self.agent_loop_manager.agent_loop_workers:
                ray.get(worker.__ray_call__.remote(change_worker, config))
            self.replay_buffer = self._build_replay_buffer()
            self.replay_buffer.poll_interval = 0.05
            rows = self.train_dataset.columns(columns_needed(self.seele.curriculum))
            self.planner = StepPlanner(
                self.seele,
                rows,
                instance_ids=self.train_dataset.instance_ids,
                batch_size=config.data.train_batch_size,
                replays=self.source.replays,
                replays_visited=self.source.replays_visited,
            )
            actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
            loss = partial(seele_loss, terms=self.terms) if self.terms.change_the_loss else ppo_loss
            self.actor_rollout_wg.set_loss_fn(partial(loss, config=actor))

    class TurnsTaskRunner(SeeleTaskRunner):
        def run(self, config: DictConfig) -> None:
            import seele_verl.trainer

            seele_verl.trainer.SeeleTrainer = MethodsInTurn
            super().run(config)

    return TurnsTaskRunner


def main(arguments: list[str]) -> None:
    run, *turns = arguments[: arguments.index("--")]
    common = [*arguments[arguments.index("--") + 1 :], f"trainer.default_local_dir={run}"]
    overrides = {turn: [*common, *turn.split()] for turn in turns}
    config = train.compose([*common, *ALL_MODELS, f"trainer.total_training_steps={len(turns)}"])
    train.set_environment(config)
    sys.path.append(str(Path(__file__).parents[1]))
    from helpers.composing import compose_once

    with compose_once(Path(os.environ["SEELE_FIXTURES"], "composed")):
        configs = {turn: train.compose(overrides[turn]) for turn in overrides}
        for turn, composed in configs.items():
            check_run(composed, overrides[turn])
    os.environ[TURNS] = f"{run}.turns"
    Path(os.environ[TURNS]).write_bytes(pickle.dumps([configs[turn] for turn in turns]))
    os.environ["PYTHONPATH"] = f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"
    # As in train.run, but open already when the runner is imported here.
    with forked_workers(config) as python:
        from seele_verl import runner

        config = with_changes(config, {runner.PY_EXECUTABLE: python})

        runner.run_training = partial(runner.run_training, task_runner=task_runner())
        train.run(config, common)


if __name__ == "__main__":
    main(sys.argv[1:])
