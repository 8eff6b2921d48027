"""``seele data prepare``: write parquet files from named sources, the Hugging Face hub and local files."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from typer.core import TyperGroup

from seele.cli.outputs import writable_folder
from seele.cli.token_limit import (
    DEFAULT_TEMPLATE,
    MaxTokensOption,
    TemplateOption,
    TokenizerOption,
    TokenLimit,
    read_token_limit,
)
from seele.config.settings import RewardConfig
from seele.errors import ConfigError

if TYPE_CHECKING:
    from seele.data.prepare import Split
    from seele.records import Instance


DEFAULT_GRADER = RewardConfig().grader


class SourceGroup(TyperGroup):
    """A group that reads an unknown command as the name of a source or as a reference."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Resolve ``deepmath ...`` as ``source deepmath ...``."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["source", *args]
        return super().resolve_command(ctx, args)


prepare_app = typer.Typer(
    cls=SourceGroup,
    no_args_is_help=True,
    help="Write DIR/<split>.parquet and DIR/manifest.json. "
    "Sources: deepmath, openr1_46k, dapo_17k, math, gsm8k, hf://OWNER/NAME, a file, a YAML file of your own "
    "(docs/data.md), or a generator: chains, countdown, zebra, arc_1d. "
    "Options of a source or file, such as --map and --set: seele data prepare source --help.",
)

OutOption = Annotated[
    Path,
    typer.Option(help="Folder to write to.", file_okay=False, show_default=False, callback=writable_folder),
]
GraderOption = Annotated[
    str,
    typer.Option(
        help="Grader that checks a sample of the reference answers against themselves, as in training."
    ),
]
MaxFailingOption = Annotated[
    float,
    typer.Option(
        "--max-failing-golds",
        min=0.0,
        max=1.0,
        help="Share of reference answers that may fail; above it, nothing is written.",
    ),
]
MaxCharsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Most characters of question and solution; longer problems are skipped.",
        show_default="all",
    ),
]


@prepare_app.command("source")
def prepare_source(
    reference: Annotated[
        str,
        typer.Argument(
            help="A source's name, a YAML file of your own, "
            "hf://OWNER/NAME?config=...&split=...&revision=..., a URL of the hub, or a "
            "local parquet, JSON, JSONL or CSV file, or a folder of such files.",
            show_default=False,
        ),
    ],
    out: OutOption,
    source: Annotated[
        Path | None,
        typer.Option(help="Local copy of the source's files.", show_default="where the source says"),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", help="question=COLUMN answer=COLUMN solution=... steps=... level=..."),
    ] = None,
    splits: Annotated[
        list[str] | None, typer.Option("--split", help="OURS=THEIRS, such as heldout=test.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE of the source, such as max_steps=5.")
    ] = None,
    max_chars: MaxCharsOption = None,
    grader: GraderOption = DEFAULT_GRADER,
    max_failing_golds: MaxFailingOption = 0.01,
    max_tokens: MaxTokensOption = None,
    tokenizer: TokenizerOption = None,
    template: TemplateOption = DEFAULT_TEMPLATE,
) -> None:
    """Prepare any other source: `seele data prepare deepmath` and `... source deepmath` are the same."""
    from seele.data.sources import find_settings
    from seele.data.sources.prepare_source import prepare_source
    from seele.reward.golds import GoldCheck

    changes = parse_settings(settings or [])
    if splits:
        # Replaces all splits of the source.
        changes = {"heldout_share": 0.0} | changes | {"splits": _parse_pairs(splits, "--split")}
    if max_chars is not None:
        changes["max_chars"] = max_chars
    # A column's name may contain blanks.
    pairs = [pair for text in mapping or [] for pair in re.split(r"\s+(?=\w+=)", text.strip())]
    found = find_settings(reference, columns=_parse_pairs(pairs, "--map"), changes=changes)
    check = GoldCheck(grader=grader, max_failing=max_failing_golds)
    limit = read_token_limit(max_tokens, tokenizer, template)
    manifest = prepare_source(
        out,
        found,
        source=source,
        check_golds=check,
        choose=limit.within if limit else None,
        about={"token_limit": limit.about} if limit else None,
    )
    _say(out, manifest)
    _say_revision(found.reference, manifest)


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
    from seele.data.tasks.chains import DATA_SOURCE, ChainsConfig, generate_splits

    config = from_mapping(ChainsConfig, {"seed": seed} | parse_settings(settings or []), "chains")
    write_splits(out, generate_splits(config), origin={"source": DATA_SOURCE, "settings": asdict(config)})


