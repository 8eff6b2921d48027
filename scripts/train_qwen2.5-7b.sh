#!/usr/bin/env bash
# A run of the paper's sizes (arXiv:2509.06923, section 5.1) from Qwen2.5-7B, on all of DeepMath: SEELE with our
# controller, or another METHOD; METHOD=seele_paper has the paper's controller. The paper's own run is
# recipe=seele_qwen2.5-7b.
#
#   needs    .venv of the GPU stack; TRAIN and VALID, parquet files of problems (data/prepared/deepmath)
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes an existing run
#   takes    not measured yet
#
#   TRAIN=data/prepared/deepmath/train.parquet VALID=data/prepared/deepmath/heldout.parquet \
#       bash scripts/train_qwen2.5-7b.sh
#   METHOD=seele_paper bash scripts/train_qwen2.5-7b.sh seele.hints.target_accuracy=0.4
source "$(dirname "$0")/lib/common.sh"

train_model qwen2_5_7b Qwen/Qwen2.5-7B qwen2.5-7b "$@"
