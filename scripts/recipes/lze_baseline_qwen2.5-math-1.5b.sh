#!/usr/bin/env bash
# The baseline of LZE from Qwen2.5-Math-1.5B as in its launcher (docs/papers.md).
#
#   needs    .venv of the GPU stack; the hub, for the problems of MATH
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes what stands there
#   takes    not measured yet
#
#   bash scripts/recipes/lze_baseline_qwen2.5-math-1.5b.sh
#   MODEL_PATH=Qwen/Qwen2.5-Math-1.5B \
#       TRAIN_FILES="['https://huggingface.co/datasets/EleutherAI/hendrycks_math?split=train']" \
#       VAL_FILES="['https://huggingface.co/datasets/EleutherAI/hendrycks_math?split=test']" \
#       bash scripts/recipes/lze_baseline_qwen2.5-math-1.5b.sh
source "$(dirname "$0")/../lib/recipe.sh"

train_recipe lze_baseline_qwen2.5-math-1.5b "$@"
