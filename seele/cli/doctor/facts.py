"""Facts about a machine, before anything is judged. Memory is in GiB."""

from dataclasses import dataclass, field

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as nvidia-smi lists it."""

    name: str
    memory_gib: float
    driver: str
    """Version of the driver, such as ``580.95.05``."""
    capability: tuple[int, int] | None = None
    """Compute capability; drivers before 510 or so do not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What torch and transformers report in this environment (``seele_verl.checks.machine_probe``)."""

    error: str | None = None
    """Why there is no report, such as a torch that cannot be imported."""
    cuda_build: str | None = None
    """CUDA version that torch was built for; None for a CPU build."""
    driver_cuda: str | None = None
    """Newest CUDA version that the driver runs."""
    cuda_available: bool = False
    cuda_error: str | None = None
    """What torch reports if it sees no GPU."""
    devices: tuple[tuple[int, int], ...] = ()
    """Compute capability of each GPU that torch sees."""
    nccl: str | None = None
    attention: str | None = None
    """The imported package that runs flash attention: ``flash-attn`` or the hub's kernel."""
    attention_error: str | None = None
    hub_reachable: bool = False
    """True if the hub answers; it is asked only if the kernel is not in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Everything that the doctor judges."""

    gpus: tuple[Gpu, ...] = ()
    environment: Environment = field(default_factory=Environment)
    packages: dict[str, str] = field(default_factory=dict)
    """Version of each installed distribution that training or another command needs."""
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables that change what runs."""
    memory_gib: float = 0.0
    """Memory of the host, or the container's limit."""
    shm_gib: float = 0.0
    """Free space in /dev/shm."""
    max_open_files: int = 0
    """The hard limit: Ray raises the soft one to it (``ray/_private/worker.py``)."""
    compiles: bool = False
    """True if there are a C compiler and Python's headers, which Triton needs during a run."""
    missing_files: tuple[str, ...] = ()
    """Missing files that scripts/quickstart.sh would create."""
