# shellcheck shell=bash
# Sourced by every script: fail early, change to the root, use .venv, and print each command before it runs.
set -euo pipefail
cd -P "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH="$PWD/.venv/bin:$PATH"
# Otherwise each of a run's processes compiles everything it imports.
unset PYTHONDONTWRITEBYTECODE
[ -x .venv/bin/python ] || echo "There is no .venv yet; scripts/setup.sh makes it." >&2
run() {
    printf '+%s\n' "$(printf ' %q' "$@")"
    [ -n "${DRY_RUN:-}" ] || "$@"
}
# The folder of the newest run in runs/, or runs/seele.
newest_run() {
    local settings
    # shellcheck disable=SC2012  # newest first is what ls is for
    settings=$(ls -t runs/*/resolved.yaml 2>/dev/null | head -n 1) || true
    dirname "${settings:-runs/seele/resolved.yaml}"
}
# A training run, which restarts by itself after a fault, or an hour without a sign of life, and saves every half an
# hour; your own override comes later and wins. It takes the script's place, so that a signal to the script reaches the run: nothing after it is run.
train() {
    set -- python -m seele_verl.train trainer.max_restarts=3 trainer.watchdog_minutes=60 seele.save_every_minutes=30 "$@"
    DRY_RUN=1 run "$@"
    [ -n "${DRY_RUN:-}" ] || exec "$@"
}
# Train from a base model, by default with SEELE on DeepMath and 8 GPUs: train_model MODEL_CONFIG PATH RUN [OVERRIDE...].
# METHOD, MODEL, TRAIN, VALID, OUT and HARDWARE in the environment replace the defaults; so do the groups model=NAME and
# data=NAME among the overrides, unless the environment names a path.
train_model() {
    local config=$1 path=$2 run=$3 files=data/prepared/deepmath each
    shift 3
    for each in "$@"; do
        case "$each" in
            method=*) echo "$each: set METHOD=${each#*=}, which also names the run's folder" >&2 && exit 2 ;;
            recipe=*) echo "$each: bash scripts/train_recipe.sh ${each#*=}" >&2 && exit 2 ;;
            model=*) path='' run=${each#*=} ;;
            data=*) files= ;;
        esac
    done
    : "${METHOD:=seele}"
    : "${MODEL:=$path}"
    : "${TRAIN:=${files:+$files/train.parquet}}"
    : "${VALID:=${files:+$files/heldout.parquet}}"
    : "${OUT:=runs/$METHOD-$run}"
    : "${HARDWARE:=gpu8}"
    train \
        method="$METHOD" \
        model="$config" \
        hardware="$HARDWARE" \
        ${MODEL:+"actor_rollout_ref.model.path=$(quoted "$MODEL")"} \
        ${TRAIN:+"data.train_files=$(quoted_list "$TRAIN")"} \
        ${VALID:+"data.val_files=$(quoted_list "$VALID")"} \
        trainer.default_local_dir="$(quoted "$OUT")" \
        "$@"
}
# Quote a path as a Hydra value, whatever characters it has; comma-separated paths as a list; and undo it.
quote="'"
quoted() { printf '%s' "$quote${1//$quote/\\$quote}$quote"; }
quoted_list() {
    local paths
    paths=$(quoted "$1")
    printf '%s' "[${paths//,/$quote,$quote}]"
}
unquoted() {
    local value=$1
    if [[ "$value" == \'*\' || "$value" == \"*\" ]]; then value=${value:1:-1}; fi
    printf '%s' "${value//\\$quote/$quote}"
}
