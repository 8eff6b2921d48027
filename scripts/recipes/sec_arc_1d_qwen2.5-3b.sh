#!/usr/bin/env bash
# SEC on ARC-1D from Qwen2.5-3B as in its paper, or with CURRICULUM=uniform its baseline (docs/papers.md).
#
#   needs    .venv of the GPU stack; data/prepared/arc_1d (seele data prepare arc_1d)
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes what stands there
#   takes    not measured yet
#
#   bash scripts/recipes/sec_arc_1d_qwen2.5-3b.sh
#   CURRICULUM=uniform bash scripts/recipes/sec_arc_1d_qwen2.5-3b.sh
source "$(dirname "$0")/../lib/recipe.sh"

train_recipe sec_arc_1d_qwen2.5-3b "$@"
