#!/usr/bin/env bash
# SEELE, or another METHOD, from Mathstral-7B: a base model of SEELE's published results.
#
#   needs    .venv of the GPU stack; TRAIN and VALID, parquet files of problems (data/prepared/deepmath)
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes an existing run
#   takes    not measured yet
#
#   bash scripts/train_mathstral-7b.sh
#   METHOD=luffy bash scripts/train_mathstral-7b.sh seele.seed=1
source "$(dirname "$0")/lib/common.sh"

train_model mathstral_7b mistralai/Mathstral-7B-v0.1 mathstral-7b "$@"
