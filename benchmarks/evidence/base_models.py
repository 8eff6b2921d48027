"""Base models, packed into one parquet file each: base_models/NAME.parquet, one row per file of the model.

The same recipe makes a different model on another CPU, so the weights themselves are kept. A row holds the
file's name and bytes. For a safetensors file in single precision, the bytes are those of its header, and the
weights are in a column of their own, where their bytes compress by 16 %.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from archive import compressed

from seele.data.storage.files import write_atomically
from seele.errors import DataError

FOLDER = Path(__file__).parent / "base_models"


def packed_model(name: str) -> Path:
    """Path of the packed base model ``name``."""
    return FOLDER / f"{name}.parquet"


def pack_model(folder: Path, name: str) -> None:
    """Store the model in ``folder`` as the base model ``name``."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    parts = [_parted(path) for path in files]
    table = pa.table(
        {
            "file": pa.array([path.name for path in files], pa.string()),
            "content": pa.array([content for content, _ in parts], pa.binary()),
            "weights": pa.array([weights for _, weights in parts], pa.list_(pa.float32())),
        }
    )
    encodings = {"file": "PLAIN", "content": "PLAIN", "weights.list.element": "BYTE_STREAM_SPLIT"}
    write_atomically(packed_model(name), compressed(table, encodings))


def _parted(file: Path) -> tuple[bytes, Any]:
    """The bytes before the weights, and the weights, (N,) in single precision; N is 0 in any other file."""
    content = file.read_bytes()
    is_weights = file.suffix == ".safetensors"
    num_bytes = 8 + int.from_bytes(content[:8], "little") if is_weights else len(content)
    return content[:num_bytes], np.frombuffer(content[num_bytes:], "<f4")


def unpack_model(name: str, folder: Path) -> None:
    """Unpack the base model ``name`` into ``folder``, unless it is already there.

    Raises:
        DataError: If ``folder`` holds something else.
    """
    table = pq.read_table(packed_model(name))
    contents = {
        table["file"][row].as_py(): table["content"][row].as_py()
        + table["weights"][row].values.to_numpy().astype("<f4").tobytes()
        for row in range(table.num_rows)
    }
    if folder.exists():
        if {path.name: path.read_bytes() for path in folder.iterdir()} == contents:
            return
        raise DataError(f"{folder}: holds something other than the base model {name}; move it away")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
        unfinished = Path(scratch) / "model"
        unfinished.mkdir()
        for file, content in contents.items():
            (unfinished / file).write_bytes(content)
        unfinished.rename(folder)
