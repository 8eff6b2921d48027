"""The parquet file of problems: one row an instance, checked when it is read.

Our own columns come first and say everything; ``prompt``, ``reward_model`` and ``extra_info`` repeat it in
the form that verl's data set expects, are written for it, and are ignored here. Other columns are ignored
too, unless verl's agent loop uses their name for something of its own. Where problems come from does not live
here: see ``seele.data.chains`` and ``seele.data.gsm8k``.
"""

import io
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seele.data.files import write_atomically
from seele.errors import DataError
from seele.records import Instance

SCHEMA = pa.schema(
    [
        ("instance_id", pa.string()),
        ("data_source", pa.string()),
        ("question", pa.string()),
        ("steps", pa.list_(pa.string())),
        ("answer", pa.string()),
        ("level", pa.int64()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        ("extra_info", pa.struct([("index", pa.int64()), ("split", pa.string())])),
    ]
)

REQUIRED_COLUMNS = ("instance_id", "data_source", "question", "steps", "answer")

# verl 0.9.1 passes a row's columns to its agent loop as keyword arguments, beside these of its own ...
_ARGUMENTS = "sampling_params session_id trace trajectory"
# ... reads these as instructions ...
_INSTRUCTIONS = "__do_sample__ __rollout_n__ agent_name interaction_kwargs tools_kwargs"
# ... and writes the columns over what the data set, the rollout or the trainer returned under these names.
_OUTPUTS = """
    __num_turns__ advantages attention_mask dummy_tensor entropy entropys global_steps input_ids loss_mask
    multi_modal_data multi_modal_inputs old_log_probs position_ids prompts raw_prompt ref_log_prob
    response_mask responses returns rm_scores rollout_log_probs token_level_rewards token_level_scores uid
    values
"""
RESERVED_COLUMNS = frozenset(f"{_ARGUMENTS} {_INSTRUCTIONS} {_OUTPUTS}".split())
"""Column names that a file of problems must not have."""


def write_problems(path: Path, instances: Sequence[Instance], *, split: str) -> None:
    """Write ``instances`` as one parquet file; under one pyarrow, the same instances give the same bytes."""
    rows = [_to_row(instance, index, split) for index, instance in enumerate(instances)]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sink)
    write_atomically(path, sink.getvalue())


def read_problems(path: Path) -> list[Instance]:
    """Read and check a file of problems.

    Required are ``instance_id`` (not blank, unique in the file), ``data_source`` (not blank), ``question``
    (not blank), ``steps`` (a list of texts, none of them blank; the list may be empty) and ``answer`` (not
    blank). ``level`` (integer >= 0) may be absent. Instances with fewer than two steps are kept: see
    ``count_unhintable``.

    Raises:
        DataError: Missing or unreadable file, no rows, a missing or reserved column, or a row that breaks the
            rules above; the message has file, row (counted from 0), column, what came and what is allowed.
    """
    table = _read_table(path)
    if not table.num_rows:
        raise DataError(f"{path}: the file has no rows; prepare it again with `seele data prepare`")
    wanted = [name for name in SCHEMA.names[: len(REQUIRED_COLUMNS) + 1] if name in table.column_names]
    rows = table.select(wanted).to_pylist()
    instances = [
        _to_instance(row, f"{path}: row {number} (counted from 0)") for number, row in enumerate(rows)
    ]
    _check_unique_ids(instances, path)
    return instances


