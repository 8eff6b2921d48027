# shellcheck shell=bash
# Sourced by the scripts of recipes. `train_recipe NAME [overrides]` trains the recipe as it stands; these variables of
# the environment take the place of what it says: MODEL, TRAIN, VALID, OUT, METHOD, CURRICULUM, HARDWARE.
# MODEL_PATH, TRAIN_FILES and VAL_FILES are other names for the first three, as in LZE's launchers. SFT_TRAIN: files of
# the first stage of SFT+RL.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Files apart by commas; one reference to the hub, which may have commas; or a Python list of strings, which is a list
# of Hydra's, too.
file_list() {
    if [[ "$1" == \[*\] ]]; then printf '%s' "$1"
    elif [[ "$1" == *://* ]]; then printf '[%s]' "$(quoted "$1")"
    else quoted_list "$1"; fi
}

train_recipe() {
    local arguments=(recipe="$1" hardware="${HARDWARE:-gpu8}")
    local model=${MODEL:-${MODEL_PATH:-}} train=${TRAIN:-${TRAIN_FILES:-}} valid=${VALID:-${VAL_FILES:-}}
    [[ -z ${METHOD:-} ]] || arguments+=(method="$METHOD")
    [[ -z ${CURRICULUM:-} ]] || arguments+=(curriculum="$CURRICULUM")
    [[ -z $model ]] || arguments+=(actor_rollout_ref.model.path="$(quoted "$model")")
    [[ -z $train ]] || arguments+=(data.train_files="$(file_list "$train")")
    [[ -z $valid ]] || arguments+=(data.val_files="$(file_list "$valid")")
    [[ -z ${SFT_TRAIN:-} ]] || arguments+=(seele.sft.train_files="$(file_list "$SFT_TRAIN")")
    [[ -z ${OUT:-} ]] || arguments+=(trainer.default_local_dir="$(quoted "$OUT")")
    run python -m seele_verl.train "${arguments[@]}" "${@:2}"
}
