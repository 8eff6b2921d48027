"""What ``seele doctor --gpu`` makes the GPUs of this node do."""

import json
import subprocess
import sys

import pytest


@pytest.mark.timeout(1800)
def test_every_check_on_the_gpus_passes():
    command = [sys.executable, "-m", "seele.cli.main", "doctor", "--gpu", "--json", "--model", "tiny"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    failed = [check for check in said["gpu_checks"] if check["verdict"] != "yes"]
    # Two engines on one GPU, four where there are two.
    assert len(said["gpu_checks"]) >= 6 and not failed, failed
