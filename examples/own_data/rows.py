"""Rows that no mapping of columns can read: the box with the answer is not in the file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read(split: str) -> Iterator[dict[str, Any]]:
    """Yield a row per problem: its worked solution as steps, the last of which states the answer in a box."""
    with (Path(__file__).parent / f"{split}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            *steps, last = row["worked"]
            last += f"\n\\boxed{{{row['result']}}}"
            yield {"ask": row["ask"], "steps": [*steps, last], "result": row["result"]}