def read_columns(path: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """The values of some columns, whether or not they are ours, row by row in the file's order.

    Args:
        path: A file of problems.
        names: Columns of texts, integers, floats or booleans; ``extra_info.split`` is the field ``split`` of
            the structured column ``extra_info``.

    Raises:
        DataError: As ``read_problems`` for the file and its columns, or an unknown column, or a value that is
            missing or of another type.
    """
    table = _read_table(path)
    keys_of_column = dict(_plain_columns(table.schema))
    if unknown := [name for name in names if name not in keys_of_column]:
        raise DataError(f"{path}: no columns {unknown}; the file has {list(keys_of_column)}")
    rows = table.select({keys_of_column[name][0] for name in names}).to_pylist()
    return [
        {
            name: _read_value(row, keys_of_column[name], f"{path}: row {number} (counted from 0)")
            for name in names
        }
        for number, row in enumerate(rows)
    ]


def count_unhintable(instances: Iterable[Instance]) -> int:
    """Number of instances whose solution has fewer than two steps, so that no hint can be given."""
    return sum(len(instance.steps) < 2 for instance in instances)


def _to_row(instance: Instance, index: int, split: str) -> dict[str, Any]:
    return {
        "instance_id": instance.instance_id,
        "data_source": instance.data_source,
        "question": instance.question,
        "steps": list(instance.steps),
        "answer": instance.answer,
        "level": instance.level,
        "prompt": [{"role": "user", "content": instance.question}],
        "reward_model": {"style": "rule", "ground_truth": instance.answer},
        "extra_info": {"index": index, "split": split},
    }


def _read_table(path: Path) -> pa.Table:
    if not path.is_file():
        raise DataError(f"{path}: no such file; make it with `seele data prepare`, or check the path")
    try:
        names = pq.read_schema(path).names
        _check_columns(names, path)
        return pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable parquet file ({error}); prepare it again") from error


def _check_columns(names: Sequence[str], path: Path) -> None:
    if missing := [name for name in REQUIRED_COLUMNS if name not in names]:
        raise DataError(
            f"{path}: missing columns {missing}; required are {list(REQUIRED_COLUMNS)}, "
            f"the file has {list(names)}"
        )
    if reserved := sorted(RESERVED_COLUMNS.intersection(names)):
        raise DataError(
            f"{path}: columns {reserved} have names that verl uses for values of its own; rename them"
        )
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{path}: columns {repeated} occur more than once; keep one of each")


def _plain_columns(
    fields: Iterable[pa.Field], parents: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each column that is no struct, and each field of one that is: dotted name and keys to get there."""
    for field in fields:
        keys = (*parents, field.name)
        if pa.types.is_struct(field.type):
            yield from _plain_columns(field.type, keys)
        else:
            yield ".".join(keys), keys


def _read_value(row: dict[str, Any], keys: Sequence[str], at: str) -> Any:
    value: Any = row
    for key in keys:
        value = None if value is None else value[key]
    # Not equal to itself: NaN, which pandas writes for a missing number.
    if not isinstance(value, str | int | float) or value != value:
        raise DataError(
            f"{at}, column {'.'.join(keys)!r}: expected a text, a number or a boolean, got {_shown(value)}"
        )
    return value


def _to_instance(row: dict[str, Any], at: str) -> Instance:
    steps = row["steps"]
    if not isinstance(steps, list):
        raise DataError(f"{at}, column 'steps': expected a list of texts, got {_shown(steps)}")
    for number, step in enumerate(steps):
        _check_text(
            step, f"{at}, column 'steps', step {number}", allowed="a text that is not blank; drop blank steps"
        )
    for name in ("instance_id", "data_source", "question", "answer"):
        allowed = "a text that is not blank" + ("; write numbers as text" if name == "answer" else "")
        _check_text(row[name], f"{at}, column {name!r}", allowed=allowed)
    level = row.pop("level", 0)
    if not isinstance(level, int) or isinstance(level, bool) or level < 0:
        raise DataError(f"{at}, column 'level': expected an integer >= 0 (0 = unknown), got {_shown(level)}")
    return Instance(**row | {"steps": tuple(steps), "level": level})


def _check_text(value: Any, at: str, *, allowed: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{at}: expected {allowed}; got {_shown(value)}")


def _check_unique_ids(instances: Sequence[Instance], path: Path) -> None:
    first_row: dict[str, int] = {}
    for number, instance in enumerate(instances):
        earlier = first_row.setdefault(instance.instance_id, number)
        if earlier != number:
            raise DataError(
                f"{path}: row {number} (counted from 0), column 'instance_id': "
                f"{_shown(instance.instance_id)} already stands in row {earlier}; ids must be unique, "
                "the hint controller remembers problems by them"
            )


def _shown(value: Any) -> str:
    return "nothing (null)" if value is None else f"{reprlib.repr(value)} ({type(value).__name__})"
