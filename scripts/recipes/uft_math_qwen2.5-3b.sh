#!/usr/bin/env bash
# UFT on MATH from Qwen2.5-3B as in its launcher (docs/papers.md).
#
#   needs    .venv of the GPU stack; data/prepared/math (seele data prepare math)
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes what stands there
#   takes    not measured yet
#
#   bash scripts/recipes/uft_math_qwen2.5-3b.sh
#   METHOD=grpo bash scripts/recipes/uft_math_qwen2.5-3b.sh
source "$(dirname "$0")/../lib/recipe.sh"

train_recipe uft_math_qwen2.5-3b "$@"
