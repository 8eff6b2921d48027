"""A warm start: a pretrained model is taught the form of its answers by supervised training (``method=sft``).

Its problems are kept from RL. The training is a run like any other, in a process of its own, so that a killed
one goes on where it was; the model's folder is named after a hash of everything that makes it.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TextIO

from seele.child import run_module
from seele.data.storage.files import file_sha256
from seele.errors import CheckpointError, DataError
from seele.host import computes_in_bfloat16
from seele.rollout.templates import CHAT, TEMPLATES, template_text

LIBRARIES = ("torch", "transformers", "tokenizers", "verl")

# What describes a model and does not change it.
_NO_PART_OF_A_MODEL = ("README.md", "source.json")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """What a warm start is made of. The defaults are for a model of 135 M parameters on a CPU."""

    model: Path
    """Hugging Face folder."""
    problems: Path
    """Parquet in our schema."""
    limit: int = 2048
    """Largest number of problems."""
    template: str = "chat"
    epochs: int = 1
    batch_size: int = 8
    learning_rate: float = 3e-4
    max_prompt_tokens: int = 256
    max_response_tokens: int = 256
    seed: int = 0
    hardware: str = "cpu"
    settings: tuple[str, ...] = ()
    """Further settings of the run, as ``seele train`` takes them."""

    def overrides(self, run: Path) -> list[str]:
        """Arguments of ``seele train``."""
        quoted = {name: _quoted(path.absolute()) for name, path in (("model", self.model), ("run", run))}
        problems = _quoted(self.problems.absolute())
        own = [
            f"actor_rollout_ref.model.path={quoted['model']}",
            f"data.train_files=[{problems}]",
            # Nothing is validated, but a run must name problems that it could be validated on.
            f"data.val_files=[{problems}]",
            f"data.train_max_samples={self.limit}",
            f"data.max_prompt_length={self.max_prompt_tokens}",
            f"data.max_response_length={self.max_response_tokens}",
            f"seele.prompt.template={_quoted(self.template)}",
            f"seele.seed={self.seed}",
            f"seele.sft.epochs={self.epochs}",
            f"seele.sft.batch_size={self.batch_size}",
            f"seele.sft.learning_rate={self.learning_rate}",
            "seele.sft.save_freq=32",
            "trainer.max_actor_ckpt_to_keep=1",
            "trainer.val_before_train=false",
            "trainer.test_freq=-1",
            f"trainer.default_local_dir={quoted['run']}",
        ]
        if self.hardware == "cpu":
            # Logits are tokens times vocabulary: 2,048 x 49,152 take 0.4 GB, several times that in the loss.
            own.append("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048")
            if computes_in_bfloat16():
                own.append("actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16")
        return ["method=sft", f"hardware={self.hardware}", "job=method", *own, *self.settings]


def _quoted(value: Path | str) -> str:
    text = str(value).replace("'", "\\'")
    return f"'{text}'"


def fingerprint(wish: WarmStart) -> str:
    """Hash of model, problems, a template of the user's, the run's whole configuration and the libraries'
    versions; no path of these counts.

    Raises:
        ConfigError: There is no such template.
        CheckpointError: The settings give no configuration; why is on the terminal.
    """
    anywhere = dataclasses.replace(wish, model=Path("/model"), problems=Path("/problems"))
    own = None if wish.template == CHAT or wish.template in TEMPLATES else template_text(wish.template)
    if own is not None:
        anywhere = dataclasses.replace(anywhere, template="/template")
    versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
    files = sorted(file for file in wish.model.iterdir() if file.is_file())
    files = [file for file in files if file.name not in _NO_PART_OF_A_MODEL]
    contents = {file.name: file_sha256(file) for file in files} | {"problems": file_sha256(wish.problems)}
    contents |= {} if own is None else {"template": own}
    facts = [_composed(anywhere.overrides(Path("/run"))), versions, contents]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _composed(overrides: list[str]) -> str:
    """The whole configuration of a run, also of what no override sets, as text."""
    command = [sys.executable, "-m", "seele_verl.train", "--cfg", "job", *overrides]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode:
        raise CheckpointError(f"the settings give no configuration (status {result.returncode}); see above")
    return result.stdout


def warm_name(model: Path) -> str:
    """Name of the warm starts of a model, without the hash."""
    return f"{model.resolve().name}-warm"


def make_warm_start(root: Path, wish: WarmStart) -> Path:
    """Folder of the warm-started model below ``root``, trained now unless it is there already.

    Raises:
        DataError: Model or problems are missing.
        CheckpointError: The training, or the export of its model, failed; its messages are on the terminal.
    """
    if not (wish.model / "config.json").is_file():
        raise DataError(f"{wish.model}: no such model folder; `seele model fetch smollm2-135m` makes one")
    if not wish.problems.is_file():
        raise DataError(f"{wish.problems}: no such file; `seele data prepare` makes one (docs/pretrained.md)")
    folder = root / f"{warm_name(wish.model)}-{fingerprint(wish)}"
    if folder.exists():
        return folder
    run, passing = root / f".{folder.name}-run", root / f".{folder.name}"
    exported = passing.absolute() / folder.name  # the model card shows the last name
    run.mkdir(parents=True, exist_ok=True)
    _call("seele_verl.train", *wish.overrides(run), output=sys.stderr)
    shutil.rmtree(passing, ignore_errors=True)
    passing.mkdir()
    # It prints a folder that is about to be renamed, and advice on uploading it.
    _call("seele.cli.main", "export", str(run), "--out", str(exported), output=subprocess.DEVNULL)
    exported.rename(folder)
    passing.rmdir()
    shutil.rmtree(run)
    return folder


def _call(module: str, *arguments: str, output: int | TextIO) -> None:
    """Run ``python -m module``. What it prints goes to ``output``, its errors to standard error.

    Raises:
        CheckpointError: If it fails.
        SystemExit: As in ``run_module``.
    """
    if status := run_module(module, arguments, stdout=output):
        raise CheckpointError(f"python -m {module} failed (status {status}); see above")
