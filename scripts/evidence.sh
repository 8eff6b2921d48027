#!/usr/bin/env bash
# Run what docs/evidence.md compares and fill in the tables. Finished runs are packed and skipped, killed ones resume.
#
#   needs    nothing: .venv is made if missing (scripts/setup.sh); a CPU; hours
#   writes   models/, data/prepared/evidence/, runs/evidence/, benchmarks/evidence/{runs/,tuned.json}, docs/evidence/, docs/figures/
#
#   bash scripts/evidence.sh                                          # learning rates, then every task
#   bash scripts/evidence.sh --task mixed --arms grpo,seele --seeds 0,1 --jobs 2
#   bash scripts/evidence.sh --check                                  # do the packed runs still give the tables and figures?
source "$(dirname "$0")/lib/common.sh"

task=all
if [ "${1:-}" = --task ]; then
    task=${2:?--task: name a task of benchmarks/evidence/plan.yaml}
    shift 2
fi
run bash scripts/setup.sh
# The simulator of the tables multiplies small matrices: two threads that wait for each other would take five times as long.
export OPENBLAS_NUM_THREADS=1
if [ "${1:-}" = --check ]; then
    run python benchmarks/evidence/tables.py --check
    run python benchmarks/evidence/leaderboard.py --check
    exit
fi
tasks=$task
if [ "$task" = all ]; then
    # Learning rates take two passes: SFT's must be known before that of the RL after it.
    tasks="tuning tuning $(python -c 'import yaml; print(*yaml.safe_load(open("benchmarks/evidence/plan.yaml"))["tasks"])')"
fi
for each in $tasks; do
    run python benchmarks/evidence/run.py "$each" "$@"
    run python benchmarks/evidence/tables.py
done
