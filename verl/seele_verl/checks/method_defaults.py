"""Values that a method's YAML file and those that it builds on set, in the order of their precedence.

    python -m seele_verl.checks.method_defaults METHOD       as JSON, by dotted key

Values that follow from other settings are omitted. Hardware, model and data are not considered.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from seele.errors import ConfigError, SeeleError

CONFIG = Path(__file__).parents[1] / "config"


def method_defaults(method: str) -> dict[str, Any]:
    """Return defaults by dotted key, for every key of ``seele`` and every key that the method's files set.

    Raises:
        ConfigError: The method does not exist.
    """
    of_all = {"seele": OmegaConf.to_container(OmegaConf.load(CONFIG / "seele.yaml"))["seele"]}  # type: ignore[call-overload,index]
    merged: Any = OmegaConf.to_container(OmegaConf.merge(of_all, *_files(method)))
    return {key: value for key, value in _flat(merged) if not _is_open(value)}


def _files(method: str) -> Iterator[Mapping[str, Any]]:
    """Yield the contents of the method's files, those that it builds on first."""
    path = CONFIG / "method" / f"{method}.yaml"
    if not path.is_file():
        methods = sorted(file.stem for file in path.parent.glob("*.yaml"))
        raise ConfigError(f"unknown method {method!r}; allowed are {methods}")
    values: Any = OmegaConf.to_container(OmegaConf.load(path))
    for name in values.pop("defaults", ["_self_"]):
        if name == "_self_":
            yield values
        else:
            yield from _files(name)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _is_open(value: Any) -> bool:
    """True if the value follows from others, or must be given."""
    return isinstance(value, str) and ("${" in value or value == "???")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the defaults as one line of JSON."""
    parser = argparse.ArgumentParser(description="Print what a method's files set.")
    parser.add_argument("method")
    try:
        said = json.dumps(method_defaults(parser.parse_args(arguments).method))
    except SeeleError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    sys.stdout.write(f"{said}\n")


if __name__ == "__main__":
    main()
