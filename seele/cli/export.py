"""``seele export``: a run's checkpoint as a Hugging Face folder with a model card."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from seele.cli.outputs import writable_folder
from seele.errors import CheckpointError, ConfigError

# Run in other processes, because ``seele`` must not import verl.
_MERGER = "seele_verl.merge"
_DEFAULTS = "seele_verl.checks.method_defaults"
LAST = "last"


def export_command(
    run: Annotated[Path, typer.Argument(help="Run folder of a finished or interrupted run.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder to write; RUN/export by default.", callback=writable_folder),
    ] = None,
    step: Annotated[str, typer.Option(help="Step of the checkpoint, or last.")] = LAST,
    push: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="Upload the folder to the Hugging Face hub.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Make the hub's repository private.")] = False,
    licence: Annotated[
        str | None,
        typer.Option(
            "--licence",
            "--license",
            help="Licence, as the hub names it.",
            show_default="what the base model states",
        ),
    ] = None,
    base_model: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="The base model on the hub, if the run used a local copy."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an export that was changed afterwards.")
    ] = False,
) -> None:
    """Write weights, tokenizer and a model card with data, method, settings and scores.

    The checkpoint is merged if necessary. The card states only what the run folder contains.

    Raises:
        CheckpointError: If RUN is not a run folder, or has no such checkpoint.
        ConfigError: If an option is not allowed, or the output folder contains something else.
    """
    from seele.export.folder import Wish, export
    from seele.export.push import check_push, open_hub
    from seele.export.push import push as upload

    if step != LAST and not step.isdecimal():
        raise ConfigError(f"--step {step}: expected a step's number or {LAST!r}")
    if private and push is None:
        raise ConfigError("--private: needs --push OWNER/NAME, without which nothing is uploaded")
    wish = Wish(
        run=run,
        out=run / "export" if out is None else out,
        step=None if step == LAST else int(step),
        name=push,
        base_model=base_model,
        licence=licence,
        overwrite=overwrite,
    )
    hub = None
    if push is not None:
        hub = open_hub()
        check_push(hub, push, private=private)
    for note in export(wish, merge=_merge, defaults=_method_defaults):
        typer.echo(note)
    typer.echo(wish.out)
    if push is not None:
        typer.echo(upload(hub, wish.out, push, private=private))


def _merge(run: Path, step: int | None) -> Path:
    said = _ask(_MERGER, str(run), "--step", LAST if step is None else str(step))
    return Path(said.splitlines()[-1])


def _method_defaults(method: str) -> Mapping[str, Any]:
    defaults: dict[str, Any] = json.loads(_ask(_DEFAULTS, method))
    return defaults


def _ask(module: str, *arguments: str) -> str:
    """Return what a module of the bindings prints.

    Raises:
        CheckpointError: If it failed; the message is its error output.
    """
    command = [sys.executable, "-m", module, *arguments]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if asked.returncode:
        raise CheckpointError(asked.stderr.strip().removeprefix("error: "))
    return asked.stdout
