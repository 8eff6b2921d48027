"""Scripts as they run under ``DRY_RUN=1``, and the models that they train."""

import os
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
WINDOWS = {
    "Elliott/Qwen2.5-Math-7B-16k-think": 16384,
    "Qwen/Qwen2.5-1.5B": 131072,
    "Qwen/Qwen2.5-3B": 32768,
    "Qwen/Qwen2.5-7B": 131072,
    "Qwen/Qwen2.5-7B-Instruct": 32768,
    "Qwen/Qwen2.5-Math-1.5B": 4096,
    "Qwen/Qwen2.5-Math-7B": 4096,
    "RoadQAQ/Qwen2.5-Math-1.5B-16k-think": 16384,
    "meta-llama/Llama-3.2-3B": 131072,
    "mistralai/Mathstral-7B-v0.1": 32768,
}
"""`max_position_embeddings` of the models on the hub."""


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def run_script(
    script: Path, *arguments: str, root: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", root / named(script), *arguments],
        cwd=root,
        env={**os.environ, "DRY_RUN": "1", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def script_arguments(name: str, *arguments: str, **environment: str) -> list[str]:
    """Return the arguments that a script passes to the trainer."""
    result = run_script(ROOT / "scripts" / name, *arguments, **environment)
    assert result.returncode == 0, result.stderr
    (line,) = result.stdout.splitlines()
    words = shlex.split(line.removeprefix("+ "))
    assert words[:3] == ["python", "-m", "seele_verl.train"]
    return words[3:]
