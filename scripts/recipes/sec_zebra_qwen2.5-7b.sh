#!/usr/bin/env bash
# SEC on Zebra puzzles from Qwen2.5-7B as in its paper, or with CURRICULUM=uniform its baseline (docs/papers.md).
#
#   needs    .venv of the GPU stack; data/prepared/zebra (seele data prepare zebra)
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes what stands there
#   takes    not measured yet
#
#   bash scripts/recipes/sec_zebra_qwen2.5-7b.sh
#   CURRICULUM=uniform bash scripts/recipes/sec_zebra_qwen2.5-7b.sh
source "$(dirname "$0")/../lib/recipe.sh"

train_recipe sec_zebra_qwen2.5-7b "$@"
