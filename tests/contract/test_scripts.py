"""Scripts, and the files of continuous integration that name them."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.scripts import named, run_script

# --- Every script passes shellcheck, and ``DRY_RUN=1`` prints its commands and changes nothing


ROOT = Path(__file__).parents[2]
SCRIPTS = sorted([*(ROOT / "scripts").glob("*.sh"), *(ROOT / "scripts" / "recipes").glob("*.sh")])
ARGUMENTS = {"train_baseline.sh": ("grpo",), "train_recipe.sh": ("seele_qwen2.5-7b",)}
"""Arguments of the scripts that require them."""
SHELL_FILES = [
    *SCRIPTS,
    *sorted((ROOT / "scripts" / "lib").glob("*.sh")),
    *sorted((ROOT / "scripts" / "cluster").glob("*.s*")),
    ROOT / ".ci" / "run",
]


@pytest.mark.parametrize("path", SHELL_FILES, ids=named)
def test_shellcheck_finds_nothing(path: Path) -> None:
    shellcheck = Path(sys.executable).parent / "shellcheck"
    result = subprocess.run(
        [shellcheck, "--external-sources", "--source-path=SCRIPTDIR", path], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_script_says_what_it_needs_and_writes(path: Path) -> None:
    header = path.read_text().splitlines()[:15]
    assert header[0] == "#!/usr/bin/env bash"
    assert any(line.startswith("#   needs  ") for line in header), "the header names what the script needs"
    assert any(line.startswith("#   writes ") for line in header), "the header names what the script writes"
    assert os.access(path, os.X_OK), "the script is executable"


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_dry_run_prints_the_commands_and_runs_none(path: Path, tmp_path: Path) -> None:
    result = run_script(path, *ARGUMENTS.get(path.name, ()), OUT=str(tmp_path / "out"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "+ " in result.stdout or "up to date" in result.stdout
    assert not (tmp_path / "out").exists()


METHODS = sorted(path.stem for path in (ROOT / "verl" / "seele_verl" / "config" / "method").glob("*.yaml"))


@pytest.mark.parametrize("arguments", [(), ("",), ("remax",), ("grpo luffy",), ("seele.seed=1",)], ids=repr)
def test_a_baseline_that_does_not_exist_is_named_with_those_that_do(arguments: tuple[str, ...]) -> None:
    result = run_script(ROOT / "scripts" / "train_baseline.sh", *arguments)
    assert result.returncode == 2
    assert f"unknown method '{''.join(arguments)}'" in result.stderr
    assert result.stderr.rstrip().endswith(" ".join(METHODS))
    assert not result.stdout


def test_a_group_takes_the_place_of_what_a_script_would_set_in_it() -> None:
    script = ROOT / "scripts" / "train_qwen2.5-7b.sh"
    model, train, valid = "actor_rollout_ref.model.path=", "data.train_files=", "data.val_files="

    def printed(*arguments: str, **variables: str) -> list[str]:
        result = run_script(script, *arguments, **variables)
        assert result.returncode == 0, result.stderr
        return [key for key in (model, train, valid) if f" {key}" in result.stdout]

    assert printed() == printed(TRAIN="", VALID="") == [model, train, valid]
    assert printed("model=qwen3_4b") == [train, valid]
    assert "=\\'runs/grpo-qwen3_4b\\'" in run_script(script, "model=qwen3_4b", METHOD="grpo").stdout
    assert printed("data=math") == [model]
    assert printed("model=tiny", "data=math", MODEL="m", TRAIN="t.parquet") == [model, train]
    for argument, advice in (("method=grpo", "set METHOD=grpo"), ("recipe=a", "train_recipe.sh a")):
        result = run_script(script, argument)
        assert result.returncode == 2 and f"{argument}: " in result.stderr and advice in result.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without ``.venv``, with the files that set-up reads."""
    root = tmp_path.resolve() / "a checkout"
    shutil.copytree(ROOT / "scripts", root / "scripts")
    for path in (ROOT / "setup.py", *ROOT.glob("requirements*.txt")):
        shutil.copy(path, root)
    return root


SETUP = ROOT / "scripts" / "setup.sh"


def test_setup_of_a_cpu_keeps_the_cuda_builds_out(checkout: Path) -> None:
    result = run_script(SETUP, "cpu", root=checkout, PYTHON=sys.executable, PIP_FIND_LINKS="")
    assert result.returncode == 0, result.stderr
    install = next(line for line in result.stdout.splitlines() if "requirements-cpu.txt" in line)
    assert "--torch-backend cpu" in install
    assert "--overrides scripts/locks/cpu-overrides.txt" in install
    assert not (checkout / ".venv").exists()


