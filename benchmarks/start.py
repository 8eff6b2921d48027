"""From the command to the first rollouts: with processes that are forked, and that import by themselves.

python benchmarks/start.py --out runs/benchmark     # after scripts/quickstart.sh: its model and data
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path

from runs import OURS, spread, train
from seele.maths.tables import markdown_table

VARIANTS = {
    "forked": (),
    "by themselves": (f"ray_kwargs.ray_init.runtime_env.py_executable={sys.executable}",),
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark"))
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    first, whole, memory = (defaultdict[str, list[float]](list) for _ in range(3))
    for _ in range(arguments.repetitions):
        for name, overrides in VARIANTS.items():
            folder, began = arguments.out / name.replace(" ", "_"), time.time()
            lines = train(OURS, ("method=seele", *overrides), folder, steps=1)
            first[name].append((folder / "rollouts" / "step_1.jsonl").stat().st_mtime - began)
            whole[name].append(json.loads((folder / "run_card.json").read_text())["wall_s"])
            memory[name].append(lines[0]["memory/peak_gib"])
    rows = [
        [what, *(spread(values[name], digits) for name in VARIANTS)]
        for what, values, digits in (
            ("first rollouts after, s", first, 0),
            ("two steps in, s", whole, 0),
            ("peak memory, GiB", memory, 1),
        )
    ]
    a, b = VARIANTS
    print(markdown_table(["", *VARIANTS], rows))  # noqa: T201
    print("ratio to the first rollouts:", spread([y / x for x, y in zip(first[a], first[b], strict=True)]))  # noqa: T201


if __name__ == "__main__":
    main()
