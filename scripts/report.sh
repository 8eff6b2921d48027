#!/usr/bin/env bash
# Report of a run: one page with figures, and summary.json.
#
#   needs    $CKPT_DIR/ of a training run, finished or not (default: the newest run of runs/)
#   writes   $OUT/{index.html,rollouts.html,summary.json,*.png}
#
#   bash scripts/report.sh
#   CKPT_DIR=runs/try OUT=report bash scripts/report.sh
source "$(dirname "$0")/lib/common.sh"

: "${CKPT_DIR:=$(newest_run)}"
: "${OUT:=${CKPT_DIR}/report}"

run seele report "$CKPT_DIR" --out "$OUT" "$@"
