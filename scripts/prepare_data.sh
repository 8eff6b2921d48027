#!/usr/bin/env bash
# Prepare the problems that training and evaluation read.
#
#   needs    .venv (scripts/setup.sh); for gsm8k the hub, or SOURCE, a folder with train.jsonl and test.jsonl
#   writes   data/prepared/$DATA/{train,heldout,...}.parquet and manifest.json
#
#   bash scripts/prepare_data.sh
#   DATA=gsm8k SOURCE=path/to/gsm8k bash scripts/prepare_data.sh
source "$(dirname "$0")/lib/common.sh"

: "${DATA:=chains}"
: "${OUT:=data/prepared/$DATA}"

run seele data prepare "$DATA" --out "$OUT" ${SOURCE:+--source "$SOURCE"} "$@"
