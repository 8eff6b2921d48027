"""Count cuts, blank steps and answer-revealing hints in the real data at hand; see docs/steps.md.

python benchmarks/steps.py ../shared/data
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seele.data.steps.cutting import join_steps, split_steps
from seele.data.steps.leakage import mentioned_at, revealed_at
from seele.data.steps.protected import legal_cuts, protected_spans
from seele.data.tasks.gsm8k import read_gsm8k


@dataclass
class Row:
    """Counts for one source."""

    rows: int = 0
    pieces: int = 0
    blank: int = 0
    illegal: int = 0
    steps: int = 0
    bad: int = 0
    """Our steps that are blank, cut what belongs together, or do not give the text back."""
    hints: int = 0
    stated: int = 0
    mentioned: int = 0
    early: int = 0
    unhintable: int = 0

    def add(self, pieces: Sequence[str], steps: Sequence[str], text: str, answer: str | None) -> None:
        """Count one solution: the source's pieces, our steps, their text, and its answer if it has one."""
        self.rows += 1
        self.pieces += len(pieces)
        self.blank += sum(not piece.strip() for piece in pieces)
        self.illegal += count_illegal(pieces, text)
        self.steps += len(steps)
        self.bad += sum(not step.strip() for step in steps) + count_illegal(steps, text)
        self.bad += "".join(steps) != text
        self.unhintable += len(steps) < 2
        if answer and steps:
            revealed = revealed_at(steps, answer)
            self.hints += len(steps) - 1
            self.stated += len(steps) - revealed
            self.mentioned += len(steps) - mentioned_at(steps, answer)
            self.early += revealed < len(steps)

    def line(self, name: str) -> str:
        """A line of the table."""
        hints = max(self.hints, 1)
        counts = (self.rows, self.pieces, self.blank, self.illegal, self.steps, self.bad)
        shares = (
            *(self.unhintable / self.rows, self.early / self.rows),
            *(self.stated / hints, self.mentioned / hints),
        )
        cells = (name, *(f"{count:,}" for count in counts), *(f"{share:.1%}" for share in shares))
        return f"| {' | '.join(cells)} |"


def count_illegal(pieces: Sequence[str], text: str) -> int:
    """Number of ends of pieces, except the last, at which ``text`` must not be cut."""
    ends, position = [], 0
    for piece in pieces[:-1]:
        position += len(piece)
        ends.append(position)
    return len(ends) - len(legal_cuts(ends, protected_spans(text)))


def solutions(folder: Path) -> Iterator[tuple[str, list[str], str, str | None]]:
    """Yield the source, pieces with their separators, way of cutting (``join`` or ``split``) and answer."""
    for row in json_lines(folder / "traces.jsonl"):
        pieces = [f"{piece}{row['sep']}" for piece in row["steps"][:-1]] + row["steps"][-1:]
        yield f"traces: {row['source']}", pieces, "join", row["answer"]
        yield f"traces, as one text: {row['source']}", ["".join(pieces)], "split", row["answer"]
    for split in ("train", "test"):
        for instance in read_gsm8k(split, folder=folder / "gsm8k"):
            yield f"GSM8K {split}, with its last line", list(instance.steps), "join", instance.answer
    yield from uft(folder / "uft")
    for name in ("dev", "test"):
        for row in json_lines(folder / "aqua" / f"{name}.json"):
            lines = row["rationale"].splitlines(keepends=True)
            [value] = [o.split(")", 1)[1] for o in row["options"] if o.startswith(row["correct"])]
            yield f"AQuA {name}, the letter", lines, "join", row["correct"]
            yield f"AQuA {name}, the option's value", lines, "join", value.strip() or None


def uft(folder: Path) -> Iterator[tuple[str, list[str], str, str | None]]:
    """Yield the rows of UFT's two files, whose lists of hints are the steps."""
    import pyarrow.parquet as pq

    for row in pq.read_table(folder / "countdown_test.parquet").to_pylist():
        yield "UFT Countdown, the target", row["hint"], "join", str(row["target"])
        expression = re.search(r"<answer>(.*?)</answer>", row["answer"])
        yield "UFT Countdown, the expression", row["hint"], "join", expression and expression[1].strip()
    for row in pq.read_table(folder / "kk_logic_test.parquet").to_pylist():
        truth = row["reward_model"]["ground_truth"]
        yield "UFT knights and knaves", row["hint"], "join", truth["solution_text_format"]


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file with one per line."""
    for line in path.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="The real data at hand.")
    arguments = parser.parse_args()
    found: dict[str, Row] = {}
    start = time.perf_counter()
    for source, pieces, way, answer in solutions(arguments.folder):
        text = "".join(pieces)
        steps = join_steps(pieces, separator="") if way == "join" else split_steps(text)
        found.setdefault(source, Row()).add(pieces, steps, text, answer)
    lines = [
        "| source | rows | pieces | blank | cut illegally | our steps | ours blank, illegal or altered "
        "| no hint possible | answer stated early | hints stating it | hints mentioning it |",
        "|---|" + "---:|" * 10,
        *(row.line(name) for name, row in found.items()),
    ]
    sys.stdout.write("\n".join(lines) + f"\n\n{time.perf_counter() - start:.0f} s\n")


if __name__ == "__main__":
    main()
