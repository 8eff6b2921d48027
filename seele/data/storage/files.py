"""Files that are either complete or absent, their checksums, and files with one JSON value per line.

The readers check the values; see ``seele.data.storage.schema`` for parquet. If a file of problems is absent,
this module names the commands that make it.
"""

import codecs
import contextlib
import fcntl
import glob
import hashlib
import json
import os
import reprlib
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seele.errors import ConfigError, DataError


def as_paths(files: str | Iterable[str]) -> list[Path]:
    """Return the files of a setting that takes one file or several, such as ``data.train_files``."""
    return [Path(file) for file in ([files] if isinstance(files, str) else files)]


class PartialFile:
    """A file that is written under a temporary name in the same folder and renamed when it is complete.

    Write the bytes to ``stream``, then call ``commit`` or ``discard``. A killed process never leaves a
    truncated ``path``, only a hidden ``.NAME.*.partial``; the next ``PartialFile`` of that name removes it.
    """

    def __init__(self, path: Path) -> None:
        """Create folders as needed, remove leftovers of killed processes, and open the stream. Where ``path``
        is a link, the file that it names is written.

        Raises:
            ConfigError: If ``path`` is a device or a pipe, which a file would replace.
            OSError: If the folder cannot be written.
        """
        _check_replaceable(path, str(path))
        path = path.resolve()
        self._new_folders = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear_leftovers(path)
        self.path = path
        while True:
            # Same folder, hence same file system: the final rename is atomic.
            self._partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
            self.stream = self._partial.open("xb")
            # The lock distinguishes a file that is being written from one whose writer is gone. A file system
            # without locks keeps its leftovers.
            with contextlib.suppress(OSError):
                fcntl.flock(self.stream, fcntl.LOCK_EX)
            # Before it was locked, another process may have taken it for a leftover.
            if self._partial.exists():
                break
            self.stream.close()

    def commit(self) -> None:
        """Move the file to ``path``, replacing any file there.

        Raises:
            OSError: If the disk is full; an existing file is then untouched.
        """
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self._partial.replace(self.path)
        self.stream.close()

    def discard(self) -> None:
        """Remove the file and the empty folders that were made for it. After ``commit`` this does nothing."""
        try:
            # On a full disk this fails.
            self.stream.close()
        finally:
            self._partial.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                for folder in self._new_folders:
                    folder.rmdir()


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path`` so that a partial file is never visible; folders are created as needed.

    Text is UTF-8 and its line endings are kept.

    Raises:
        OSError: If the folder cannot be written; an existing file is then untouched.
    """
    partial = PartialFile(path)
    try:
        partial.stream.write(content.encode() if isinstance(content, str) else content)
        partial.commit()
    finally:
        partial.discard()


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Write a manifest as ``write_atomically`` does. A file that it names may have bytes of another encoding
    in its name.
    """
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, text.encode(errors="backslashreplace"))


def _check_replaceable(path: Path, said: str) -> None:
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ConfigError(f"{said}: is a device or a pipe; name a file")


def as_readable_as_usual(folder: Path) -> None:
    """Give the folder's files the permissions of new files: safetensors lets only their owner read them."""
    os.umask(usual := os.umask(0o077))
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(file.stat().st_mode | (0o666 & ~usual))


