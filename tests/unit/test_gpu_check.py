"""How checks on the GPUs are run and judged, on fakes; what they check is tested in tests/contract."""

import json
import os
import sys

import pytest

torch = pytest.importorskip("torch")

from seele_verl.gpu_check import __main__ as checks  # noqa: E402
from seele_verl.gpu_check.agreement import CheckFailed, compare, distance  # noqa: E402


def test_distance_by_hand():
    assert distance(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.5, 2.0])).mean == 0.5
    assert distance(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.5, 2.0])).largest == 1.0
    assert distance(torch.tensor([float("nan")]), torch.tensor([0.0])).mean == float("inf")
    with pytest.raises(CheckFailed, match=r"\(2,\) and \(3,\)"):
        distance(torch.zeros(2), torch.zeros(3))


def test_no_more_than_rounding_agrees():
    single = torch.linspace(-1.0, 1.0, 1000)
    plain = single.bfloat16()
    assert "PyTorch itself" in compare("x", plain, plain, single)
    # Three times the mean error and six times the largest are still rounding, more is not.
    compare("x", single + 2.5 * (plain.float() - single), plain, single)
    with pytest.raises(CheckFailed, match=r"x: .* rounding explains only"):
        compare("x", single + 7.0 * (plain.float() - single), plain, single)


def test_a_single_wrong_number_is_found():
    single = torch.linspace(-1.0, 1.0, 1000)
    wrong = single.bfloat16().float()
    wrong[500] += 0.1
    with pytest.raises(CheckFailed):
        compare("x", wrong, single.bfloat16(), single)
    with pytest.raises(CheckFailed):
        compare("x", single * float("nan"), single.bfloat16(), single)


def test_gradients_are_measured_by_their_size():
    single = 1e-6 * torch.linspace(-1.0, 1.0, 1000)
    compare("gradient", 1.5 * single, single, single)  # far below the floor
    with pytest.raises(CheckFailed):
        compare("gradient", 1.5 * single, single, single, relative=True)


def python(script, result):
    return [sys.executable, "-c", f"import os, pathlib, subprocess, sys; result = {str(result)!r}; {script}"]


def test_a_check_that_ends_is_what_it_found(tmp_path):
    found = json.dumps({"verdict": "yes", "because": "it adds"})
    script = f"pathlib.Path(result).write_text({found!r})"
    command = python(script, tmp_path / "result.json")
    finding = checks.run_in_process("NCCL", command, limit_s=60, folder=tmp_path)
    assert finding == {"what": "NCCL", "verdict": "yes", "because": "it adds", "remedy": ""}


def test_a_check_that_crashes_is_one_no(tmp_path):
    command = python("print('before the end'); os.abort()", tmp_path / "result.json")
    finding = checks.run_in_process("NCCL", command, limit_s=60, folder=tmp_path)
    assert finding["verdict"] == "no" and "exit status -6 and no result" in finding["because"]
    assert finding["remedy"] == f"read {tmp_path}/log.txt"
    (tmp_path / "log.txt").stat()


def test_a_check_that_hangs_is_one_no_and_nothing_of_it_survives(tmp_path):
    """Its child holds the writing end of a pipe, which closes when the last of them has ended."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = f"subprocess.Popen(['sh', '-c', 'exec sleep 600 > {pipe}']); open({str(pipe)!r}).read()"
    command = python(script, tmp_path / "result.json")
    finding = checks.run_in_process("NCCL", command, limit_s=2, folder=tmp_path)
    assert finding["verdict"] == "no" and finding["because"] == "did not finish within 2 s"
    # A pipe without readers refuses a writer that will not wait, so the check itself has ended.
    with pytest.raises(OSError):
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # returns once the child, the only writer, has ended, too


class FakeModule:
    """A check that answers, or raises."""

    def __init__(self, answer):
        self.answer = answer

    def check(self, device, **settings):
        if isinstance(self.answer, Exception):
            raise self.answer
        return f"{self.answer} on {device} with {settings}"


@pytest.mark.parametrize(
    ("answer", "verdict", "because"),
    [
        ("it runs", "yes", "it runs on cpu with {'tensor_parallel': 2, 'runner': 1}"),
        (CheckFailed("0.5 off"), "no", "0.5 off"),
        (RuntimeError("CUDA error\nand a stack"), "no", "RuntimeError: CUDA error"),
        (NotImplementedError(), "no", "NotImplementedError: "),
    ],
)
def test_whatever_a_check_raises_is_its_finding(answer, verdict, because, tmp_path, monkeypatch):
    monkeypatch.setattr(checks.importlib, "import_module", lambda name: FakeModule(answer))
    checks.run_here("engine_tp2_v2", "cpu", tmp_path / "result.json")
    found = json.loads((tmp_path / "result.json").read_text())
    assert found == {"verdict": verdict, "because": because}


def test_a_line_of_json_for_every_check_that_the_node_can_do(monkeypatch, capsys):
    def pretend(what, command, *, limit_s, folder):
        return {"what": what, "verdict": "yes", "because": f"{command[-5]} within {limit_s}", "remedy": ""}

    monkeypatch.setattr(checks, "run_in_process", pretend)
    for gpus, engines in ((1, 2), (2, 4), (8, 4)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        checks.main([])
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert len(lines) == 4 + engines
        assert sum("vLLM" in line["what"] for line in lines) == engines
    monkeypatch.setattr(checks, "ENVIRONMENT", {})
    checks.main(["--only", "bucket", "--device", "cpu"])
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["because"] == "bucket within 120"
