"""Floats of half and single precision as they were written: 0.1, not 0.10000000149011612."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa


def shorten_floats(schema: pa.Schema) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return a function that replaces these floats in a row of ``schema`` by the shortest decimals that stand
    for them, also within structs and lists.
    """
    short = {field.name: field.type for field in schema if _is_short(field.type)}

    def shorten(row: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: _shorten(value, short[name]) if name in short else value for name, value in row.items()}

    return shorten if short else lambda row: row


def _is_short(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_is_short(field.type) for field in kind)
    if _is_list(kind):
        return _is_short(kind.value_type)
    return bool(pa.types.is_float16(kind) or pa.types.is_float32(kind))


def _is_list(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType)


def _shorten(value: Any, kind: pa.DataType) -> Any:
    if value is None or not _is_short(kind):
        return value
    if pa.types.is_struct(kind):
        return {field.name: _shorten(value[field.name], field.type) for field in kind}
    if _is_list(kind):
        return [_shorten(item, kind.value_type) for item in value]
    return float(str(np.float16(value) if pa.types.is_float16(kind) else np.float32(value)))
