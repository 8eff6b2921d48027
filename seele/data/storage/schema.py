"""The parquet file of problems: one row per instance, checked when it is written and when it is read.

Our own columns come first and hold everything; ``prompt``, ``reward_model`` and ``extra_info`` repeat it in
the form that verl's data set expects, and are ignored here. Other columns are ignored, too, unless verl's
agent loop reserves their name. For where problems come from, see ``seele.data.sources``. The columns are
documented in ``docs/data.md``.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seele.data.storage.files import as_paths, how_to_make
from seele.data.storage.parquet import ParquetSink, set_column
from seele.data.storage.row_rules import UniqueIds, check_row, shown
from seele.errors import DataError
from seele.records import Instance, Milestone

SCHEMA_VERSION = 1
"""Version of the columns, raised when earlier files become unreadable."""

SCHEMA = pa.schema(
    [
        ("instance_id", pa.string()),
        ("data_source", pa.string()),
        ("question", pa.string()),
        ("steps", pa.list_(pa.string())),
        ("answer", pa.string()),
        ("level", pa.int64()),
        ("revealed_at", pa.int64()),
        (
            "milestones",
            pa.list_(
                pa.struct(
                    [("value", pa.string()), ("end", pa.int64()), ("equations", pa.list_(pa.string()))],
                )
            ),
        ),
        ("tiers", pa.list_(pa.string())),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        ("extra_info", pa.struct([("index", pa.int64()), ("split", pa.string())])),
    ]
)

REQUIRED_COLUMNS = ("instance_id", "data_source", "question", "steps", "answer")
OPTIONAL_COLUMNS = ("level", "revealed_at", "milestones", "tiers")
GUIDED_BY = "guided_by"
"""The column that ``seele data guide`` adds: the number of steps of the solution in the question."""

# verl 0.9.1 passes a row's columns to its agent loop as keyword arguments, along with these of its own ...
_ARGUMENTS = "sampling_params session_id trace trajectory"
# ... reads these as instructions ...
_INSTRUCTIONS = "__do_sample__ __rollout_n__ agent_name interaction_kwargs tools_kwargs"
# ... and lets the columns overwrite what the data set, the rollout or the trainer returned by these names.
_OUTPUTS = """
    __num_turns__ advantages attention_mask dummy_tensor entropy entropys global_steps input_ids loss_mask
    multi_modal_data multi_modal_inputs old_log_probs position_ids prompts raw_prompt ref_log_prob
    response_mask responses returns rm_scores rollout_log_probs token_level_rewards token_level_scores uid
    values
