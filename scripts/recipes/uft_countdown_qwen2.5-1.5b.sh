#!/usr/bin/env bash
# UFT on Countdown from Qwen2.5-1.5B as in its launcher (docs/papers.md).
#
#   needs    .venv of the GPU stack; data/prepared/countdown (seele data prepare countdown)
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes what stands there
#   takes    not measured yet
#
#   bash scripts/recipes/uft_countdown_qwen2.5-1.5b.sh
#   METHOD=grpo bash scripts/recipes/uft_countdown_qwen2.5-1.5b.sh
source "$(dirname "$0")/../lib/recipe.sh"

train_recipe uft_countdown_qwen2.5-1.5b "$@"
