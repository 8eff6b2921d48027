r"""GSM8K (arXiv:2110.14168): grade-school problems whose solutions are written line by line.

A step is one line of the original solution without its ``<<48/2=24>>`` calculator marks; the last step states
the final answer in ``\boxed{}``, so every hint stops before it. The rows come from a local folder with the
original ``train.jsonl`` and ``test.jsonl``, or from the Hugging Face hub.
"""

import hashlib
import re
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from seele.data.split import is_in_first_part
from seele.data.storage.files import read_json_lines
from seele.data.storage.hub import HubSource, read_hub_rows
from seele.data.storage.row_rules import check_unicode
from seele.errors import ConfigError, DataError
from seele.records import Instance

DATA_SOURCE = "gsm8k"

HUB_NAME = "openai/gsm8k"
HUB_REVISION = "e53f048856ff4f594e959d75785d2c2d37b678ee"
"""Commit of the data set on the hub, pinned so that the problems never change."""

LICENCE = "MIT"

Split = Literal["train", "test"]

_CALCULATOR_MARK = re.compile(r"<<[^<>]*>>")
# The comma of "1,234" is dropped from the gold: a grader may read it as a list.
_FINAL_LINE = re.compile(r"#### *(?P<number>-?\$?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?)\s*")


def read_gsm8k(split: Split, *, folder: Path | None = None, max_chars: int | None = None) -> list[Instance]:
    """Return the problems of ``split``, in the order of the source.

    Args:
        split: ``train`` (7,473 problems) or ``test`` (1,319).
        folder: Folder with ``train.jsonl`` and ``test.jsonl``; None reads from the hub.
        max_chars: Skip problems whose question and solution together are longer; None keeps all.

    Raises:
        DataError: If the file is missing, the hub cannot be reached, or a row is not
            ``{"question": text, "answer": text}`` with an answer that ends in ``#### number``.
        DependencyError: If the hub is needed and ``datasets`` is not installed.
    """
    rows = _rows_of_hub(split) if folder is None else read_json_lines(folder / f"{split}.jsonl")
    instances = [_to_instance(row, at) for at, row in rows]
    return [instance for instance in instances if max_chars is None or num_chars(instance) <= max_chars]


def divide(
    train: Sequence[Instance],
    test: Sequence[Instance],
    *,
    warm_start: float = 0.0,
    tuning: float = 0.0,
) -> dict[str, list[Instance]]:
    """Return the files of a preparation, by name: ``train``, ``heldout``, and parts of the training split.

    Args:
        train: Problems of the training split.
        test: Problems of the test split.
        warm_start: Share of the training split, by a hash of the ids, reserved for supervised training.
        tuning: Share of the training split reserved for tuning settings.

    Raises:
        ConfigError: If the shares leave nothing to train on.
    """
    if warm_start + tuning >= 1:
        raise ConfigError(f"--warm-start {warm_start} and --tuning {tuning} leave nothing to train on")
    parts: dict[str, list[Instance]] = {"train": [], "heldout": [*test], "warm_start": [], "tuning": []}
    for instance in train:
        if is_in_first_part(instance.instance_id, share=warm_start, seed=0):
            parts["warm_start"].append(instance)
        elif is_in_first_part(instance.instance_id, share=warm_start + tuning, seed=0):
            parts["tuning"].append(instance)
        else:
            parts["train"].append(instance)
    wanted = {"warm_start": warm_start, "tuning": tuning}
    return {name: part for name, part in parts.items() if wanted.get(name, 1.0)}


def num_chars(instance: Instance) -> int:
    """Return the number of characters of question and solution."""
    return len(instance.question) + sum(map(len, instance.steps))


def split_solution(text: str) -> tuple[tuple[str, ...], str]:
    r"""Cut an original solution into steps and final answer.

    ``"He has 2*3=<<2*3=6>>6 apples.\n#### 6"`` becomes the steps ``"He has 2*3=6 apples.\n"`` and
    ``"The answer is \\boxed{6}."`` and the answer ``"6"``.

    Raises:
        ValueError: If the last line is not ``#### number``.
    """
    *lines, last = text.strip().split("\n")
    final = _FINAL_LINE.fullmatch(last)
    if final is None:
        raise ValueError(f"the solution must end in a line '#### number', got {reprlib.repr(last)}")
    answer = final["number"].replace(",", "").replace("$", "")
    worked = (_CALCULATOR_MARK.sub("", line).strip() for line in lines)
    return (*(f"{line}\n" for line in worked if line), f"The answer is \\boxed{{{answer}}}."), answer


def is_gsm8k_solution(text: str) -> bool:
    """Return True if a text is an original solution, which ``split_solution`` accepts."""
    return _FINAL_LINE.fullmatch(text.strip().rpartition("\n")[2]) is not None


def problem_id(question: str, solution: str) -> str:
    """Return the id of a problem, derived from the texts of its original row."""
    # From the content, not the row number: a shuffled or shortened copy keeps its ids.
    digest = hashlib.sha256(f"{question}\n{solution}".encode()).hexdigest()
    return f"{DATA_SOURCE}-{digest[:16]}"


def _rows_of_hub(split: Split) -> list[tuple[str, Any]]:
    return read_hub_rows(
        HubSource(HUB_NAME, split, HUB_REVISION, "main"),
        instead="Without a network, give the folder that holds train.jsonl and test.jsonl",
    )


def _to_instance(row: Any, at: str) -> Instance:
    for key in ("question", "answer"):
        value = row.get(key) if isinstance(row, dict) else None
        if not isinstance(value, str) or not value.strip():
            raise DataError(
                f"{at}, key {key!r}: expected a text that is not blank, got {reprlib.repr(value)}"
            )
        check_unicode(value, f"{at}, key {key!r}")
    try:
        steps, answer = split_solution(row["answer"])
    except ValueError as error:
        raise DataError(f"{at}, key 'answer': {error}") from error
    return Instance(
        instance_id=problem_id(row["question"], row["answer"]),
        data_source=DATA_SOURCE,
        question=row["question"].strip(),
        steps=steps,
        answer=answer,
    )
