#!/usr/bin/env bash
# Run a published experiment as in its paper; docs/papers.md lists them, with the problems that each needs.
#
#   needs    .venv of the GPU stack; the experiment's problems
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes an existing run
#   takes    not measured yet
#
#   bash scripts/train_recipe.sh seele_qwen2.5-3b
#   METHOD=luffy bash scripts/train_recipe.sh seele_qwen2.5-3b               # a baseline at the same sizes
#   CURRICULUM=uniform bash scripts/train_recipe.sh sec_math_qwen2.5-3b
#   MODEL=path/to/model TRAIN=train.parquet VALID=valid.parquet OUT=runs/try \
#       bash scripts/train_recipe.sh luffy_qwen2.5-math-7b seele.seed=1       # overrides follow
#
# These variables override the recipe: MODEL, TRAIN, VALID, OUT, METHOD, CURRICULUM, HARDWARE.
# MODEL_PATH, TRAIN_FILES and VAL_FILES, the names in LZE's launchers, mean the first three. SFT_TRAIN names the
# files of the first stage of SFT+RL.
source "$(dirname "$0")/lib/common.sh"

RECIPES=verl/seele_verl/options/recipe.yaml
RECIPE="${1:-}"
mapfile -t allowed < <(sed -nE 's/^([A-Za-z0-9_.-]+):.*/\1/p' "$RECIPES")
if [[ " ${allowed[*]} " != *" $RECIPE "* || -z "$RECIPE" ]]; then
    echo "train_recipe: unknown recipe '$RECIPE'; the first argument is one of: ${allowed[*]}" >&2
    exit 2
fi
shift

# Files separated by commas; one reference to the hub, which may have commas; or a Python list of strings, which is
# also a Hydra list.
file_list() {
    if [[ "$1" == \[*\] ]]; then printf '%s' "$1"
    elif [[ "$1" == *://* ]]; then printf '[%s]' "$(quoted "$1")"
    else quoted_list "$1"; fi
}

arguments=(recipe="$RECIPE" hardware="${HARDWARE:-gpu8}")
model=${MODEL:-${MODEL_PATH:-}} train=${TRAIN:-${TRAIN_FILES:-}} valid=${VALID:-${VAL_FILES:-}}
[[ -z ${METHOD:-} ]] || arguments+=(method="$METHOD")
[[ -z ${CURRICULUM:-} ]] || arguments+=(curriculum="$CURRICULUM")
[[ -z $model ]] || arguments+=(actor_rollout_ref.model.path="$(quoted "$model")")
[[ -z $train ]] || arguments+=(data.train_files="$(file_list "$train")")
[[ -z $valid ]] || arguments+=(data.val_files="$(file_list "$valid")")
[[ -z ${SFT_TRAIN:-} ]] || arguments+=(seele.sft.train_files="$(file_list "$SFT_TRAIN")")
[[ -z ${OUT:-} ]] || arguments+=(trainer.default_local_dir="$(quoted "$OUT")")
train "${arguments[@]}" "$@"
