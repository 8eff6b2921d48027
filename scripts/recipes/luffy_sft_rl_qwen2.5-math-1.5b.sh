#!/usr/bin/env bash
# SFT, then RL, a baseline of LUFFY, from Qwen2.5-Math-1.5B as in LUFFY's paper (docs/papers.md).
#
#   needs    .venv of the GPU stack; data/prepared/openr1_46k and openr1_48k_complement (docs/papers.md)
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes what stands there
#   takes    not measured yet
#
#   bash scripts/recipes/luffy_sft_rl_qwen2.5-math-1.5b.sh
#   MODEL=path/to/model SFT_TRAIN=first.parquet TRAIN=second.parquet VALID=valid.parquet OUT=runs/try \
#       bash scripts/recipes/luffy_sft_rl_qwen2.5-math-1.5b.sh seele.seed=1
source "$(dirname "$0")/../lib/recipe.sh"

train_recipe luffy_sft_rl_qwen2.5-math-1.5b "$@"
