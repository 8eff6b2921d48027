"""Launchers of runs on clusters, with stand-ins for Slurm and Ray; the files for containers and clouds."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from seele_verl.runs.stopping import STOPPED

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "scripts" / "cluster"

# Like Slurm's: one task per host. SIGTERM to srun kills them, SIGUSR1 is passed on. When one fails, the
# others are killed (--kill-on-bad-exit), and srun's exit status is theirs.
SRUN = """#!/usr/bin/env bash
echo "srun $*" >>"$EVENTS"
tasks=$(sed -n 's/.*--ntasks=\\([0-9]*\\).*/\\1/p' <<<"$*")
while [[ $1 == --* ]]; do shift; done
pids=()
for ((i = 0; i < tasks; i++)); do SLURM_PROCID=$i "$@" & pids+=($!); done
trap 'kill -KILL "${pids[@]}"' TERM
trap 'kill -USR1 "${pids[@]}"' USR1
status=0
for pid in "${pids[@]}"; do
    while true; do wait "$pid"; code=$?; kill -0 "$pid" 2>/dev/null || break; done
    if ((code)); then status=137; fi
done
exit $status
"""
SCONTROL = """#!/usr/bin/env bash
echo "scontrol $*" >>"$EVENTS"
if [ "$2" = hostnames ]; then printf 'node-a\\nnode-b\\n'; fi
"""
# Like Ray's: a node runs until it is ended, and the cluster is healthy as long as the head exists.
RAY = """#!/usr/bin/env bash
if [ "$1" = health-check ]; then
    if [ -e "$STATE/unwell-once" ]; then rm "$STATE/unwell-once"; exit 1; fi
    exec test -e "$STATE/head"
