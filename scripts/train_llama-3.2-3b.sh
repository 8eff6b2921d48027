#!/usr/bin/env bash
# SEELE, or another METHOD, from Llama-3.2-3B: a base model of SEELE's published results.
#
#   needs    .venv of the GPU stack; TRAIN and VALID, parquet files of problems (data/prepared/deepmath); HF_TOKEN, the model is gated
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes an existing run
#   takes    not measured yet
#
#   bash scripts/train_llama-3.2-3b.sh
#   METHOD=luffy bash scripts/train_llama-3.2-3b.sh seele.seed=1
source "$(dirname "$0")/lib/common.sh"

train_model llama3_2_3b meta-llama/Llama-3.2-3B llama-3.2-3b "$@"
