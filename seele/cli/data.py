"""``seele data``: prepare the parquet files of problems, and look at them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seele.errors import ConfigError

if TYPE_CHECKING:
    from seele.records import Instance

data_app = typer.Typer(no_args_is_help=True, help="Prepare and inspect problems.")
prepare_app = typer.Typer(no_args_is_help=True, help="Write DIR/<split>.parquet and DIR/manifest.json.")
data_app.add_typer(prepare_app, name="prepare")

OutOption = Annotated[Path, typer.Option(help="Folder to write to.", show_default=False)]


@prepare_app.command("chains")
def prepare_chains(
    out: OutOption,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE of ChainsConfig, such as num_train=64.")
    ] = None,
) -> None:
    """Chains of modular arithmetic: training, held-out and harder problems."""
    from dataclasses import asdict

    from seele.config.build import from_mapping
    from seele.data.chains import DATA_SOURCE, ChainsConfig, generate_splits

    config = from_mapping(ChainsConfig, {"seed": seed} | parse_settings(settings or []), "chains")
    write_splits(out, generate_splits(config), origin={"source": DATA_SOURCE, "settings": asdict(config)})


@prepare_app.command("gsm8k")
def prepare_gsm8k(
    out: OutOption,
    source: Annotated[
        Path | None,
        typer.Option(help="Folder with train.jsonl and test.jsonl.", show_default="the Hugging Face hub"),
    ] = None,
    max_chars: Annotated[
        int | None,
        typer.Option(
            min=1, help="Only problems whose question and solution have at most so many characters."
        ),
    ] = None,
) -> None:
    """GSM8K: its training split, and its test split as held-out problems."""
    from seele.data.gsm8k import DATA_SOURCE, HUB_NAME, HUB_REVISION, read_gsm8k

    splits = {
        "train": read_gsm8k("train", folder=source, max_chars=max_chars),
        "heldout": read_gsm8k("test", folder=source, max_chars=max_chars),
    }
    # The folder's own name would make the manifest differ from machine to machine.
    origin = f"{HUB_NAME}@{HUB_REVISION}" if source is None else "local folder"
    write_splits(out, splits, origin={"source": DATA_SOURCE, "origin": origin, "max_chars": max_chars})


@data_app.command("inspect")
def inspect_problems(
    file: Annotated[Path, typer.Argument(help="A parquet file of problems.", show_default=False)],
    num: Annotated[int, typer.Option(min=1, help="How many problems, from the start.")] = 3,
) -> None:
    """Show some problems with every hint that may be given for them."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from seele.data.schema import count_unhintable, read_problems

    instances = read_problems(file)
    console = Console()
    console.print(
        Text(f"{file}: {len(instances)} problems, {count_unhintable(instances)} without a possible hint")
    )
    for instance in instances[:num]:
        table = Table(
            title=Text(instance.instance_id), title_justify="left", caption=Text(f"answer: {instance.answer}")
        )
        table.add_column("hint ratio", justify="right")
        table.add_column("shown to the model")
        table.add_row("", Text(instance.question))
        for ratio in instance.legal_hint_ratios:
            hint = "".join(instance.steps[: instance.num_hint_steps(ratio)])
            table.add_row(f"{ratio:.3f}", Text(hint.rstrip() or "no hint"))
        console.print(table)


def write_splits(out: Path, splits: dict[str, list["Instance"]], *, origin: dict[str, Any]) -> None:
    """Write each split, then ``manifest.json`` with counts and checksums. Same input, same bytes."""
    from seele.data.files import file_sha256, write_atomically
    from seele.data.schema import count_unhintable, write_problems

    manifest: dict[str, Any] = origin | {"splits": {}}
    for split, instances in splits.items():
        path = out / f"{split}.parquet"
        write_problems(path, instances, split=split)
        manifest["splits"][split] = {
            "file": path.name,
            "problems": len(instances),
            "unhintable": count_unhintable(instances),
            "sha256": file_sha256(path),
        }
        typer.echo(f"{path}: {len(instances)} problems")
    write_atomically(out / "manifest.json", json.dumps(manifest, indent=2) + "\n")


def parse_settings(settings: list[str]) -> dict[str, Any]:
    """``["num_train=64", "train_levels=[3,4]"]`` as a mapping; values are JSON, or else text.

    Raises:
        ConfigError: If a setting has no ``=``.
    """
    parsed: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: expected KEY=VALUE")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        parsed[key] = tuple(value) if isinstance(value, list) else value
    return parsed
