#!/usr/bin/env bash
# Run the test suite.
#
#   needs    nothing: the environment is made if missing (scripts/setup.sh)
#   writes   .venv/ if missing (4 GB), with --stack parity .venv-parity/; the tools' caches
#
#   bash scripts/test.sh                              # everything
#   bash scripts/test.sh tests/unit -k curve          # arguments go to pytest
#   bash scripts/test.sh --stack parity               # on a CPU with the GPU stack's torch, vLLM and transformers
#   SEELE_REQUIRE=integration bash scripts/test.sh tests/integration  # fail these tests, rather than skip them, if something they need is missing
source "$(dirname "$0")/lib/common.sh"

stack=()
if [ "${1:-}" = --stack ]; then
    if [ "${2:-}" != parity ]; then
        echo "test: unknown stack '${2:-}' after --stack; allowed is parity, and without --stack the tests run in .venv" >&2
        exit 2
    fi
    shift 2
    stack=(parity)
    export PATH="$PWD/.venv-parity/bin:$PATH"
fi
bash scripts/setup.sh "${stack[@]}"

if [ $# -gt 0 ]; then
    run python -m pytest "$@"
    exit
fi
# A file at a time, in three processes, because many tests wait. The integration tests take longest, so they run first.
# xdist waits forever for the tests of a process that died, unless it may not start another.
run python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations=10 \
    tests/integration tests/gpu tests/contract tests/unit