"""
RESERVED_COLUMNS = frozenset(f"{_ARGUMENTS} {_INSTRUCTIONS} {_OUTPUTS}".split())
"""Column names that a file of problems must not have."""


def content_id(data_source: str, question: str, steps: Sequence[str], answer: str) -> str:
    """Return the id of a problem, derived from its content: it does not depend on the file or the row order.

    The id is ``<data_source>-<16 hexadecimal digits>``, from SHA-256 over the parts. It depends on how the
    solution is cut, because a controller stores a problem's curve over its steps.
    """
    # The lengths precede the parts, so that different lists of parts give different texts.
    parts = (data_source, question, answer, *steps)
    digest = hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode())
    return f"{data_source}-{digest.hexdigest()[:16]}"


def write_problems(path: Path, instances: Iterable[Instance], *, split: str) -> None:
    """Write ``instances`` as one parquet file; with one pyarrow, the same instances give the same bytes.

    They are consumed one by one, so that a generator of a million needs little memory.

    Raises:
        DataError: If an instance breaks the rules of ``read_problems``; the message has its row. Nothing is
            written then.
    """
    with ParquetSink(path, SCHEMA) as sink:
        for _ in fill(sink, instances, split=split):
            pass
        sink.finish()
        sink.commit()


def rewrite_problems(
    source: Path,
    out: Path,
    instances: Sequence[tuple[int, Instance]],
    *,
    split: str,
    column: tuple[pa.Field, Sequence[Any]] | None = None,
) -> None:
    """Write instances that were made from rows of a file, with this file's further columns.

    Args:
        source: The file, as ``read_problems`` reads it.
        out: Path of the new file.
        instances: The row (counted from 0) that each instance was made from, and the instance.
        split: As in ``write_problems``.
        column: Another column, with a value for each instance; it replaces one of the same name.

    Raises:
        DataError: As in ``write_problems``.
    """
    file = _open(source)
    added = [] if column is None else [column[0]]
    values = repeat({}) if column is None else ({column[0].name: value} for value in column[1])
    known = {*SCHEMA.names, *(field.name for field in added)}
    further = [field for field in file.schema_arrow if field.name not in known]
    rows = file.read(columns=[field.name for field in further]).to_pylist()
    with ParquetSink(out, pa.schema([*SCHEMA, *further, *added])) as sink:
        others = (rows[row] | value for (row, _), value in zip(instances, values, strict=False))
        for _ in fill(sink, (each for _, each in instances), split=split, further=others):
            pass
        sink.finish()
        sink.commit()


def fill(
    sink: ParquetSink,
    instances: Iterable[Instance],
    *,
    split: str,
    further: Iterable[Mapping[str, Any]] = repeat({}),
) -> Iterator[Instance]:
    """Check each instance, append it as a row of ``SCHEMA``, and yield it. ``further`` has the values of
    other columns for each instance.

    Raises:
        DataError: As in ``write_problems``.
    """
    ids = UniqueIds(split)
    for index, (instance, others) in enumerate(zip(instances, further, strict=False)):
        at = f"{split}: row {index} (counted from 0)"
        row = _to_row(instance, index, split)
        check_row(row, at)
        ids.check(instance.instance_id, index)
        sink.add(row | dict(others), num_chars=2 * len(instance.question) + sum(map(len, instance.steps)))
        yield instance


def read_problems(path: Path) -> list[Instance]:
    """Read and check a file of problems.

    The required columns are ``instance_id`` (not blank, unique in the file), ``data_source`` (not blank),
    ``question`` (not blank), ``steps`` (a list of texts, none of them blank; the list may be empty) and
    ``answer`` (not blank). ``level`` (integer >= 0), ``revealed_at`` (integer from 0 to the number of steps,
    or null), ``milestones`` (a list of the fields of ``Milestone``, or null) and ``tiers`` (a list of texts,
    none of them blank, or null) may be absent. Instances with fewer than two steps are kept: see
    ``count_unhintable``.

    Raises:
        DataError: If the file is missing, unreadable or has no rows, a column is missing or reserved, or a
            row breaks the rules above; the message has file, row (counted from 0), column, the value and what
            is allowed.
    """
    return list(iterate_problems(path))


def read_problem_files(files: str | Sequence[str], max_samples: int = -1) -> list[tuple[Instance, Path]]:
    """Return the problems of one or several files, in order, each with its file, as a run reads
    ``data.train_files`` or ``data.val_files``. ``max_samples`` keeps the first problems over all files, -1
    keeps all problems.

    Raises:
        DataError: As in ``read_problems``.
    """
    problems = [(instance, path) for path in as_paths(files) for instance in read_problems(path)]
    return problems if max_samples < 0 else problems[:max_samples]


def iterate_problems(path: Path) -> Iterator[Instance]:
    """Yield the problems of ``read_problems`` one by one, raising its errors as they are found."""
    file = _open(path)
    if not file.metadata.num_rows:
        raise DataError(f"{path}: the file has no rows; prepare it again with `seele data prepare`")
    wanted = [name for name in (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS) if name in file.schema_arrow.names]
    ids = UniqueIds(str(path))
    for number, row in enumerate(_rows(file, wanted, path)):
        at = f"{path}: row {number} (counted from 0)"
        check_row(row, at)
        ids.check(row["instance_id"], number)
        yield _to_instance(row)


def read_solutions(paths: Iterable[Path], instance_ids: Collection[str]) -> dict[str, list[str]]:
    """Return the steps of these problems' worked solutions by id, read without the rest of the files.

    Files that are missing or unreadable, and problems that are in none of them, are left out.
    """
    steps: dict[str, list[str]] = {}
    for path in paths:
        try:
            found = pq.read_table(
                path,
                columns=["instance_id", "steps"],
                filters=[("instance_id", "in", list(instance_ids))],
            )
        except (pa.ArrowException, OSError):
            continue
        steps |= {row["instance_id"]: row["steps"] for row in found.to_pylist()}
    return steps


def write_milestones(path: Path, out: Path, milestones: Iterable[Sequence[Milestone]]) -> None:
    """Copy a file of problems with these milestones, one sequence per row; ``out`` may be ``path``."""
    set_column(path, out, SCHEMA.field("milestones"), map(_milestone_rows, milestones))


def write_tiers(path: Path, out: Path, tiers: Iterable[Sequence[str]]) -> None:
    """Copy a file of problems with these tiers, one sequence per row, null where it is empty."""
    set_column(path, out, SCHEMA.field("tiers"), (list(each) or None for each in tiers))


def read_columns(path: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the values of any columns, ours or not, row by row in the file's order.

    Args:
        path: A file of problems.
        names: Columns of texts, integers, floats or booleans; ``extra_info.split`` is the field ``split`` of
            the structured column ``extra_info``.

    Raises:
        DataError: As in ``read_problems`` for the file and its columns, or if a column is unknown, or a value
            is missing or of another type.
    """
    file = _open(path)
    keys_of_column = dict(_plain_columns(file.schema_arrow))
    if unknown := [name for name in names if name not in keys_of_column]:
        raise DataError(f"{path}: no columns {unknown}; the file has {list(keys_of_column)}")
    rows = _rows(file, [keys_of_column[name][0] for name in names], path)
    return [
        {
            name: _read_value(row, keys_of_column[name], f"{path}: row {number} (counted from 0)")
            for name in names
        }
        for number, row in enumerate(rows)
    ]