def test_setup_takes_torch_from_find_links_where_they_are_set(checkout: Path) -> None:
    result = run_script(SETUP, "cpu", root=checkout, PYTHON=sys.executable, PIP_FIND_LINKS="wheels")
    assert "--torch-backend" not in result.stdout
    assert "--overrides" in result.stdout


def test_setup_of_a_gpu_overrides_nothing_and_compiles_nothing(checkout: Path) -> None:
    result = run_script(SETUP, "gpu", root=checkout, PYTHON=sys.executable, PIP_FIND_LINKS="")
    install = next(line for line in result.stdout.splitlines() if "requirements.txt" in line)
    assert "--overrides" not in install
    assert "--constraints scripts/locks/gpu.txt" in install
    assert "flash-attn" not in result.stdout


def test_setup_makes_the_parity_stack_beside_the_other(checkout: Path) -> None:
    result = run_script(SETUP, "parity", root=checkout, PYTHON=sys.executable, PIP_FIND_LINKS="")
    assert result.returncode == 0, result.stderr
    install = next(line for line in result.stdout.splitlines() if "requirements-parity.txt" in line)
    assert "--python .venv-parity/bin/python" in install
    assert "--constraints scripts/locks/parity.txt --torch-backend cpu" in install
    assert "--overrides scripts/locks/parity-overrides.txt" in install
    assert "-m venv --clear .venv-parity" in result.stdout


def test_tests_of_the_parity_stack_run_in_its_environment() -> None:
    script = ROOT / "scripts" / "test.sh"
    result = run_script(script, "--stack", "parity", "tests/unit")
    assert ".venv-parity" in result.stdout
    assert result.stdout.splitlines()[-1] == "+ python -m pytest tests/unit"
    for arguments in (("--stack",), ("--stack", "cpu")):
        result = run_script(script, *arguments)
        assert result.returncode == 2
        assert "allowed is parity" in result.stderr


@pytest.mark.parametrize(("fails", "returncode"), [("nothing", 0), ("tests/unit", 1)])
def test_all_tests_run_and_what_fails_fails_the_script(checkout: Path, fails: str, returncode: int) -> None:
    pretend_environment(checkout, mark=".seele-cpu", content="")
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *{fails}*) exit 1 ;; esac\n')
    (checkout / "scripts" / "setup.sh").write_text("")
    result = run_script(ROOT / "scripts" / "test.sh", root=checkout, DRY_RUN="")
    commands = [line for line in result.stdout.splitlines() if line.startswith("+ ")]
    asked = [word for line in commands for word in line.split() if word.startswith("tests/")]
    assert sorted(asked) == sorted({f"tests/{path.parent.name}" for path in ROOT.glob("tests/*/test_*.py")})
    assert result.returncode == returncode


def test_setup_refuses_an_unknown_stack(checkout: Path) -> None:
    result = run_script(SETUP, "tpu", root=checkout)
    assert result.returncode == 2
    assert "'tpu'; allowed are cpu, gpu and parity" in result.stderr


def test_setup_names_the_python_it_needs_before_anything_is_made(checkout: Path) -> None:
    # DRY_RUN is empty, so a late refusal would leave a .venv.
    result = run_script(SETUP, "cpu", root=checkout, PYTHON="/nowhere/python3.9", DRY_RUN="")
    assert result.returncode == 1
    assert "(3, 11)" in result.stderr
    assert "/nowhere/python3.9: not found" in result.stderr
    assert not (checkout / ".venv").exists()


def pretend_environment(root: Path, *, mark: str, content: str) -> None:
    """Make a ``.venv`` whose Python is this one, with one of set-up's marks in it."""
    (root / ".venv" / "bin").mkdir(parents=True)
    python = root / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (root / ".venv" / "pyvenv.cfg").touch()
    (root / ".venv" / mark).write_text(content)


def test_setup_that_was_killed_is_not_trusted(checkout: Path) -> None:
    pretend_environment(checkout, mark=".seele-unfinished", content="")
    result = run_script(SETUP, "cpu", root=checkout, PYTHON=sys.executable)
    assert "was left unfinished and is rebuilt" in result.stdout
    assert "-m venv --clear .venv" in result.stdout


