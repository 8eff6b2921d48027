#!/usr/bin/env bash
# The whole way on one machine: set-up, tiny base model, data, SEELE training, merge, evaluation, report.
#
#   needs    python3 (3.11 on a machine without a GPU) with venv and pip
#   writes   .venv, data/prepared/chains/, models/, and $OUT: run, merged model, eval/, report/index.html
#   takes    five minutes on two cores (docs/quickstart.md)
#
#   bash scripts/quickstart.sh
#   OUT=runs/grpo bash scripts/quickstart.sh method=grpo     # arguments are Hydra overrides
source "$(dirname "$0")/lib/common.sh"

: "${OUT:=runs/quickstart}"
for override in "$@"; do
    [[ "$override" != trainer.default_local_dir=* ]] || OUT=$(unquoted "${override#*=}")
done

run bash scripts/setup.sh
: "${HARDWARE:=$([ -e .venv/.seele-gpu ] && echo gpu_tiny || echo cpu)}"
run seele data prepare chains --out data/prepared/chains
run seele model base --task chains --out models
echo "The base model is weak: the warning after step 0, that most responses have no end, is expected."
run python -m seele_verl.train method=seele hardware="$HARDWARE" job=tiny model=tiny data=chains \
    trainer.default_local_dir="$(quoted "$OUT")" "$@"
# The default share of a GPU would be millions of cache blocks for such a small model.
run env -u MODEL -u STEPS -u LAST_STEP -u BENCHMARKS -u PROBLEMS CKPT_DIR="$OUT" OUT="$OUT/eval" bash scripts/eval.sh --gpu-memory-share 0.1
run seele report "$OUT" --out "$OUT/report"