@prepare_app.command("gsm8k")
def prepare_gsm8k(
    out: OutOption,
    source: Annotated[
        Path | None,
        typer.Option(help="Folder with train.jsonl and test.jsonl.", show_default="the Hugging Face hub"),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            help="Only problems with this number of steps, such as 2-4; the last step states the answer.",
            show_default="all",
        ),
    ] = None,
    warm_start: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Share of the training split that goes to warm_start.parquet.",
        ),
    ] = 0.0,
    tuning: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Share of the training split that goes to tuning.parquet."),
    ] = 0.0,
    max_chars: MaxCharsOption = None,
    grader: GraderOption = DEFAULT_GRADER,
    max_failing_golds: MaxFailingOption = 0.01,
    max_tokens: MaxTokensOption = None,
    tokenizer: TokenizerOption = None,
    template: TemplateOption = DEFAULT_TEMPLATE,
) -> None:
    """GSM8K: its training split, and its test split as held-out problems."""
    from seele.data.prepare import prepare
    from seele.data.tasks.gsm8k import DATA_SOURCE, HUB_NAME, HUB_REVISION, LICENCE, divide, read_gsm8k
    from seele.reward.golds import GoldCheck

    allowed = None if steps is None else _steps_range(steps)
    splits = divide(
        read_gsm8k("train", folder=source),
        read_gsm8k("test", folder=source),
        warm_start=warm_start,
        tuning=tuning,
    )
    # The folder's own name would make the manifest differ from machine to machine.
    origin = f"{HUB_NAME}@{HUB_REVISION}" if source is None else "local folder"
    about: dict[str, Any] = {"source": DATA_SOURCE, "licence": LICENCE, "origin": origin}
    about["max_chars"] = max_chars
    if steps or warm_start or tuning:
        about |= {"steps": steps, "warm_start": warm_start, "tuning": tuning}
    check = GoldCheck(grader=grader, max_failing=max_failing_golds)
    if limit := read_token_limit(max_tokens, tokenizer, template):
        about["token_limit"] = limit.about
    whole = {
        name: _limited(instances, max_chars=max_chars, steps=allowed, limit=limit)
        for name, instances in splits.items()
    }
    _say(out, prepare(out, whole, about=about, check_golds=check))


def _steps_range(text: str) -> range:
    """Return the range that ``2-4`` or ``3`` stands for."""
    low, to, high = text.partition("-")
    high = high if to else low
    if not (low.isdecimal() and high.isdecimal() and 1 <= int(low) <= int(high)):
        raise ConfigError(f"--steps {text}: expected a number or a range, such as 2-4")
    return range(int(low), int(high) + 1)


def _limited(
    instances: "list[Instance]", *, max_chars: int | None, steps: range | None, limit: TokenLimit | None
) -> "Split":
    """Return a split of the problems within the limits, with the number of those left out."""
    from seele.data.prepare import Split
    from seele.data.sources import Counts
    from seele.data.sources.settings import Reason
    from seele.data.tasks.gsm8k import num_chars

    counts, kept = Counts(read=len(instances)), []
    for instance in instances:
        if max_chars is not None and num_chars(instance) > max_chars:
            counts.left_out[Reason.TOO_LONG] += 1
        elif steps is not None and len(instance.steps) not in steps:
            counts.left_out["number_of_steps"] += 1
        else:
            kept.append(instance)
    return Split(instances=limit.within(kept, counts) if limit else kept, counts=counts)