@pytest.mark.parametrize("mark", [".seele-gpu", ".seele-cpu"], ids=["another stack", "another folder"])
def test_environment_made_for_something_else_is_not_built_upon(checkout: Path, mark: str) -> None:
    pretend_environment(checkout, mark=mark, content="fingerprint\n/somewhere/else\n")
    result = run_script(SETUP, "cpu", root=checkout, PYTHON=sys.executable)
    assert "was made for another stack or another folder" in result.stdout


def test_setup_does_not_empty_the_environment_that_a_link_points_to(checkout: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    pretend_environment(theirs, mark=".seele-cpu", content="fingerprint\n/somewhere/else\n")
    (checkout / ".venv").symlink_to(theirs / ".venv")
    result = run_script(SETUP, "cpu", root=checkout, PYTHON=sys.executable, DRY_RUN="")
    assert result.returncode == 1
    assert f".venv is a link to {theirs / '.venv'}, which was made for another stack" in result.stderr
    assert (theirs / ".venv" / "bin" / "python").exists()


def test_changed_requirements_update_the_environment_that_is_there(checkout: Path) -> None:
    pretend_environment(checkout, mark=".seele-cpu", content=f"old fingerprint\n{checkout}\n")
    result = run_script(SETUP, root=checkout, PYTHON=sys.executable)
    assert "requirements-cpu.txt" in result.stdout
    assert "-m venv" not in result.stdout


@pytest.mark.skipif(not list(ROOT.glob(".venv/.seele-*")), reason=".venv was not made by scripts/setup.sh")
def test_setup_does_nothing_when_nothing_changed() -> None:
    result = run_script(SETUP, DRY_RUN="")
    assert result.stdout.startswith("setup: .venv is up to date")
    assert result.stdout.count("\n") == 1


def toolkit(folder: Path, release: str) -> Path:
    """Make a CUDA toolkit whose nvcc only prints its version."""
    nvcc = folder / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f'#!/bin/sh\necho "Cuda compilation tools, release {release}, V{release}.88"\n')
    nvcc.chmod(0o755)
    return folder


def test_flash_attn_is_compiled_on_demand(checkout: Path, tmp_path: Path) -> None:
    cuda = toolkit(tmp_path / "cuda", "13.0")
    settings = {
        "PYTHON": sys.executable,
        "PIP_FIND_LINKS": "",
        "FLASH_ATTN": "source",
        "CUDA_HOME": str(cuda),
    }
    result = run_script(SETUP, "gpu", root=checkout, **settings)
    assert result.returncode == 0, result.stderr
    build = next(line for line in result.stdout.splitlines() if "requirements-flash-attn.txt" in line)
    assert "--no-build-isolation" in build


@pytest.mark.parametrize(("release", "said"), [("12.8", "is of CUDA 12"), (None, "is missing")])
def test_flash_attn_without_its_compiler_is_refused_before_anything_is_made(
    checkout: Path, tmp_path: Path, release: str | None, said: str
) -> None:
    cuda = toolkit(tmp_path / "cuda", release) if release else tmp_path / "nowhere"
    settings = {"PYTHON": sys.executable, "FLASH_ATTN": "source", "CUDA_HOME": str(cuda), "DRY_RUN": ""}
    result = run_script(SETUP, "gpu", root=checkout, **settings)
    assert result.returncode == 1
    assert "needs the nvcc of CUDA 13" in result.stderr
    assert f"{cuda}/bin/nvcc {said}" in result.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(("stack", "wanted"), [("gpu", "wheel"), ("cpu", "source"), ("parity", "source")])
def test_flash_attn_is_refused_where_it_has_no_meaning(checkout: Path, stack: str, wanted: str) -> None:
    result = run_script(SETUP, stack, root=checkout, FLASH_ATTN=wanted)
    assert result.returncode == 2
    assert "allowed is source, with the gpu stack" in result.stderr


def test_a_wheel_of_flash_attn_is_taken_where_it_is(checkout: Path) -> None:
    result = run_script(SETUP, "gpu", root=checkout, PYTHON=sys.executable, PIP_FIND_LINKS="wheels")
    (install,) = (line for line in result.stdout.splitlines() if "flash-attn==" in line)
    assert "--no-index --only-binary flash-attn" in install


EVAL = ROOT / "scripts" / "eval.sh"


def commands(**environment: str) -> list[str]:
    """Return the commands that scripts/eval.sh would run."""
    result = run_script(EVAL, "--seed", "3", **{"OUT": "", **environment})
    assert result.returncode == 0, result.stderr
    return [line.removeprefix("+ python -m ") for line in result.stdout.splitlines()]


