"""The parts of a model card about what the model was trained on, and how."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from seele.export.base_model import UNKNOWN
from seele.export.facts import CardFacts
from seele.maths.tables import markdown_table
from seele.report.run_folder import RunFolder


def render_data(facts: CardFacts) -> str:
    """Files, data sets, licences, sizes and checksums."""
    rows = [
        (
            f"`{file.name}`",
            cell(file.title or UNKNOWN),
            cell(file.licence),
            UNKNOWN if file.problems is None else f"{file.problems:,}",
            f"`{file.sha256}`" if file.sha256 else UNKNOWN,
        )
        for file in facts.files
    ]
    count = facts.run.card.get("num_problems")
    trained = f"\nThe run trained on {count:,} problems.\n" if isinstance(count, int) else ""
    heads = ("file", "data set", "licence", "problems", "SHA-256")
    return f"## Training data\n\n{markdown_table(heads, rows, num_names=3)}{trained}"


def render_training(facts: CardFacts) -> str:
    """Steps, costs, hardware, seed, commit; settings that are not the method's."""
    card, progress = facts.run.card, facts.progress
    rows = {
        "method": f"`{facts.method}`",
        "curriculum": _part(facts.run, "seele.curriculum.name"),
        "selection": _part(facts.run, "seele.selection.name"),
        "steps": progress.steps,
        **progress.costs,
        "hardware": _hardware(card.get("hardware"), nodes=facts.run.setting("trainer.nnodes")),
        "seed": say(card.get("seed", facts.run.setting("seele.seed"))),
        "commit": _commit(card.get("commit")),
        "versions": _versions(card.get("versions")),
    }
    table = markdown_table(("", ""), ((key, cell(value)) for key, value in rows.items()), num_names=2)
    return f"## Training\n\n{table}\n{_settings(facts)}"


def _settings(facts: CardFacts) -> str:
    if not facts.changed:
        return f"All settings are the defaults of `{facts.method}`.\n"
    rows = (
        (f"`{key}`", f"`{cell(_literal(value))}`", f"`{cell(_literal(default))}`")
        for key, (value, default) in sorted(facts.changed.items())
    )
    table = markdown_table(("setting", "this run", "default"), rows, num_names=3)
    return f"Settings that are not the defaults of `{facts.method}`:\n\n{table}"


def _part(run: RunFolder, key: str) -> str:
    return f"`{say(run.setting(key))}`"


def say(value: Any) -> str:
    """A value as text; ``unknown`` for one that was not recorded."""
    return UNKNOWN if value is None else _literal(value)


def _literal(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def cell(text: str) -> str:
    """Text that cannot end a table's cell."""
    return " ".join(text.replace("|", "\\|").split())


def _hardware(hardware: Any, *, nodes: Any) -> str:
    """The run card describes the first node."""
    if not isinstance(hardware, Mapping):
        return UNKNOWN
    gpus = Counter(hardware.get("gpus") or ())
    if gpus:
        node = ", ".join(f"{count} x {gpu}" for gpu, count in gpus.items())
    else:
        node = f"{hardware.get('cpu', UNKNOWN)}, {hardware.get('cpu_cores', UNKNOWN)} cores, no GPU"
    return f"{nodes} nodes, the first with {node}" if isinstance(nodes, int) and nodes > 1 else node


def _commit(commit: Any) -> str:
    if not isinstance(commit, str):
        return UNKNOWN
    name, changed, _ = commit.partition("+changes")
    return f"`{name}`" + (", with uncommitted changes" if changed else "")


def _versions(versions: Any) -> str:
    if not isinstance(versions, Mapping) or not versions:
        return UNKNOWN
    return ", ".join(f"{name} {version}" for name, version in versions.items())
