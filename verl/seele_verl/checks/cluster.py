"""The Ray cluster of a run: which one it is, and whether it has the resources that the run reserves.

A run starts its own cluster or joins one; the task runner asks a joined cluster for its resources before verl
starts anything on it. The head may be a node without GPUs. Ray is imported only where it is needed: a node
that is asked for its GPU imports only this file.

    python -m seele_verl.checks.cluster 2    waits until two nodes are there (scripts/cluster/ray_node.sh)
"""

import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seele.data.storage.files import file_sha256
from seele.errors import ConfigError
from seele.host import LEAST_CAPABILITY
from seele_verl.runs.card import RUN_CARD, own_files_sha256
from seele_verl.runs.stopping import heed_before_training
from seele_verl.runs.watchdog import show_life

# CPUs that verl reserves in Ray with each GPU (ResourcePoolManager's max_colocate_count).
CPUS_PER_GPU = 3
LOCAL = "local"
"""Ray's address for a cluster that the run starts itself."""
WAIT_S = 900
POLL_S = 2.0


def cluster_address(config: DictConfig) -> str:
    """Return the address of the Ray cluster that the run joins; ``LOCAL`` if it starts its own."""
    return config.ray_kwargs.ray_init.get("address") or os.environ.get("RAY_ADDRESS") or LOCAL


def check_capability(capability: tuple[int, int] | None, *, node: str) -> None:
    """Raise ``ConfigError`` unless GPUs of this compute capability can train; None: torch sees no GPU."""
    if capability is None:
        raise ConfigError(
            f"trainer.device: 'cuda', but torch sees no GPU on {node}, or one with too old a driver; "
            "run `seele doctor` there for details"
        )
    if capability < LEAST_CAPABILITY:
        raise ConfigError(
            f"trainer.device: GPUs of compute capability {'.'.join(map(str, capability))}; bfloat16 and "
            f"flash-attention need 8.0 (A100) or more; use newer GPUs on {node}"
        )


def cpus_by_ray() -> int:
    """Return the number of CPUs that Ray finds on this node: in a container its quota, not the node's."""
    from ray._private.utils import get_num_cpus

    return int(get_num_cpus())


def check_cpus(config: DictConfig, cpus: int) -> None:
    """Raise ``ConfigError`` where verl and TransferQueue reserve more than ``cpus``; verl would just wait."""
    trainer = config.trainer
    gpus = trainer.nnodes * trainer.n_gpus_per_node
    units = config.transfer_queue.backend.SimpleStorage.num_data_storage_units
    needed = units + 1 + CPUS_PER_GPU * gpus
    if cpus < needed:
        raise ConfigError(
            f"ray_kwargs.ray_init.num_cpus: Ray would have {cpus}, but {needed} are reserved: {CPUS_PER_GPU} "
            f"for each of {gpus} GPUs, and {units} + 1 for TransferQueue; set it to {needed} (Ray's CPUs are "
            "logical; on a cluster: `ray start --num-cpus`), or lower trainer.n_gpus_per_node or "
            "transfer_queue.backend.SimpleStorage.num_data_storage_units"
        )


