#!/usr/bin/env bash
# Evaluate without hints: merge the checkpoint of LAST_STEP in CKPT_DIR, then generate and grade with vLLM.
# The same command resumes a killed evaluation. All settings: python -m seele_eval.run --help, docs/evaluation.md.
#
#   needs    $CKPT_DIR/global_step_*/ of a training run (default: the newest under runs/), or MODEL: a Hugging Face
#            folder, or a name on the hub; BENCHMARKS from the hub, or from folders below DATA_DIR (docs/evaluation.md)
#   writes   $CKPT_DIR/merged/ and $OUT/{scores.json,scores.md,pass_at_k.png,predictions.jsonl}; with STEPS these in
#            $OUT/step_N/ for each checkpoint, and the curve over them, $OUT/curve.{md,json,png}
#
#   bash scripts/eval.sh
#   CKPT_DIR=runs/seele BENCHMARKS=all bash scripts/eval.sh
#   CKPT_DIR=runs/seele STEPS="80 160 240" BENCHMARKS=math500 bash scripts/eval.sh      # or STEPS=all
#   CKPT_DIR=runs/try PROBLEMS="harder=data/prepared/chains/harder.parquet" OUT=runs/try/harder bash scripts/eval.sh
#   MODEL=Qwen/Qwen2.5-1.5B BENCHMARKS=gsm8k,math500 bash scripts/eval.sh --template qwen   # all nine by default
#   CKPT_DIR=runs/seele BENCHMARKS=gsm8k,mine.yaml bash scripts/eval.sh                 # your own benchmark (docs/evaluation.md)
#   MODEL=Qwen/Qwen2.5-1.5B CKPT_DIR=runs/seele bash scripts/eval.sh                    # the base model under the run's settings
#   BENCHMARKS=luffy bash scripts/eval.sh --temperature 0.6 --max-tokens 8192 --after-thinking     # further options
source "$(dirname "$0")/lib/common.sh"

: "${MODEL:=}"
: "${LAST_STEP:=last}"
: "${STEPS:=}"
: "${BENCHMARKS:=}"
: "${DATA_DIR:=}"
: "${PROBLEMS:=}"

arguments=()
if [[ -n "$MODEL" ]]; then
    arguments+=(--model "$MODEL")
    # A model without a run has no validation files to be evaluated on.
    [[ -n "$BENCHMARKS$PROBLEMS${CKPT_DIR:-}" || " $*" =~ " --"(benchmarks|problems|run) ]] || BENCHMARKS=all
    if [[ -n "$STEPS" ]]; then
        echo "STEPS=$STEPS: these are checkpoints of CKPT_DIR, but MODEL=$MODEL is one model; unset one of them" >&2
        exit 2
    fi
    [[ -d "$MODEL" ]] && default_out="$MODEL/eval" || default_out="runs/${MODEL//\//--}/eval"
    # A run replaces these folders when it merges or exports another checkpoint.
    folder=$(realpath -m "$MODEL")
    [[ ! "${folder##*/}" =~ ^(merged|export)$ || ! -e "${folder%/*}/resolved.yaml" ]] || default_out="${MODEL%/}_eval"
else
    : "${CKPT_DIR:=$(newest_run)}"
fi
[[ -z "${CKPT_DIR:-}" ]] || arguments+=(--run "$CKPT_DIR")
[[ -z "$BENCHMARKS" ]] || arguments+=(--benchmarks "$BENCHMARKS")
[[ -z "$DATA_DIR" ]] || arguments+=(--data-dir "$DATA_DIR")
# shellcheck disable=SC2206  # spaces separate NAME=FILE pairs
[[ -z "$PROBLEMS" ]] || arguments+=(--problems $PROBLEMS)
: "${OUT:=${default_out:-$CKPT_DIR/eval}}"

if [[ -z "$STEPS" ]]; then
    [[ -n "$MODEL" ]] || run python -m seele_verl.merge "$CKPT_DIR" --step "$LAST_STEP"
    run python -m seele_eval.run "${arguments[@]}" --out "$OUT" "$@"
    exit
fi

[[ "$STEPS" != all ]] || STEPS=$(python -m seele_verl.merge "$CKPT_DIR" --list)
for step in $STEPS; do
    run python -m seele_verl.merge "$CKPT_DIR" --step "$step"
    run python -m seele_eval.run "${arguments[@]}" --name "step $step" --out "$OUT/step_$step" "$@"
done
run python -m seele_eval.curve "$OUT"
