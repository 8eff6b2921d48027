#!/usr/bin/env bash
# Evaluate without hints: merge the checkpoint of LAST_STEP in CKPT_DIR, then generate and grade with vLLM.
#
#   needs    $CKPT_DIR/global_step_*/ of a training run (default: the newest under runs/), or MODEL, a Hugging Face folder
#   writes   $CKPT_DIR/merged/ and $OUT/{scores.json,scores.md,predictions.jsonl}
#
#   bash scripts/eval.sh
#   CKPT_DIR=runs/try LAST_STEP=40 bash scripts/eval.sh --temperature 0 1 --samples 4
#   CKPT_DIR=runs/try PROBLEMS="harder=data/chains/harder.parquet" OUT=runs/try/harder bash scripts/eval.sh
#   MODEL=path/to/model BENCHMARKS=gsm8k,math500 DATA_DIR=data OUT=runs/model bash scripts/eval.sh
source "$(dirname "$0")/lib/common.sh"

: "${MODEL:=}"
: "${LAST_STEP:=last}"
: "${BENCHMARKS:=}"
: "${DATA_DIR:=data}"
: "${PROBLEMS:=}"

if [[ -z "$MODEL" ]]; then
    # shellcheck disable=SC2012  # newest first is what ls is for
    : "${CKPT_DIR:=$(ls -td runs/* 2>/dev/null | head -n 1)}"
    CKPT_DIR=${CKPT_DIR:-runs/seele}
    run python -m seele_verl.merge "$CKPT_DIR" --step "$LAST_STEP"
fi

arguments=()
[[ -z "$MODEL" ]] || arguments+=(--model "$MODEL")
[[ -z "${CKPT_DIR:-}" ]] || arguments+=(--run "$CKPT_DIR")
[[ -z "$BENCHMARKS" ]] || arguments+=(--benchmarks "$BENCHMARKS" --data-dir "$DATA_DIR")
# shellcheck disable=SC2206  # NAME=FILE pairs stand apart by spaces
[[ -z "$PROBLEMS" ]] || arguments+=(--problems $PROBLEMS)

: "${OUT:=${CKPT_DIR:-$MODEL}/eval}"
run python -m seele_eval.run "${arguments[@]}" --out "$OUT" "$@"
