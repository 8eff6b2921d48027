#!/usr/bin/env bash
# Prefix-RFT from Qwen2.5-Math-7B as in its paper (docs/papers.md).
#
#   needs    .venv of the GPU stack; data/prepared/openr1_46k (docs/papers.md)
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes what stands there
#   takes    not measured yet
#
#   bash scripts/recipes/prefix_rft_qwen2.5-math-7b.sh
#   MODEL=path/to/model TRAIN=train.parquet VALID=valid.parquet OUT=runs/try \
#       bash scripts/recipes/prefix_rft_qwen2.5-math-7b.sh seele.seed=1
source "$(dirname "$0")/../lib/recipe.sh"

train_recipe prefix_rft_qwen2.5-math-7b "$@"