def test_eval_merges_the_last_step_and_evaluates_it() -> None:
    merge, evaluate = commands(CKPT_DIR="runs/a", LAST_STEP="40", BENCHMARKS="all", DATA_DIR="data")
    assert merge == "seele_verl.merge runs/a --step 40"
    assert (
        evaluate == "seele_eval.run --run runs/a --benchmarks all --data-dir data --out runs/a/eval --seed 3"
    )


def test_eval_takes_a_folder_or_a_name_on_the_hub_without_merging(tmp_path: Path) -> None:
    assert commands(MODEL=str(tmp_path)) == [
        f"seele_eval.run --model {tmp_path} --benchmarks all --out {tmp_path}/eval --seed 3"
    ]
    assert commands(MODEL="Qwen/Qwen2.5-1.5B", BENCHMARKS="gsm8k") == [
        "seele_eval.run --model Qwen/Qwen2.5-1.5B --benchmarks gsm8k "
        "--out runs/Qwen--Qwen2.5-1.5B/eval --seed 3"
    ]
    # The next merge or export deletes these.
    (tmp_path / "resolved.yaml").touch()
    for name in ("merged", "export"):
        (tmp_path / name).mkdir()
        assert f"--out {tmp_path}/{name}_eval " in commands(MODEL=f"{tmp_path}/{name}/")[0]
    refused = run_script(EVAL, MODEL=str(tmp_path), STEPS="all")
    assert refused.returncode == 2 and "STEPS=all: these are checkpoints of CKPT_DIR, but" in refused.stderr


@pytest.mark.parametrize("script", ["eval.sh", "report.sh"])
def test_the_newest_run_is_the_default_and_not_a_newer_folder(tmp_path: Path, script: str) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")

    def command() -> str:
        return run_script(ROOT / "scripts" / script, root=tmp_path, OUT="", CKPT_DIR="").stdout

    assert "runs/seele/" in command()
    (tmp_path / "runs" / "a run").mkdir(parents=True)
    (tmp_path / "runs" / "a run" / "resolved.yaml").touch()
    (tmp_path / "runs" / "Qwen--Qwen2.5-1.5B" / "eval").mkdir(parents=True)
    (tmp_path / "runs" / "notes.txt").touch()
    assert "runs/a\\ run" in command()
    (tmp_path / "runs" / "z").mkdir()
    (tmp_path / "runs" / "z" / "resolved.yaml").touch()
    for order in (("a run", "z"), ("z", "a run")):
        for seconds, name in enumerate(order, start=1):
            os.utime(tmp_path / "runs" / name / "resolved.yaml", (seconds, seconds))
        newest = order[1].replace(" ", "\\ ")
        assert f"runs/{newest}" in command()


def test_eval_of_another_model_leaves_the_runs_own_evaluation_alone(tmp_path: Path) -> None:
    assert commands(MODEL=str(tmp_path), CKPT_DIR="runs/a") == [
        f"seele_eval.run --model {tmp_path} --run runs/a --out {tmp_path}/eval --seed 3"
    ]


def test_eval_of_a_folder_takes_what_is_named_instead_of_all_benchmarks(tmp_path: Path) -> None:
    for chosen in ({"PROBLEMS": "a=b"}, {"CKPT_DIR": "runs/a"}):
        assert "--benchmarks" not in commands(MODEL=str(tmp_path), **chosen)[0]
    stdout = run_script(EVAL, "--problems", "a=b", MODEL=str(tmp_path)).stdout
    assert "--problems a=b" in stdout and "--benchmarks" not in stdout
    stdout = run_script(EVAL, "--benchmarks", "gsm8k", MODEL=str(tmp_path), DATA_DIR="data").stdout
    assert "--data-dir data" in stdout and "--benchmarks gsm8k" in stdout


def test_the_quickstart_goes_on_in_the_folder_that_an_override_names() -> None:
    result = run_script(ROOT / "scripts" / "quickstart.sh", "trainer.default_local_dir=/tmp/elsewhere")
    assert "CKPT_DIR=/tmp/elsewhere OUT=/tmp/elsewhere/eval" in result.stdout
    assert "seele report /tmp/elsewhere" in result.stdout and "CKPT_DIR=runs" not in result.stdout


PATH = "runs/it's ü, a=b (2)"