fi
echo "ray $*" >>"$EVENTS"
if [ -e "$STATE/fails-once" ]; then rm "$STATE/fails-once"; exit 1; fi
kind=worker
if [ "$2" = --head ]; then kind=head; elif [ ! -e "$STATE/head" ]; then exit 1; fi
trap 'rm -f "$STATE/head"; echo "$kind ended" >>"$EVENTS"; exit 143' TERM
echo $$ >"$STATE/$kind"
echo "Ray runtime started."
while true; do sleep 0.05; done
"""
# Waits for both nodes, as seele_verl.checks.cluster does.
PYTHON = """#!/usr/bin/env bash
echo "python $*" >>"$EVENTS"
until [ -e "$STATE/worker" ]; do sleep 0.05; done
"""
# In the foreground, like a script of the user's own: the shell itself dies at once.
TRAIN = """#!/usr/bin/env bash
bash run.sh "$@"
exit $?
"""
# Ends its step first, for which it needs all nodes.
RUN = """#!/usr/bin/env bash
stop() {
    echo "train was told to end" >>"$EVENTS"
    sleep 2
    if grep -q "ended$" "$EVENTS"; then echo "a node was lost" >>"$EVENTS"; exit 1; fi
    echo "saved" >>"$EVENTS"
    exit "${STATUS_WHEN_TOLD:-75}"
}
trap stop TERM
echo "train $* at $RAY_ADDRESS" >>"$EVENTS"
while [ -n "${WAITS:-}" ] && ((SECONDS < 100)); do sleep 0.05; done
exit "${STATUS:-0}"
"""


class Allocation:
    """A Slurm job over two nodes, in its own checkout."""

    def __init__(self, folder: Path) -> None:
        self.root, self.events = folder / "checkout", folder / "events"
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        commands, environment = folder / "bin", self.root / ".venv" / "bin"
        for path, text in {
            commands / "srun": SRUN,
            commands / "scontrol": SCONTROL,
            environment / "ray": RAY,
            environment / "python": PYTHON,
            self.root / "train.sh": TRAIN,
            self.root / "run.sh": RUN,
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        self.events.touch()
        (folder / "state").mkdir()
        self.state = folder / "state"
        self.environment = {
            **{"PATH": f"{commands}:{os.environ['PATH']}", "HOME": str(folder)},
            **{"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_GPUS_ON_NODE": "8"},
            "SLURM_CPUS_ON_NODE": "96",
            **{"SLURM_SUBMIT_DIR": str(self.root), "EVENTS": str(self.events), "STATE": str(self.state)},
            **{"RAY_START_PAUSE_S": "0.1", "RAY_START_ATTEMPTS": "100", "RAY_POLL_S": "0.1"},
        }

    def submit(self, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", CLUSTER / "slurm.sbatch", "bash", "train.sh", "it's"],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, event: str) -> None:
        while not any(line.startswith(event) for line in self.events.read_text().splitlines()):
            time.sleep(0.05)

    def count(self, pattern: str) -> int:
        return len(re.findall(pattern, self.events.read_text(), re.MULTILINE))


@pytest.fixture
def allocation(tmp_path: Path) -> Allocation:
    return Allocation(tmp_path)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("status", [0, 7, STOPPED])
def test_a_job_starts_ray_on_all_nodes_and_ends_with_its_run(allocation: Allocation, status: int) -> None:
    (allocation.state / "fails-once").touch()
    job = allocation.submit(STATUS=str(status))
    said, _ = job.communicate()
    assert job.returncode == (0 if status == STOPPED else status), said
    assert allocation.count(r"^train it's at node-a:20041$") == 1
    assert allocation.count(r"^python -m seele_verl.checks.cluster 2$") == 1
    assert allocation.count(r"^srun --ntasks=2 --ntasks-per-node=1 --cpus-per-task=96 ") == 1
    assert allocation.count(r"^ray start --head --port=20041 .*--block --num-gpus=8$") >= 1
    assert allocation.count(r"^ray start --address=node-a:20041 --block --num-gpus=8$") >= 1
    assert allocation.count(r"^ray start") >= 3, "the failed start was repeated"
    assert allocation.count(r"^(head|worker) ended$") == 2, "no Ray is left"
    assert allocation.count("^scontrol requeue 41$") == (status == STOPPED)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("sent", "status", "requeued"), [(signal.SIGUSR1, 0, 1), (signal.SIGTERM, 143, 0)], ids=["time", "end"]
)
def test_a_job_that_has_to_go_lets_its_run_save_first(
    allocation: Allocation, sent: int, status: int, requeued: int
) -> None:
    job = allocation.submit(WAITS="yes")
    allocation.wait_for("train it's")
    # The node's Ray outlives a check that fails, and is started again when it dies.
    (allocation.state / "unwell-once").touch()
    while (allocation.state / "unwell-once").exists():
        time.sleep(0.05)
    worker = int((allocation.state / "worker").read_text())
    (allocation.state / "worker").unlink()
    os.kill(worker, signal.SIGKILL)
    while not (allocation.state / "worker").exists():
        time.sleep(0.05)
    job.send_signal(sent)
    said, _ = job.communicate()
    assert job.returncode == status, said
    assert allocation.count("^train was told to end$") == allocation.count("^saved$") == 1, said
    assert allocation.count(r"^(head|worker) ended$") == 2
    assert allocation.count("^scontrol requeue 41$") == requeued
    if requeued:
        assert allocation.events.read_text().splitlines()[-1] == "scontrol requeue 41", (
            "nothing runs any more"
        )


@pytest.mark.timeout(120)
def test_a_job_whose_step_outlasts_its_time_is_queued_again_all_the_same(allocation: Allocation) -> None:
    squeue = allocation.root.parent / "bin" / "squeue"
    squeue.write_text("#!/usr/bin/env bash\necho 2001-01-01T00:00:00\n")
    squeue.chmod(0o755)
    job = allocation.submit(WAITS="yes")
    allocation.wait_for("train it's")
    job.send_signal(signal.SIGUSR1)
    allocation.wait_for("scontrol requeue 41")
    said, _ = job.communicate()
    assert job.returncode == 0, said
    assert "repeats the steps since the last checkpoint" in said


@pytest.mark.timeout(120)
@pytest.mark.parametrize("status", [0, 1])
def test_a_job_whose_run_has_finished_when_it_has_to_go_is_not_queued_again(
    allocation: Allocation, status: int
) -> None:
    (allocation.root / "train.sh").write_text('exec bash run.sh "$@"\n')
    job = allocation.submit(WAITS="yes", STATUS_WHEN_TOLD=str(status))
    allocation.wait_for("train it's")
    job.send_signal(signal.SIGUSR1)
    said, _ = job.communicate()
    assert job.returncode == 0, said
    assert allocation.count("^saved$") == 1, said
    assert allocation.count("^scontrol requeue 41$") == (status != 0)


@pytest.mark.timeout(120)
def test_a_signal_to_a_training_script_reaches_its_run(allocation: Allocation) -> None:
    shutil.copy(allocation.root / "run.sh", allocation.root / ".venv" / "bin" / "python")
    script = ["bash", allocation.root / "scripts" / "train_qwen2.5-7b.sh", "seele.seed=1"]
    environment = {**allocation.environment, "WAITS": "yes", "RAY_ADDRESS": ""}
    with subprocess.Popen(script, env=environment, stdout=subprocess.PIPE, text=True) as process:
        allocation.wait_for("train -m seele_verl.train trainer.max_restarts=3 ")
        process.terminate()
        assert process.wait() == STOPPED
    assert allocation.count("^saved$") == 1


@pytest.mark.parametrize(
    ("script", "arguments", "says"),
    [
        ("slurm.sbatch", (), "slurm.sbatch: no command"),
        ("ray_node.sh", ("head", "6379", "2", "true"), "a number in NODE_RANK, got 4 arguments and ''"),
    ],
)
def test_a_launcher_without_what_it_needs_says_so(script: str, arguments: tuple[str, ...], says: str) -> None:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "NODE_RANK"))}
    result = subprocess.run(["bash", CLUSTER / script, *arguments], env=bare, capture_output=True, text=True)
    assert result.returncode == 2
    assert says in result.stderr


def pinned(package: str) -> str:
    pins = (ROOT / "requirements-core.txt").read_text()
    found = re.search(rf"^{re.escape(package)}(?:\[\w+\])?==(\S+)", pins, re.MULTILINE)
    assert found
    return found[1]


# Fields of KubeRay's v1 API (ray-operator/apis/ray/v1/{rayjob,raycluster}_types.go), as far as they are used.
FIELDS = {
    "spec": {
        "entrypoint",
        "shutdownAfterJobFinishes",
        "ttlSecondsAfterFinished",
        "backoffLimit",
        "rayClusterSpec",
    },
    "cluster": {"rayVersion", "headGroupSpec", "workerGroupSpecs"},
    "head": {"rayStartParams", "template"},
    "worker": {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"},
}


def test_the_kuberay_job_has_the_fields_of_its_kind() -> None:
    job = yaml.safe_load((CLUSTER / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    cluster = spec["rayClusterSpec"]
    head, (worker,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    for name, part in {"spec": spec, "cluster": cluster, "head": head, "worker": worker}.items():
        assert set(part) == FIELDS[name]
    assert cluster["rayVersion"] == pinned("ray")
    for group in (head, worker):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes == {"runs", "shm"}
    gpus = worker["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert worker["replicas"] * int(gpus) == 16 and "hardware=gpu16" in spec["entrypoint"]


def test_what_the_cloud_files_run_is_there() -> None:
    task = yaml.safe_load((CLUSTER / "skypilot.yaml").read_text())
    entrypoint = yaml.safe_load((CLUSTER / "kuberay.yaml").read_text())["spec"]["entrypoint"]
    commands = " ".join([task["setup"], task["run"], task["envs"]["COMMAND"], entrypoint])
    scripts = re.findall(r"scripts/[\w./-]+", commands)
    assert len(scripts) == 4 and all((ROOT / script).is_file() for script in scripts)
    # The image has no problems; of the project's folders, only runs/ is mounted.
    shell, option, command = shlex.split(entrypoint)
    assert (shell, option) == ("bash", "-c")
    assert re.findall(r"(\w+)=runs/data/deepmath/\w+\.parquet ", command) == ["TRAIN", "VALID"]


def test_the_container_is_made_as_set_up_says() -> None:
    text = (ROOT / "Containerfile").read_text()
    assert re.findall("^FROM (.*)$", text, re.MULTILINE) == ["docker.io/library/debian:bookworm-slim"]
    assert 'bash scripts/setup.sh "$STACK"' in text and "ARG STACK=gpu" in text
    # Set-up and Triton need these.
    for package in ("gcc", "python3-dev", "python3-venv"):
        assert f" {package}" in text
    ignored = (ROOT / ".dockerignore").read_text().split()
    # A build does not copy files that the commands make.
    assert {"models", "runs", "data/prepared"} < set(ignored)
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not [path for path in tracked.split() for folder in ignored if path.startswith(f"{folder}/")]