def check_nodes(config: DictConfig, nodes: Sequence[Mapping[str, float]]) -> None:
    """Raise ``ConfigError`` where a joined cluster cannot hold the run; verl would just wait.

    Args:
        config: The composed configuration.
        nodes: The resources of each living node, by Ray's names (``GPU``, ``CPU``).
    """
    wanted, gpus = config.trainer.nnodes, config.trainer.n_gpus_per_node
    # TransferQueue, which starts first, divides its units evenly; its controller may be anywhere.
    units = config.transfer_queue.backend.SimpleStorage.num_data_storage_units
    of_queue = math.ceil(units / max(1, sum(node.get("CPU", 0) > 0 for node in nodes))) + 1
    cpus = CPUS_PER_GPU * gpus + of_queue
    # verl reserves each node's share on a single node (RayResourcePool, STRICT_PACK).
    held = sum(int(min(node.get("GPU", 0) // gpus, node.get("CPU", 0) // cpus)) for node in nodes)
    if held < wanted:
        offers = ", ".join(f"{node.get('GPU', 0):g} GPUs and {node.get('CPU', 0):g} CPUs" for node in nodes)
        raise ConfigError(
            f"trainer.nnodes: got {wanted} nodes with {gpus} GPUs and {cpus} CPUs each, but the Ray cluster "
            f"has room for {held}; its nodes offer {offers}. Lower trainer.nnodes or "
            "trainer.n_gpus_per_node, wait for nodes that have not joined yet, or start Ray there with "
            "`--num-gpus` and `--num-cpus` (logical)"
        )
    check_cpus(config, int(sum(node.get("CPU", 0) for node in nodes)))


def check_free_gpus(config: DictConfig, free: Sequence[float]) -> None:
    """Raise ``ConfigError`` where others hold GPUs of a joined cluster that the run needs; verl would just
    wait.

    Args:
        config: The composed configuration.
        free: The number of free GPUs of each living node.
    """
    wanted, gpus = config.trainer.nnodes, config.trainer.n_gpus_per_node
    if sum(int(each // gpus) for each in free) < wanted:
        raise ConfigError(
            f"trainer.n_gpus_per_node: {wanted} nodes with {gpus} free GPUs each are needed, but the nodes' "
            f"free GPUs are {' and '.join(f'{each:g}' for each in free)}; `ray status` shows what is used. "
            "Wait, or end what is left of a killed run with `ray stop`"
        )


def refuse_a_second_run() -> None:
    """Refuse a cluster on which another run trains: a Ray cluster has a single TransferQueue, and the rows of
    two runs have the same keys.

    Raises:
        ConfigError: The cluster already has a TransferQueue.
    """
    import ray

    try:
        ray.get_actor("TransferQueueController", namespace="transfer_queue")
    except ValueError:
        return
    raise ConfigError(
        "ray_kwargs.ray_init: another run trains on this Ray cluster, and their rollouts would mix; wait for "
        "its end, or give each run its own cluster (without RAY_ADDRESS a run starts one)"
    )


def refuse_a_small_cluster(config: DictConfig) -> None:
    """Raise ``ConfigError`` where the nodes have less than the run reserves, or others hold it: the run would
    wait forever.
    """
    import ray

    check_nodes(config, [node["Resources"] for node in ray.nodes() if node["Alive"]])
    available = ray._private.state.available_resources_per_node()
    check_free_gpus(config, [node.get("GPU", 0) for node in available.values()])


def wait_for_room(config: DictConfig, *, seconds: float) -> None:
    """Return once the cluster has no other run and has the resources that this one reserves. Waiting shows
    life, as it has its own limit.

    Raises:
        ConfigError: As ``refuse_a_second_run`` and ``refuse_a_small_cluster``, after this many seconds.
        RunStopped: The run was asked to stop.
    """
    deadline, run = time.monotonic() + seconds, Path(config.trainer.default_local_dir)
    while True:
        heed_before_training(run)
        try:
            refuse_a_second_run()
            refuse_a_small_cluster(config)
            return
        except ConfigError:
            if time.monotonic() >= deadline:
                raise
            with suppress(OSError):  # this node may not see the run's folder, which is checked next
                show_life(run)
            time.sleep(POLL_S)


def files_to_share(config: DictConfig) -> dict[str, str]:
    """Return the files and folders of a run that all of its nodes must see as this process does: problems and
    model where they are paths, and with their hashes the user's own parts and prompt template and the run's
    card.
    """
    named = [*config.data.train_files, *config.data.val_files, config.actor_rollout_ref.model.path]
    files = {str(Path(name).absolute()): "" for name in named if Path(name).exists()}
    card = Path(config.trainer.default_local_dir).absolute() / RUN_CARD
    return files | own_files_sha256(config) | ({str(card): file_sha256(card)} if card.exists() else {})


def refuse_unshared_files(files: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` if a node of the cluster lacks one of ``files_to_share``, or has another file."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    if len(nodes) < 2:
        return
    ask: Any = ray.remote(num_cpus=0, max_calls=1)(unshared)
    answers = ray.get([_ask_node(node, ask, dict(files)) for node in nodes])
    for node, path in zip(nodes, answers, strict=True):
        if path is not None:
            raise ConfigError(
                f"trainer.nnodes: the node {node['NodeManagerAddress']} does not see {path}, or sees another "
                "file there; all nodes need the same folder for runs, problems, models and your own parts, "
                "at the same path: a shared file system (docs/cluster.md)"
            )


def unshared(files: Mapping[str, str]) -> str | None:
    """Return the first of ``files_to_share`` that this process does not see; None if it sees all."""
    for path, sha256 in files.items():
        if not Path(path).exists() or (sha256 and file_sha256(Path(path)) != sha256):
            return path
    return None


def refuse_unfit_gpus(config: DictConfig) -> None:
    """Raise ``ConfigError`` where torch cannot use the GPUs of the cluster's nodes, which are asked in
    parallel before verl starts anything there. One answer per node of the run is enough: other nodes may be
    busy.
    """
    if config.trainer.device != "cuda":
        return
    import ray

    # One call per process, because a process holds some of the GPU's memory until it ends.
    ask: Any = ray.remote(num_cpus=0, num_gpus=1, max_calls=1)(capability)
    asked = {
        _ask_node(node, ask): node
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("GPU", 0) >= config.trainer.n_gpus_per_node
    }
    answered, waiting = ray.wait(list(asked), num_returns=min(config.trainer.nnodes, len(asked)))
    for each in waiting:
        ray.cancel(each)
    for each in answered:
        check_capability(ray.get(each), node=f"the node {asked[each]['NodeManagerAddress']}")


def _ask_node(node: Mapping[str, Any], ask: Any, *args: Any) -> Any:
    """Return the reference to the answer of a Ray task that runs on this node only."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
        *args
    )


def capability() -> tuple[int, int] | None:
    """Return the compute capability of this process's GPU; None if torch sees none."""
    import torch

    return torch.cuda.get_device_capability() if torch.cuda.is_available() else None


def wait_for_nodes(count: int) -> None:
    """Return once the cluster that ``RAY_ADDRESS`` names has this many nodes.

    Raises:
        ConfigError: If it has fewer after ``WAIT_S`` seconds.
    """
    import ray

    ray.init(address="auto", log_to_driver=False)
    deadline = time.monotonic() + WAIT_S
    while (alive := sum(node["Alive"] for node in ray.nodes())) < count:
        if time.monotonic() > deadline:
            raise ConfigError(
                f"the Ray cluster has {alive} of {count} nodes after {WAIT_S} s; start Ray on the others"
            )
        time.sleep(POLL_S)
    sys.stdout.write(f"the Ray cluster has {alive} nodes\n")


if __name__ == "__main__":
    try:
        wait_for_nodes(int(sys.argv[1]))
    except ConfigError as error:
        sys.exit(f"error: {error}")
