"""Two checks of ``seele doctor --gpu`` on a CPU, through real vLLM and verl's weight transfer."""

import json

import pytest


@pytest.mark.parametrize(
    ("check", "found"),
    [
        ("bucket", "4 tensors arrived through shared memory to the bit"),
        ("engine_tp1_v1", "log-probabilities"),
    ],
)
def test_it_passes_on_a_cpu(check, found, python, finish, tmp_path):
    result = tmp_path / "result.json"
    command = [python, "-m", "seele_verl.gpu_check", "--only", check, "--device", "cpu"]
    finish([*command, "--result", str(result)])
    said = json.loads(result.read_text())
    assert said["verdict"] == "yes" and found in said["because"], said