def _clear_leftovers(path: Path) -> None:
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        # Gone or locked: another process is using it. NFS refuses to lock what is only read.
        with contextlib.suppress(OSError), leftover.open("r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leftover.unlink()


def check_output(file: Path, out: Path, *, option: str = "--out") -> None:
    """Refuse an output that would replace something else.

    Raises:
        ConfigError: If ``out`` is a folder or the file ``file`` itself.
    """
    if out.is_dir() or out.resolve() == file.resolve():
        raise ConfigError(f"{option} {out}: is a folder or {file}; name another file")


def manifest_beside(out: Path, file: Path) -> Path:
    """Return the path of the manifest of ``out``, which is made from ``file``.

    Raises:
        ConfigError: If ``file`` has the same one.
    """
    manifest = out.with_suffix(".manifest.json")
    if manifest.resolve() == file.with_suffix(".manifest.json").resolve():
        raise ConfigError(
            f"--out {out}: would have the manifest of {file}, as their names differ only in the ending; name "
            "another file"
        )
    return manifest


def nearest_existing(path: Path) -> Path:
    """Return ``path`` or, as long as nothing is there, the folder above."""
    return next(each for each in (path, *path.parents) if each.exists())


def try_to_write(folder: Path) -> None:
    """Raise ``OSError`` unless files can be written to a folder; nothing is left behind.

    Permission bits do not tell: root may write anywhere but in /proc or on a read-only disk.
    """
    with tempfile.TemporaryFile(dir=folder):
        pass


def check_writable(out: Path, *, option: str = "--out", is_folder: bool = False) -> None:
    """Refuse an output that cannot be written, before the work for it; nothing is left behind.

    Args:
        out: File to write, or folder to write in. Its missing folders can still be made.
        option: The option that names it, for the message.
        is_folder: True if ``out`` is a folder.

    Raises:
        ConfigError: If ``out`` is a folder instead of a file or the reverse, lies below a file, or the
            nearest folder that exists cannot be written.
    """
    try:
        if is_folder and out.exists() and not out.is_dir():
            raise ConfigError(f"{option} {out}: is a file; give a folder, or a path that does not exist")
        if not is_folder and out.is_dir():
            raise ConfigError(f"{option} {out}: is a folder; name a file, such as {out / 'NAME'}")
        if not is_folder:
            _check_replaceable(out, f"{option} {out}")
        there = nearest_existing(out if is_folder else out.parent)
        if not there.is_dir():
            raise ConfigError(f"{option} {out}: {there} is a file; give a path below a folder")
        try_to_write(there)
    except OSError as error:
        raise ConfigError(
            f"{option} {out}: cannot be written ({error.strerror}); give a path that you can write"
        ) from error


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of the file's bytes, 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def weight_files(model: Path) -> list[Path]:
    """Return the weight files of a Hugging Face folder, sorted by name: safetensors files, else ``.bin``."""
    return sorted(model.glob("*.safetensors")) or sorted(model.glob("*.bin"))


def distinct_weight_files(model: Path) -> list[Path]:
    """Return ``weight_files`` without Mistral's ``consolidated``, which hold the weights again."""
    return [file for file in weight_files(model) if not file.name.startswith("consolidated")]


# A vocabulary in other files counts only without tokenizer.json.
_SETTINGS = (
    "*config.json", "*.index.json", "*.jinja", "chat_template.json", "tokenizer.json", "vocab.json",
    "added_tokens.json", "special_tokens_map.json", "params.json", "tekken.json",
)  # fmt: skip
_VOCABULARY = ("*.model", "*.tiktoken", "merges.txt", "vocab.txt")


def settings_files(model: Path) -> list[Path]:
    """Return the files of a Hugging Face folder, besides its weights, on which prompts and responses depend:
    settings of the model and of its tokenizer.
    """
    patterns = _SETTINGS if (model / "tokenizer.json").is_file() else (*_SETTINGS, *_VOCABULARY)
    return sorted({file for pattern in patterns for file in model.glob(pattern)})


SAMPLED_BLOCKS, BLOCK_BYTES = 64, 1 << 16
"""What ``model_sha256`` reads of each weight file: 4 MiB, however large the model."""


def model_sha256(model: Path) -> str | None:
    """Return a digest that tells Hugging Face folders apart; None without weight files.

    It covers the settings of the model and of its tokenizer, the size of each weight file, and blocks of the
    file at equal distances, which are all of a small one. Training changes some weight in most blocks.
    """
    digest, weights = hashlib.sha256(), distinct_weight_files(model)
    for path in settings_files(model):
        digest.update(f"{path.name} {file_sha256(path)}\n".encode())
    for path in weights:
        size = path.stat().st_size
        digest.update(f"{size}\n".encode())
        with path.open("rb") as stream:
            for number in range(SAMPLED_BLOCKS):
                stream.seek(max(size - BLOCK_BYTES, 0) * number // (SAMPLED_BLOCKS - 1))
                digest.update(stream.read(BLOCK_BYTES))
    return digest.hexdigest() if weights else None


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the keys and values of a YAML file of settings.

    Raises:
        ConfigError: If the file is missing, is not YAML, or has no keys.
    """
    # Every command imports this module, but few read YAML; the import takes a sixth of `seele --help`.
    import yaml

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())  # one of YAML has lines
        raise ConfigError(f"{path}: cannot be read as YAML ({reason})") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected lines such as 'reference: rows.jsonl', got {reprlib.repr(raw)}")
    return raw


def not_utf8(at: str, error: UnicodeDecodeError) -> DataError:
    """Return the error of a file in another encoding; ``at`` is the file, or a place in it."""
    return DataError(f"{at}: expected text in UTF-8 ({error}); save the file as UTF-8")


def read_json_lines(path: Path) -> list[tuple[str, Any]]:
    """Return all items of ``iterate_json_lines``."""
    return list(iterate_json_lines(path))


def iterate_json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the value of each non-blank line, with its location for messages: ``FILE: line N``, from 1.

    Raises:
        DataError: If the file is missing or a folder, or a line is not JSON in UTF-8.
    """
    if path.is_dir():
        raise DataError(f"{path}: is a folder; name a file in it")
    if not path.is_file():
        raise DataError(f"{path}: no such file; check the path")
    # In bytes, a line ends in a line feed only: JSON allows U+2028 within a text.
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            at = f"{path}: line {number}"
            # Programs on Windows begin a file with a byte order mark.
            if (line := line.removeprefix(codecs.BOM_UTF8)).strip():
                try:
                    yield at, json.loads(line.decode())
                except UnicodeDecodeError as error:
                    raise not_utf8(at, error) from error
                except (ValueError, RecursionError) as error:
                    raise DataError(
                        f"{at}: expected a JSON value ({error}), got {reprlib.repr(line)}"
                    ) from error


_HARD = (
    "seele data prepare deepmath --out {folder}",
    "seele data filter {folder}/train.parquet --out {folder}/hard.parquet --model Qwen/Qwen2.5-7B --band 0:0",
)
# Files that need more than `seele data prepare NAME --out FOLDER`; {folder} is where they are expected.
_OTHER_COMMANDS = {
    ("deepmath", "hard.parquet"): _HARD,
    ("deepmath", "annotated.parquet"): (
        *_HARD,
        "seele data annotate {folder}/hard.parquet --out {folder}/annotated.parquet --endpoint URL "
        "--model NAME",
    ),
    ("gsm8k", "warm_start.parquet"): ("seele data prepare gsm8k --out {folder} --warm-start SHARE",),
    ("gsm8k", "tuning.parquet"): ("seele data prepare gsm8k --out {folder} --tuning SHARE",),
    ("openr1_48k_complement", "train.parquet"): (
        "seele data prepare hf://Elliott/Openr1-Math-48k-Complement --out {folder} "
        "--map question=prompt[-1].content --map answer=reward_model.ground_truth --grader math_verify",
    ),
}
_OPTIONS = {"openr1_46k": " --set heldout_share=0.01 --grader math_verify"}
"""LUFFY's problems have one split; unless some of it is held out, there is nothing to validate on. Its runs
grade with Math-Verify, so golds are checked with it.
"""


def how_to_make(path: Path) -> str:
    """Return the end of a message about a missing file of problems."""
    commands = commands_that_make(path) or ("seele data prepare",)
    return "make it with " + ", then ".join(f"`{command}`" for command in commands)


def commands_that_make(path: Path) -> tuple[str, ...]:
    """Return the commands to run one after the other; empty if the path is not a file of a source.

    Args:
        path: Where the problems are expected, such as ``data/prepared/countdown/train.parquet``: the folder
            has the name of a source.
    """
    # Imported here, because sources import the schema, which imports this file.
    from seele.data.sources.settings import GENERATED, find_settings, source_names

    name, folder = path.parent.name, path.parent.as_posix()
    if others := _OTHER_COMMANDS.get((name, path.name)):
        return tuple(command.format(folder=folder) for command in others)
    option = _OPTIONS.get(name, "")
    if name in source_names():
        settings = find_settings(name)
        is_divided = settings.heldout_share > 0 or "heldout_share" in option
        splits = {*settings.splits, *(["heldout"] if is_divided else [])}
    else:
        splits = {"train", "heldout", "harder"} if name in GENERATED else set()
    if path.suffix != ".parquet" or path.stem not in splits:
        return ()
    return (f"seele data prepare {name} --out {folder}{option}",)
