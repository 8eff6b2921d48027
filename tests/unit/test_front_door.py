"""The commands of ``seele``, and the examples of parts of a user's own."""

import asyncio
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.controllers import next_hint, observe
from seele.cli import engines
from seele.cli.main import main
from seele.config import HintConfig, SeeleConfig
from seele.config.settings import RewardConfig
from seele.data.storage.schema import read_problems
from seele.errors import DependencyError
from seele.hints import build_controller, check_controller
from seele.plugins import find_part
from seele.records import Instance
from seele.reward.function_grader import open_grader
from seele_eval.own_benchmarks import find_benchmarks
from seele_eval.sources import load_benchmark

# --- ``seele train`` and its like: found by entry point, with their own arguments, status and errors


STAND_IN = """
import sys
def command():
    import mine
    print(sys.argv, mine.NAME)
    if "--raise" in sys.argv:
        raise OSError("mine")
    if "--interrupt" in sys.argv:
        raise KeyboardInterrupt
    return 3
"""


@pytest.fixture
def seele(tmp_path):
    """Runs ``seele`` in a folder with a module ``mine``, where ``seele train`` is a stand-in."""
    here, site = tmp_path / "here", tmp_path / "site"
    here.mkdir()
    (here / "mine.py").write_text("NAME = 'a module of the current folder'\n")
    # Nearer on the path than the installed distribution of that name, so its entry points count.
    described = site / "seele-0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: seele\nVersion: 0\n")
    (described / "entry_points.txt").write_text(
        f"[{engines.GROUP}]\ntrain = stand_in:command\neval = absent_library:command\n"
    )
    (site / "stand_in.py").write_text(STAND_IN)
    # As the console script: the first entry of the path is its own folder, and not the current one.
    start = f"import sys; sys.path[0] = {str(site)!r}; from seele.cli.main import main; main()"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", start, *arguments], cwd=here, capture_output=True, text=True
        )

    return run


def test_a_command_gets_its_arguments_untouched_and_finds_modules_of_the_current_folder(seele):
    arguments = ["a=1", "--cfg", "job", "--", "+b=[1, 2]", "--help"]
    ended = seele("train", *arguments)
    assert ended.returncode == 3, ended.stderr
    assert ended.stdout == f"{['seele train', *arguments]} a module of the current folder\n"


def test_a_commands_errors_are_its_own(seele):
    ended = seele("train", "--raise")
    assert ended.returncode == 1 and ended.stderr.startswith("Traceback")
    ended = seele("train", "--interrupt")
    assert (ended.returncode, ended.stderr) == (130, "interrupted\n")


def test_a_command_whose_library_is_missing_says_what_to_install(seele):
    ended = seele("eval")
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: seele eval: absent_library is missing. This command")
    assert "scripts/setup.sh" in ended.stderr and ended.stderr.count("\n") == 1


def test_a_command_of_a_package_that_is_not_installed_is_refused(monkeypatch):
    monkeypatch.setattr(engines, "GROUP", "seele.absent")
    with pytest.raises(DependencyError, match=r"^seele train: no installed package has the entry point"):
        engines.find_engine_command("train")


def test_help_lists_every_command_with_a_line(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    for name, text in engines.HELP.items():
        assert f" {name} " in listed and text.split(":")[0] in " ".join(listed.replace("│", "").split())


def test_the_version_is_that_of_the_installed_package(seele):
    ended = seele("--version")
    assert (ended.stdout, ended.returncode) == ("seele 0\n", 0)


# --- Every example is short and runs from a copy outside the repository. Runs of tests/integration train
# with them: test_lora.py with the controller and the loss, test_two_ranks.py with the data. The method is
# composed and checked, not trained


EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir())


def section_of(name: str) -> str:
    """What examples/README.md says of an example."""
    (section,) = (
        part for part in (EXAMPLES / "README.md").read_text().split("\n## ") if f"`{name}/`" in part
    )
    return section


def commands_of(name: str) -> list[list[str]]:
    """The commands of an example."""
    (block,) = section_of(name).split("```bash\n")[1:]
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
    return [file for file in (EXAMPLES / folder).rglob("*") if file.suffix in (".py", ".yaml")]


@pytest.mark.parametrize("name", FOLDERS)
def test_an_example_is_at_most_40_lines_and_its_section_20(name):
    assert sum(len(file.read_text().splitlines()) for file in ours(name)) <= 40
    assert len(section_of(name).splitlines()) <= 20


@pytest.mark.parametrize("name", FOLDERS)
def test_an_examples_settings_are_those_of_training(name, copied):
    train = pytest.importorskip("seele_verl.train", reason="verl is not installed")
    from seele_verl.checks.preflight import check_settings

    copied(name)
    (overrides,) = [command[2:] for command in commands_of(name) if command[:2] == ["seele", "train"]]
    own, folder = (overrides[2:], overrides[1]) if overrides[0] == "--config-dir" else (overrides, None)
    check_settings(train.compose(own, config_dir=folder), own)


