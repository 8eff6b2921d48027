#!/usr/bin/env bash
# The paper's run, SEELE from Qwen2.5-7B on one node with 8 GPUs of 80 GB (arXiv:2509.06923, section 5.1), with
# our controller; with the argument method=seele_paper, with the paper's.
#
#   needs    .venv of the GPU stack; TRAIN and VALID, parquet files of problems with worked steps
#   writes   $OUT/{resolved.yaml,run_card.json,metrics.jsonl,rollouts/,global_step_*/}; resumes an existing run
#   takes    not measured yet
#
#   TRAIN=data/prepared/deepmath/train.parquet VALID=data/prepared/deepmath/heldout.parquet \
#       bash scripts/train_qwen2.5-7b.sh
#   OUT=runs/try bash scripts/train_qwen2.5-7b.sh seele.hints.target_accuracy=0.4
source "$(dirname "$0")/lib/common.sh"

: "${MODEL:=Qwen/Qwen2.5-7B}"
: "${TRAIN:=data/prepared/deepmath/train.parquet}"
: "${VALID:=data/prepared/deepmath/heldout.parquet}"
: "${OUT:=runs/seele-qwen2.5-7b}"

train \
    method=seele \
    model=qwen2_5_7b \
    hardware=gpu8 \
    actor_rollout_ref.model.path="$(quoted "$MODEL")" \
    data.train_files="$(quoted_list "$TRAIN")" \
    data.val_files="$(quoted_list "$VALID")" \
    trainer.default_local_dir="$(quoted "$OUT")" \
    "$@"
