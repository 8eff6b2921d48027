"""``seele doctor --gpu``: run ``python -m seele_verl.gpu_check`` and hand its findings on as they come."""

import json
import subprocess
import sys
from collections.abc import Iterator

from seele.cli.doctor.facts import Environment
from seele.cli.doctor.judge import Finding


def run_gpu_checks(environment: Environment) -> Iterator[Finding]:
    """One finding a check. Where torch sees no GPU nothing is started, and that is the only finding."""
    if not environment.cuda_available:
        yield Finding(
            what="checks on the GPUs",
            verdict="no",
            because=f"not started, for torch sees none: {environment.error or environment.cuda_error}",
            remedy="put right what is said above",
        )
        return
    command = [sys.executable, "-m", "seele_verl.gpu_check"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "stdout is a pipe"
        for line in process.stdout:
            yield Finding(**json.loads(line))
    if process.returncode:
        yield Finding(
            what="checks on the GPUs",
            verdict="no",
            because=f"they ended with exit status {process.returncode} before they were through",
            remedy="see the messages above",
        )
