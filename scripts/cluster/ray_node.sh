#!/usr/bin/env bash
# Do one node's part of a run over several: start Ray, on the first node also the run, and end Ray with the run. Start
# this on every node at the same time, as slurm.sbatch and skypilot.yaml in this folder do.
#
#   needs    .venv; the same folder on every node; the node's number from 0 in NODE_RANK, SLURM_PROCID or SKYPILOT_NODE_RANK
#   writes   what the command writes; Ray's own files in $RAY_TMPDIR (/tmp); in $STATUS_FILE, if set, the command's status
#
#   bash scripts/cluster/ray_node.sh HEAD PORT NODES COMMAND...
#   NODE_RANK=0 bash scripts/cluster/ray_node.sh a 6379 2 bash scripts/train_qwen2.5-7b.sh trainer.nnodes=2    # on a
#   NODE_RANK=1 bash scripts/cluster/ray_node.sh a 6379 2 bash scripts/train_qwen2.5-7b.sh trainer.nnodes=2    # on b
#   RAY_START_OPTIONS="--num-gpus=8 --num-cpus=64" ... gives `ray start` these options
source "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

rank=${NODE_RANK:-${SLURM_PROCID:-${SKYPILOT_NODE_RANK:-}}}
if [ $# -lt 4 ] || [ -z "$rank" ]; then
    echo "ray_node: expected HEAD PORT NODES COMMAND... and a number in NODE_RANK, got $# arguments and '$rank'" >&2
    exit 2
fi
address=$1:$2 port=$2 nodes=$3
shift 3

: "${RAY_START_ATTEMPTS:=20}" "${RAY_START_PAUSE_S:=10}" "${RAY_POLL_S:=10}" "${RAY_FAILED_CHECKS:=3}" "${RAY_RESTARTS:=3}"
# A job's own TMPDIR may be longer than the path of a socket can be.
export RAY_TMPDIR="${RAY_TMPDIR:-/tmp}"
# A node under load starts workers slowly.
export RAY_worker_register_timeout_seconds="${RAY_worker_register_timeout_seconds:-600}"
# The head keeps a record of each task; by default of 100,000, which takes 0.3 GB in a small run's first 1,000 steps.
export RAY_task_events_max_num_task_in_gcs="${RAY_task_events_max_num_task_in_gcs:-10000}"
# The head would start a worker for each core without the run's variables, which is never used.
export RAY_prestart_worker_first_driver="${RAY_prestart_worker_first_driver:-0}"
# Ray's processes keep many files open, and only a driver that starts Ray itself raises this limit.
ulimit -n "$(ulimit -Hn)"
read -ra options <<<"${RAY_START_OPTIONS:-}"
log=$(mktemp)
ray='' child='' heard='' has_begun=''

# Every process started in the background has a group of its own, because it may have children.
set -m
end() {
    if [ -n "$1" ]; then kill -TERM -- "-$1" 2>/dev/null || true; wait "$1"; fi
}
# True while a process of the group has not ended; zombies have.
lives() { grep -qsE "^[0-9]+ \(.*\) [^ZX] [0-9]+ $1 " /proc/[0-9]*/stat; }
report() { if [ -n "${STATUS_FILE:-}" ]; then echo "$1" >"$STATUS_FILE"; fi; }
# Whatever ends this script ends the run, then this node's Ray and no other's. Checkpoints are complete or absent.
stop() {
    trap '' TERM INT USR1
    trap - EXIT
    local status=0
    end "$child" || status=$?
    # The run needs Ray until it has saved. Its command may be a shell, which ends before the run does.
    while [ -n "$child" ] && lives "$child"; do sleep 0.2; done
    if [ -n "$has_begun" ] && [ -n "$child" ]; then report "$status"; fi
    end "$ray" || true
    rm -f "$log"
    exit "$1"
}
trap 'stop 143' TERM USR1 # srun passes on only the latter
trap 'stop 130' INT
trap 'stop $?' EXIT

# In the background, so that a signal is heard at once.
attend() {
    local status=0
    DRY_RUN=1 run "$@"
    if [ -n "${DRY_RUN:-}" ]; then return; fi
    "$@" &
    child=$!
    while heard='' status=0; wait "$child" || status=$?; [ -n "$heard" ]; do :; done
    child=''
    return "$status"
}

# `ray start` gives up after 30 seconds on a node under load, and if a worker comes before the head.
start_ray() {
    local attempt
    DRY_RUN=1 run ray start "$@" --block "${options[@]}"
    if [ -n "${DRY_RUN:-}" ]; then return; fi
    for ((attempt = 1; attempt <= RAY_START_ATTEMPTS; attempt++)); do
        ray start "$@" --block "${options[@]}" >"$log" 2>&1 &
        ray=$!
        while kill -0 "$ray" 2>/dev/null; do
            if grep -q 'Ray runtime started' "$log"; then echo "ray_node: Ray runs on node $rank"; return; fi
            sleep 0.2
        done
        echo "ray_node: Ray did not start on node $rank, attempt $attempt of $RAY_START_ATTEMPTS" >&2
        [ -z "$heard" ] || stop 143
        sleep "$RAY_START_PAUSE_S"
    done
    tail -n 20 "$log" >&2
    echo "ray_node: more is in $RAY_TMPDIR/ray/session_latest/logs" >&2
    return 1
}

if [ "$rank" = 0 ]; then
    start_ray --head --port="$port" --include-dashboard=false
    export RAY_ADDRESS="$address"
    attend python -m seele_verl.checks.cluster "$nodes"
    status=0 has_begun=yes
    attend "$@" || status=$?
    report "$status"
    exit "$status"
else
    # All nodes hear the signal, but the run needs this one until it has saved.
    trap 'heard=yes' TERM USR1
    start_ray --address="$address"
    failed=0 restarts=0
    # The head's Ray ends with the run. A busy one may fail a check.
    while ((failed < RAY_FAILED_CHECKS)); do
        if ! attend ray health-check --address "$address" >/dev/null 2>&1; then
            failed=$((failed + 1))
        elif [ -n "${DRY_RUN:-}" ]; then
            exit
        else
            failed=0
            # The run restarts on a node that has joined again.
            if ! kill -0 "$ray" 2>/dev/null; then
                end "$ray" || true
                echo "ray_node: Ray died on node $rank after $restarts of $RAY_RESTARTS restarts" >&2
                ((restarts++ < RAY_RESTARTS)) || exit 1
                start_ray --address="$address"
            fi
        fi
        attend sleep "$RAY_POLL_S" >/dev/null
    done
fi
