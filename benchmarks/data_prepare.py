"""Measure the time and memory of preparing and reading a file of problems, on synthetic rows.

    python benchmarks/data_prepare.py --rows 100000 --folder runs/bench_data

Writes made-up rows (a question of three sentences, a solution of five to nine lines with formulas) as JSONL,
prepares them with ``seele data prepare`` in one process, then reads the result as training does in another,
and prints the seconds and the peak resident memory of each.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

READ = "import sys; from pathlib import Path; from seele.data.storage.schema import read_problems; "
READ += "print(len(read_problems(Path(sys.argv[1]))))"


def made_up_row(rng: random.Random, number: int) -> dict:
    """Return a problem that no other number gives."""
    start, steps = rng.randrange(100, 1000), rng.randrange(5, 10)
    question = (
        f"A made-up warehouse with the number {number} holds {start} boxes in the morning. Every hour a van "
        f"brings some boxes, and another takes some away. How many boxes are there after {steps} hours?"
    )
    lines, value = [], start
    for hour in range(steps):
        plus, minus = rng.randrange(50), rng.randrange(50)
        after = value + plus - minus
        lines.append(
            f"In hour {hour + 1} there come {plus} boxes and {minus} leave, so that "
            f"\\[ {value} + {plus} - {minus} = {after} \\] boxes are left, which is $\\frac{{{after}}}{{1}}$."
        )
        value = after
    lines.append(f"So there are $\\boxed{{{value}}}$ boxes.")
    return {"question": question, "solution": "\n".join(lines), "answer": value, "level": f"Level {steps}"}


def measure(command: list[str]) -> tuple[float, float]:
    """Return the seconds and peak MiB of a process. The peak is that of the largest child so far."""
    start = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=Path("runs/bench_data"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    source, out = arguments.folder / "synthetic.jsonl", arguments.folder / "prepared"
    rng = random.Random(0)
    with source.open("w", encoding="utf-8") as file:
        for number in range(arguments.rows):
            file.write(json.dumps(made_up_row(rng, number)) + "\n")
    prepare = [sys.executable, "-m", "seele.cli.main", "data", "prepare", str(source), "--out", str(out)]
    columns = "question=question solution=solution answer=answer level=level"
    seconds, mib = measure([*prepare, "--map", columns])
    sys.stdout.write(f"prepare {arguments.rows:,} rows: {seconds:.1f} s, {mib:.0f} MiB\n")
    seconds, more = measure([sys.executable, "-c", READ, str(out / "train.parquet")])
    at_most = "" if more > mib else "at most "
    sys.stdout.write(f"read {arguments.rows:,} problems: {seconds:.1f} s, {at_most}{more:.0f} MiB\n")


if __name__ == "__main__":
    main()
