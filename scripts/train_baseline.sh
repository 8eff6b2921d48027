#!/usr/bin/env bash
# Train with any method of the comparison, from Qwen2.5-7B on one node with 8 GPUs: docs/methods/ has a page for each.
#
#   needs    .venv of the GPU stack; TRAIN and VALID, parquet files of problems (data/prepared/deepmath)
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes an existing run
#   takes    not measured yet
#
#   bash scripts/train_baseline.sh luffy
#   OUT=runs/try bash scripts/train_baseline.sh uft seele.seed=1
#   MODEL=models/chains TRAIN=data/prepared/chains/train.parquet VALID=data/prepared/chains/heldout.parquet HARDWARE=cpu \
#       bash scripts/train_baseline.sh grpo model=tiny job=tiny
source "$(dirname "$0")/lib/common.sh"

METHODS=verl/seele_verl/config/method
METHOD="${1:-}"
if [[ ! "$METHOD" =~ ^[a-z0-9_]+$ || ! -f "$METHODS/$METHOD.yaml" ]]; then
    allowed=("$METHODS"/*.yaml)
    allowed=("${allowed[@]##*/}")
    echo "train_baseline: unknown method '$METHOD'; the first argument is one of: ${allowed[*]%.yaml}" >&2
    exit 2
fi
shift

train_model qwen2_5_7b Qwen/Qwen2.5-7B qwen2.5-7b "$@"
