#!/usr/bin/env bash
# SEC with RLOO on Countdown from Qwen2.5-3B as in its paper, or with CURRICULUM=uniform its baseline (docs/papers.md).
#
#   needs    .venv of the GPU stack; data/prepared/countdown (seele data prepare countdown)
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes what stands there
#   takes    not measured yet
#
#   bash scripts/recipes/sec_rloo_countdown_qwen2.5-3b.sh
#   CURRICULUM=uniform bash scripts/recipes/sec_rloo_countdown_qwen2.5-3b.sh
source "$(dirname "$0")/../lib/recipe.sh"

train_recipe sec_rloo_countdown_qwen2.5-3b "$@"
