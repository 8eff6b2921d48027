"""The files of the continuous-integration hosts run the same commands, and these exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
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
    assert set(jobs) == {"core", "lint", "suite"}


def test_the_jobs_are_those_of_the_readme_and_of_ci_run():
    jobs = github_jobs()
    assert ci_commands() == [*jobs["core"], *jobs["suite"]]
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
