#!/usr/bin/env bash
# SEELE from Qwen2.5-1.5B as in its paper, or with METHOD a baseline at the same sizes (docs/papers.md).
#
#   needs    .venv of the GPU stack; the problems of docs/annotation.md
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes what stands there
#   takes    not measured yet
#
#   bash scripts/recipes/seele_qwen2.5-1.5b.sh
#   METHOD=luffy bash scripts/recipes/seele_qwen2.5-1.5b.sh
source "$(dirname "$0")/../lib/recipe.sh"

train_recipe seele_qwen2.5-1.5b "$@"