def hydra_values(command: str) -> dict[str, object]:
    """Return Hydra's values for the overrides of a printed command."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    typed = [word for word in shlex.split(command) if "=" in word]
    return {each.key_or_group: each.value() for each in OverridesParser.create().parse_overrides(typed)}


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").glob("train_*.sh")), ids=named)
def test_paths_may_have_any_characters(path: Path) -> None:
    pytest.importorskip("hydra", reason="the training stack is not installed")
    paths = {"OUT": PATH, "MODEL": "~/m", "TRAIN": "a b (1)/x=1,b/it's", "VALID": "true"}
    (command,) = run_script(path, *ARGUMENTS.get(path.name, ()), **paths).stdout.splitlines()
    values = hydra_values(command)
    assert values["trainer.default_local_dir"] == PATH
    assert values["actor_rollout_ref.model.path"] == "~/m"
    # Commas separate several files.
    assert values["data.train_files"] == ["a b (1)/x=1", "b/it's"]
    assert values["data.val_files"] == ["true"]


@pytest.mark.parametrize("arguments", [(), (r"trainer.default_local_dir='runs/it\'s ü, a=b (2)'",)])
def test_the_quickstart_takes_any_path_and_evaluates_its_own_run(arguments: tuple[str, ...]) -> None:
    pytest.importorskip("hydra", reason="the training stack is not installed")
    others = dict.fromkeys(("MODEL", "STEPS", "LAST_STEP", "BENCHMARKS", "PROBLEMS"), "others")
    folder = {} if arguments else {"OUT": PATH}
    lines = run_script(ROOT / "scripts" / "quickstart.sh", *arguments, **others, **folder).stdout.splitlines()
    train, evaluate, report = lines[-3:]
    assert hydra_values(train)["trainer.default_local_dir"] == PATH
    words = shlex.split(evaluate)
    assert f"CKPT_DIR={PATH}" in words and f"OUT={PATH}/eval" in words
    assert all(words[words.index(name) - 1] == "-u" for name in others)
    assert shlex.split(report)[-3:] == [PATH, "--out", f"{PATH}/report"]


def test_eval_of_several_steps_ends_with_their_curve() -> None:
    lines = commands(CKPT_DIR="runs/a", STEPS="20 40")
    assert [line.split()[0] for line in lines] == [
        *("seele_verl.merge", "seele_eval.run") * 2,
        "seele_eval.curve",
    ]
    assert "--step 40" in lines[2] and "--out runs/a/eval/step_40" in lines[3]
    assert lines[4] == "seele_eval.curve runs/a/eval"


# --- The files of the continuous-integration hosts run the same commands, and these exist


NOT_JOBS = {"default", "variables", "stages", "workflow", "include"}


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / name).read_text())


def github_jobs() -> dict[str, list[str]]:
    jobs = read(".github/workflows/ci.yml")["jobs"]
    return {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}


def gitlab_jobs() -> dict[str, list[str]]:
    return {name: job["script"] for name, job in read(".gitlab-ci.yml").items() if name not in NOT_JOBS}


def ci_commands() -> list[str]:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    return [line.removeprefix("exec ") for line in lines if "bash scripts/" in line]


def test_both_hosts_have_the_same_jobs():
    jobs = github_jobs()
    assert jobs == gitlab_jobs()
    assert set(jobs) == {"core", "docs", "lint", "suite"}


def test_the_jobs_are_those_of_the_readme_and_of_ci_run():
    jobs = github_jobs()
    assert ci_commands() == [*jobs["core"], *jobs["docs"], *jobs["suite"]]
    assert f"\n{jobs['suite'][0]} " in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    "commands", [github_jobs().values(), gitlab_jobs().values()], ids=["GitHub", "GitLab"]
)
def test_every_file_that_a_job_names_exists(commands):
    for command in (command for job in commands for command in job):
        words = shlex.split(command)
        assert words[0] == "bash"
        missing = [word for word in words[1:] if "/" in word and not (ROOT / word).exists()]
        assert not missing, command


def test_the_core_is_tested_on_every_python_that_it_supports():
    supported = re.search(r'python_requires=">=3\.(\d+),<3\.(\d+)"', (ROOT / "setup.py").read_text())
    assert supported is not None
    versions = [f"3.{minor}" for minor in range(int(supported[1]), int(supported[2]))]
    matrix = read(".github/workflows/ci.yml")["jobs"]["core"]["strategy"]["matrix"]
    assert matrix["python"] == versions
    assert read(".gitlab-ci.yml")["core"]["parallel"]["matrix"] == [{"PYTHON_VERSION": versions}]
