"""Every example is short and runs from a copy outside the repository. Runs of tests/integration train with
them: test_lora.py with the controller and the loss, test_two_ranks.py with the data.
"""

import shlex
import shutil
from pathlib import Path

import pytest

from seele.cli.main import main
from seele.config import HintConfig, SeeleConfig
from seele.hints import build_controller, check_controller

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir())


def commands_of(name: str) -> list[list[str]]:
    """The commands of an example's README."""
    (block,) = (EXAMPLES / name / "README.md").read_text().split("```bash\n")[1:]
    lines = block.split("```")[0].replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """Work in a copy of an example."""

    def copy(name):
        shutil.copytree(EXAMPLES / name, folder := tmp_path / name)
        monkeypatch.chdir(folder)
        return folder

    return copy


def ours(folder):
    return [file for file in (EXAMPLES / folder).iterdir() if file.suffix in (".py", ".yaml")]


@pytest.mark.parametrize("name", FOLDERS)
def test_an_example_is_at_most_40_lines_and_its_readme_20(name):
    assert sum(len(file.read_text().splitlines()) for file in ours(name)) <= 40
    assert len((EXAMPLES / name / "README.md").read_text().splitlines()) <= 20


@pytest.mark.parametrize("name", FOLDERS)
def test_an_example_trains_with_seele_train(name):
    assert any(command[:2] == ["seele", "train"] for command in commands_of(name))


def test_the_controller_runs_in_the_simulator(copied, capsys):
    copied("own_controller")
    (command,) = [each for each in commands_of("own_controller") if each[1] == "simulate"]
    with pytest.raises(SystemExit) as ended:
        main([*command[1:], "--problems", "20"])
    assert not ended.value.code
    printed = capsys.readouterr().out
    assert all(
        f"| {name} |" in printed for name in ("stairs.py:Stairs", "stairs.py:Stairs:stride=0.1", "bayes")
    )


def test_the_controller_climbs_after_failures_and_passes_every_check(copied):
    copied("own_controller")
    name = "stairs.py:Stairs"
    check_controller(
        SeeleConfig(method="seele", hints=HintConfig(controller=name, settings={"stride": 0.25}))
    )
    controller, legal = build_controller(name, rounds=4, rollouts_per_round=8), (0.0, 0.2, 0.4, 0.6, 0.8)
    ratios = []
    for round_index, num_correct in enumerate((0, 0, 8, 8, 8, 8)):
        ratio = controller.next_hint_ratio("a", round_index=round_index, legal_ratios=legal)
        controller.observe("a", hint_ratio=ratio, num_correct=num_correct, num_rollouts=8)
        ratios.append(ratio)
    assert ratios == [0.4, 0.6, 0.8, 0.6, 0.4, 0.2]
    again = build_controller(name, rounds=4, rollouts_per_round=8)
    again.load_state_dict(controller.state_dict())
    assert again.next_hint_ratio("a", round_index=0, legal_ratios=legal) == 0.0