def count_unhintable(instances: Iterable[Instance]) -> int:
    """Return the number of instances that can have no hint: fewer than two steps, and no tiers."""
    return sum(instance.num_hint_units < 2 for instance in instances)


def _to_instance(row: dict[str, Any]) -> Instance:
    milestones = row.get("milestones")
    if milestones is not None:
        milestones = tuple(Milestone(m["value"], m["end"], tuple(m["equations"])) for m in milestones)
    lists = {name: tuple(row.get(name) or ()) for name in ("steps", "tiers")}
    return Instance(**row | lists | {"milestones": milestones})


def _milestone_rows(milestones: Sequence[Milestone] | None) -> list[dict[str, Any]] | None:
    if milestones is None:
        return None
    return [{"value": m.value, "end": m.end, "equations": list(m.equations)} for m in milestones]


def _to_row(instance: Instance, index: int, split: str) -> dict[str, Any]:
    return {
        "instance_id": instance.instance_id,
        "data_source": instance.data_source,
        "question": instance.question,
        "steps": list(instance.steps),
        "answer": instance.answer,
        "level": instance.level,
        "revealed_at": instance.revealed_at,
        "milestones": _milestone_rows(instance.milestones),
        "tiers": list(instance.tiers) or None,
        "prompt": [{"role": "user", "content": instance.question}],
        "reward_model": {"style": "rule", "ground_truth": instance.answer},
        "extra_info": {"index": index, "split": split},
    }


def _open(path: Path) -> pq.ParquetFile:
    if path.is_dir():
        raise DataError(f"{path}: is a folder; name a file in it, such as {path / 'train.parquet'}")
    if not path.is_file():
        raise DataError(f"{path}: no such file; {how_to_make(path)}, or check the path")
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        if path.suffix in (".json", ".jsonl", ".csv"):
            kind = "CSV" if path.suffix == ".csv" else "JSON"
            raise DataError(
                f"{path}: {kind}, expected parquet; `seele data prepare {path} --out prepared` makes a "
                "parquet file"
            ) from error
        raise _unreadable(path, error) from error
    _check_columns(file.schema_arrow.names, path)
    return file


def _rows(file: pq.ParquetFile, columns: Sequence[str], path: Path) -> Iterator[dict[str, Any]]:
    """Yield rows with these columns; if there are none, yield an empty dict for each row."""
    if not columns:
        yield from ({} for _ in range(file.metadata.num_rows))
        return
    try:
        for batch in file.iter_batches(batch_size=1024, columns=list(dict.fromkeys(columns))):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: not a readable parquet file ({error}); prepare it again")


def _check_columns(names: Sequence[str], path: Path) -> None:
    if missing := [name for name in REQUIRED_COLUMNS if name not in names]:
        raise DataError(
            f"{path}: missing columns {missing}; required are {list(REQUIRED_COLUMNS)}, "
            f"the file has {list(names)}; `seele data prepare {path} --out prepared` writes a file with them"
        )
    if reserved := sorted(RESERVED_COLUMNS.intersection(names)):
        raise DataError(
            f"{path}: columns {reserved} have names that verl reserves for its own values; rename them"
        )
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{path}: columns {repeated} occur more than once; keep one of each")


def _plain_columns(
    fields: Iterable[pa.Field], parents: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each column that is not a struct, and each field of a struct: dotted name and path of keys."""
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
    # NaN, which pandas writes for a missing number, is not equal to itself.
    if not isinstance(value, str | int | float) or value != value:
        raise DataError(
            f"{at}, column {'.'.join(keys)!r}: expected a text, a number or a boolean, got {shown(value)}"
        )
    return value