def _say_revision(reference: str, manifest: Mapping[str, Any]) -> None:
    """Print the revision of a data set that is not pinned to a commit, because it may change."""
    origins = [entry.get("origin", {}) for entry in manifest["splits"].values()]
    for revision in sorted({origin["revision"] for origin in origins if "revision" in origin}):
        if revision not in reference:
            typer.echo(f"{reference}: not pinned to a commit; this time {revision} was read (manifest.json)")


def write_splits(out: Path, splits: Mapping[str, Iterable["Instance"]], *, origin: Mapping[str, Any]) -> None:
    """Write each split, then ``manifest.json`` with counts and checksums. Same input gives same bytes.

    Raises:
        DataError: As ``seele.data.prepare.prepare``.
    """
    from seele.data.prepare import Split, prepare
    from seele.reward.golds import GoldCheck

    whole = {name: Split(instances=instances) for name, instances in splits.items()}
    _say(out, prepare(out, whole, about=origin, check_golds=GoldCheck()))


def parse_settings(settings: list[str]) -> dict[str, Any]:
    """Return ``["num_train=64", "train_levels=[3,4]"]`` as a mapping; values are JSON, a list as in YAML, or
    text.

    Raises:
        ConfigError: If a setting has no ``=``.
    """
    parsed: dict[str, Any] = {}
    for key, text in _parse_pairs(settings, "--set").items():
        try:
            parsed[key] = json.loads(text)
        except json.JSONDecodeError:
            parsed[key] = _list_in(text) or text
            if key == "separator":  # a shell passes "\\n" as it is
                parsed[key] = text.replace("\\n", "\n").replace("\\t", "\t")
    return parsed


def _list_in(text: str) -> list[Any]:
    """Return a list such as ``[duplicate]``; empty for any other text."""
    if not text.startswith("["):
        return []
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return []
    return value if isinstance(value, list) else []


def _parse_pairs(pairs: list[str], option: str) -> dict[str, str]:
    parsed: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"{option} {pair}: expected KEY=VALUE")
        if key in parsed:
            raise ConfigError(f"{option} {pair}: {key} is {parsed[key]!r} already; give it once")
        parsed[key] = value
    return parsed


def _say(out: Path, manifest: Mapping[str, Any]) -> None:
    for entry in manifest["splits"].values():
        left_out = ", ".join(f"{count} {reason}" for reason, count in entry.get("left_out", {}).items())
        rows = f" of {entry['rows_read']} rows" if "rows_read" in entry else ""
        typer.echo(
            f"{out / entry['file']}: {entry['problems']} problems{rows}, {entry['unhintable']} without a "
            f"possible hint" + (f"; left out: {left_out}" if left_out else "")
        )
        if columns := entry.get("columns"):
            said = " ".join(f"{name}={path}" for name, path in columns.items())
            absent = [name for name in ("solution", "level") if name not in columns]
            if "steps" in columns:
                absent.remove("solution")
            none = f"; none for {' and '.join(absent)}" if absent else ""
            typer.echo(f"  columns: {said}{none} (use --map for others)")
        if entry["unhintable"] == entry["problems"]:
            how = "map solutions with --map solution=COLUMN (texts) or steps=COLUMN (lists of texts), or "
            typer.echo(
                "  warning: no problem here has a possible hint, because no worked solution has two steps; "
                f"{how if 'rows_read' in entry else ''}train without hints, such as with method=grpo"
            )
        golds = entry["golds"]
        if golds["failing"]:
            typer.echo(
                f"  {golds['failing']} of {golds['checked']} reference answers fail the grader "
                f"{golds['grader']} against themselves"
            )
