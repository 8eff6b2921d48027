#!/usr/bin/env bash
# SEELE, or another METHOD, from Qwen2.5-3B: a base model of SEELE's published results.
#
#   needs    .venv of the GPU stack; TRAIN and VALID, parquet files of problems (data/prepared/deepmath)
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes an existing run
#   takes    not measured yet
#
#   bash scripts/train_qwen2.5-3b.sh
#   METHOD=luffy bash scripts/train_qwen2.5-3b.sh seele.seed=1
source "$(dirname "$0")/lib/common.sh"

train_model qwen2_5_3b Qwen/Qwen2.5-3B qwen2.5-3b "$@"
