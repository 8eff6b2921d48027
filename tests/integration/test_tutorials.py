"""The commands of docs/tutorials/, one page after the other, in a folder beside scripts/, with a step or two
instead of many and an existing base model.

101, 105 and 106 train, on a part of the page's rollouts; in 102 to 104 the run is only checked, as before Ray
starts. ``SEELE_TUTORIALS=all`` trains in these, too, on all of the rollouts.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {page.stem[:3]: page for page in (ROOT / "docs" / "tutorials").glob("1*.md")}
SHORT = {"SEEDS": "0", "TOKENS": "1", "PROBLEMS": "10"}
"""Variables of the commands."""
FEW = "data.val_max_samples=32 data.train_batch_size=8 seele.hints.rollouts_per_prompt=8"
"""Overrides of a run."""
ALL = os.environ.get("SEELE_TUTORIALS") == "all"
CHECK = """
import sys
from seele_verl.checks.preflight import check_run
from seele_verl.train import compose
overrides = sys.argv[1:]
check_run(compose(overrides), overrides)
"""


@pytest.fixture
def follow(tmp_path, base_model, python):
    """Run a page's commands; return their folder and output."""

    def run(number: str, *, trains: bool = True, steps: int = 1) -> tuple[Path, str]:
        commands = re.findall(r"^```bash\n(.*?)^```$", PAGES[number].read_text(), re.M | re.S)
        folder, programs = tmp_path / "tutorial", tmp_path / "bin"
        folder.mkdir()
        programs.mkdir()
        (tmp_path / "scripts").symlink_to(ROOT / "scripts")
        (folder / "models").mkdir()
        (folder / "models" / "chains").symlink_to(base_model)
        (programs / "check.py").write_text(CHECK)
        # The libraries that a run needs are imported already, and the model exists.
        lines = ['#!/bin/sh\n[ "$1 $2" != "model base" ] || exit 0\n']
        if trains and not ALL:
            lines += f'[ "$1" != train ] || set -- "$@" {FEW}\n'
        elif not ALL:
            lines += f'[ "$1" != train ] || {{ shift; exec {python} {programs}/check.py "$@"; }}\n'
            commands = [re.sub(r"^.* run/metrics.jsonl .*\n", "", each, flags=re.M) for each in commands]
        lines += f'exec {python} -m seele.cli.main "$@"\n'
        scripts = {"seele": "".join(lines)}
        scripts["python"] = f'#!/bin/sh\n[ "$1" != -m ] || exec {python} "$@"\nexec {sys.executable} "$@"\n'
        for name, text in scripts.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        script = "set -euo pipefail\n" + "\n".join(commands)
        ended = subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            env=os.environ | SHORT | {"PATH": path, "STEPS": str(steps)},
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
        return folder, ended.stdout + ended.stderr

    return run


def steps_of(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_101_trains_reports_and_exports(follow):
    folder, said = follow("101")
    assert {"rollouts.html", "index.html"} <= {file.name for file in (folder / "run/report").iterdir()}
    assert (folder / "trained/model.safetensors").exists() and "step    1/1" in said


def test_102_prepares_and_trains_on_own_rows(follow):
    folder, _ = follow("102", trains=False)
    assert json.loads((folder / "mine/manifest.json").read_text())["splits"].keys() == {"train", "heldout"}
    assert "| revealed steps |" in (folder / "curve/hint_curve.md").read_text()
    assert not ALL or len(steps_of(folder / "run")) == 2


def test_103_grades_single_answers_and_trains(follow):
    folder, said = follow("103", trains=False)
    graded = [json.loads(line) for line in (folder / "graded.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in graded] == [1.0, 0.25, 0.0]
    assert "broken.py" in said and (not ALL or '"reward/right_steps' in said)


def test_104_simulates_and_trains(follow):
    folder, said = follow("104", trains=False)
    assert "stairs.py:Stairs:stride=0.1" in said
    assert not ALL or len(steps_of(folder / "run")) == 2


def test_105_makes_three_broken_runs(follow):
    folder, _ = follow("105", steps=2)
    first, second, third = (steps_of(folder / "runs" / run)[-1] for run in ("first", "second", "third"))
    assert first["rollout/truncated_share"] > 0.9 > third["rollout/truncated_share"]
    assert second["accuracy/mean"] < 0.1 and third["val/accuracy/chains/heldout"] > 0.3


def test_106_compares(follow):
    folder, _ = follow("106")
    assert "| tokens generated | seele |" in (folder / "comparison/comparison.md").read_text()


def test_107_plans(follow):
    _, said = follow("107")
    assert "seele.save_every_minutes=30 method=seele" in said and "for rounds" in said
