#!/usr/bin/env bash
# SEELE, or another METHOD, from Qwen2.5-Math-7B: a base model of SEELE's published results. Its window of 4,096 tokens
# leaves 2,048 for the response.
#
#   needs    .venv of the GPU stack; TRAIN and VALID, parquet files of problems (data/prepared/deepmath)
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes an existing run
#   takes    not measured yet
#
#   bash scripts/train_qwen2.5-math-7b.sh
#   METHOD=luffy bash scripts/train_qwen2.5-math-7b.sh seele.seed=1
#   MODEL=path/to/enlarged bash scripts/train_qwen2.5-math-7b.sh \
#       data.max_response_length=8192 actor_rollout_ref.rollout.max_model_len=16384     # docs/methods/README.md
source "$(dirname "$0")/lib/common.sh"

train_model qwen2_5_math_7b Qwen/Qwen2.5-Math-7B qwen2.5-math-7b "$@"
