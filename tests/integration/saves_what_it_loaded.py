"""A run that saves policy and critic again as soon as it has loaded them from its checkpoint.

python tests/integration/saves_what_it_loaded.py OUT OVERRIDES...
"""

import os
import sys
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from seele_verl import train
from seele_verl.changes import with_changes
from seele_verl.cpu.fork_server import forked_workers

OUT = "SAVES_WHAT_IT_LOADED"
"""Environment variable: the target folder."""


def task_runner() -> type:
    """Return the runner class; its bases read the run's environment when they are imported."""
    from seele_verl.runner import SeeleTaskRunner
    from seele_verl.trainer import SeeleTrainer

    class SavesWhatItLoaded(SeeleTrainer):
        def _load_checkpoint(self) -> None:
            super()._load_checkpoint()
            for name, workers in (("actor", self.actor_rollout_wg), ("critic", self.critic_wg)):
                workers.save_checkpoint(str(Path(os.environ[OUT]) / name))

    class SavingTaskRunner(SeeleTaskRunner):
        def run(self, config: DictConfig) -> None:
            import seele_verl.trainer

            seele_verl.trainer.SeeleTrainer = SavesWhatItLoaded
            super().run(config)

    return SavingTaskRunner


def main(out: str, overrides: list[str]) -> None:
    config = train.compose(overrides)
    train.set_environment(config)
    os.environ[OUT] = out
    os.environ["PYTHONPATH"] = f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"
    # As in train.run, but open already when the runner is imported here.
    with forked_workers(config) as python:
        from seele_verl import runner

        config = with_changes(config, {runner.PY_EXECUTABLE: python})
        runner.run_training = partial(runner.run_training, task_runner=task_runner())
        train.run(config, overrides)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