def test_the_method_doubles_and_halves_hints_and_discounts_what_they_earn(copied):
    copied("own_method")
    name, legal = "halves.py:Halves", (0.0, 0.3, 0.6)
    check_controller(SeeleConfig(method="seele", hints=HintConfig(controller=name)))
    controller, ratios = build_controller(name, rounds=2, rollouts_per_round=4), []
    for num_correct in (0, 2, 4, 4, 4, 4, 0, 0):
        ratios.append(next_hint(controller, "a", round_index=0, legal_ratios=legal))
        observe(controller, "a", hint_ratio=ratios[-1], num_correct=num_correct, num_rollouts=4)
    assert ratios == [0.6, 0.6, 0.6, 0.6, 0.3, 0.0, 0.0, 0.3]
    discounted = find_part("halves.py:discounted", key="key", group="group", built_in={})
    group = SimpleNamespace(rewards_G=np.array([1.0, 1.0, 0.0]), hint_ratio_G=np.array([0.0, 0.5, 0.5]))
    assert discounted(group).tolist() == [0.5, 0.0, -0.5]


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
        ratio = next_hint(controller, "a", round_index=round_index, legal_ratios=legal)
        observe(controller, "a", hint_ratio=ratio, num_correct=num_correct, num_rollouts=8)
        ratios.append(ratio)
    assert ratios == [0.4, 0.6, 0.8, 0.6, 0.4, 0.2]
    again = build_controller(name, rounds=4, rollouts_per_round=8)
    again.load_state_dict(controller.state_dict())
    assert next_hint(again, "a", round_index=0, legal_ratios=legal) == 0.0


def test_the_datas_commands_make_problems_with_hints_and_a_benchmark_of_others(copied, capsys):
    folder = copied("own_data")
    commands = [command for command in commands_of("own_data") if command[:2] == ["seele", "data"]]
    assert [command[2] for command in commands] == ["prepare", "inspect"]
    for _, *arguments in commands:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert not ended.value.code
    train, heldout = (read_problems(folder / "prepared" / f"{name}.parquet") for name in ("train", "heldout"))
    assert len(train) + len(heldout) == 32 and len(train) > 2 * len(heldout) > 8
    assert train[0].question in capsys.readouterr().out
    for problem in (*train, *heldout):
        assert len(problem.steps) > 2 and problem.steps[-1].endswith(f"\\boxed{{{problem.answer}}}")
    [(name, benchmark)] = find_benchmarks(["benchmark.yaml"]).items()
    asked = {problem.question for problem in load_benchmark(name, benchmark, data_dir=None).problems}
    assert len(asked) == 8 and asked.isdisjoint(problem.question for problem in (*train, *heldout))


CHAIN = Instance(
    instance_id="chains-1",
    data_source="chains",
    question="7a+5b-3",
    steps=("7a+5=2\n", "2b-3=9\n", "\\boxed{9}"),
    answer="9",
)


def test_right_steps_before_the_first_mistake_earn_partial_credit():
    own = RewardConfig(grader=f"{EXAMPLES}/own_reward/reward.py:compute_score", kwargs={"most": 0.6})
    with open_grader(own) as grader:
        grader.try_on(CHAIN)
        grades = grader.grade_problems(
            [
                ("7a+5=2\n2b-3=9\n\\boxed{9}", CHAIN),
                ("7a+5=2\n2b-3=8\n\\boxed{8}", CHAIN),
                ("7a+5=3\n2b-3=9\n\\boxed{8}", CHAIN),
                ("no steps at all \\boxed{9}", CHAIN),
            ]
        )
        hinted = asyncio.run(grader.grade_rollout("2b-3=9\n\\boxed{8}", CHAIN, hint_steps=1))
    assert [grade.reward for grade in grades] == pytest.approx([1.0, 0.2, 0.0, 1.0])
    assert [grade.correct for grade in grades] == [True, False, False, True]
    assert [grade.extra["right_steps"] for grade in grades] == [3, 1, 0, 0]
    # One of the two steps behind the hint.
    assert (hinted.reward, hinted.extra["right_steps"]) == (pytest.approx(0.3), 1)


def test_a_judge_behind_a_server_scores_responses(server, monkeypatch):
    pytest.importorskip("openai", reason="the judge asks through the openai package, which vLLM brings")
    monkeypatch.setenv("JUDGE_URL", server.url)
    monkeypatch.setenv("JUDGE_MODEL", "stand-in")
    said = {
        "good": "Right. Score: 10",
        "half": "Score: 2? No. Score: 5",
        "odd": "I cannot say.",
        "more": "Score: 99",
    }
    server.answer = lambda prompt, seed: next(text for word, text in said.items() if word in prompt)
    judge = RewardConfig(
        grader=f"{EXAMPLES}/llm_judge/judge.py:compute_score",
        isolation="none",
        num_workers=4,
        time_limit_s=60.0,
        correct_from=0.5,
    )
    with open_grader(judge) as grader:
        grades = dict(zip(said, grader.grade_problems([(word, CHAIN) for word in said]), strict=True))
    assert {word: grade.reward for word, grade in grades.items()} == {
        "good": 1.0, "half": 0.5, "odd": 0.0, "more": 1.0
    }  # fmt: skip
    assert [grade.correct for grade in grades.values()] == [True, True, False, True]
    assert grades["odd"].extra == {"judged": 0.0, "verdict": "I cannot say."}
    asked = server.asked[0]
    assert asked["model"] == "stand-in" and asked["path"] == "/v1/chat/completions"
    assert "7a+5b-3" in asked["messages"][0]["content"] and "answer: 9" in asked["messages"][0]["content"]
    with open_grader(judge) as grader:
        grader.grade_problems([("good", CHAIN)], hint_steps=[1])
    assert "Response:\n7a+5=2\ngood\n" in server.asked[-1]["messages"][0]["content"]
    server.delay_s = 1.0
    late = replace(judge, time_limit_s=0.1)
    with open_grader(late) as grader:
        grade = grader.grade_problem("good", CHAIN)
    assert (grade.correct, grade.reason) == (False, "timeout")
