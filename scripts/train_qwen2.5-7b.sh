#!/usr/bin/env bash
# A run of the paper's sizes (arXiv:2509.06923, section 5.1) from Qwen2.5-7B, on all of DeepMath: SEELE with our
# controller, or another METHOD; METHOD=seele_paper has the paper's controller. The paper's own run is
# recipe=seele_qwen2.5-7b.
#
#   needs    .venv of the GPU stack; TRAIN and VALID, parquet files of problems with worked steps
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes an existing run
#   takes    not measured yet
#
#   TRAIN=data/prepared/deepmath/train.parquet VALID=data/prepared/deepmath/heldout.parquet \
#       bash scripts/train_qwen2.5-7b.sh
#   METHOD=seele_paper bash scripts/train_qwen2.5-7b.sh seele.hints.target_accuracy=0.4
source "$(dirname "$0")/lib/common.sh"

: "${METHOD:=seele}"
: "${MODEL:=Qwen/Qwen2.5-7B}"
: "${TRAIN:=data/prepared/deepmath/train.parquet}"
: "${VALID:=data/prepared/deepmath/heldout.parquet}"
: "${OUT:=runs/$METHOD-qwen2.5-7b}"
: "${HARDWARE:=gpu8}"

train \
    method="$METHOD" \
    model=qwen2_5_7b \
    hardware="$HARDWARE" \
    actor_rollout_ref.model.path="$(quoted "$MODEL")" \
    data.train_files="$(quoted_list "$TRAIN")" \
    data.val_files="$(quoted_list "$VALID")" \
    trainer.default_local_dir="$(quoted "$OUT")" \
    "$@"
