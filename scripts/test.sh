#!/usr/bin/env bash
# Run the test suite.
#
#   needs    nothing: the environment is made where it is not there (scripts/setup.sh)
#   writes   caches of the tools only
#
#   bash scripts/test.sh                              # everything; coverage of seele/ must stay above 90 %
#   bash scripts/test.sh tests/unit -k curve          # arguments go to pytest, coverage is left out
#   bash scripts/test.sh --stack parity               # on a CPU with the GPU stack's torch, vLLM and transformers
#   SEELE_REQUIRE=integration bash scripts/test.sh tests/integration  # what these tests need and is missing is a failure, not a skip
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

if [ $# -eq 0 ]; then
    # The integration tests wait much: three processes, a file at a time. xdist waits for ever for what a process
    # that died should have run, unless it may not start another.
    set -- -q -n 3 --dist loadfile --max-worker-restart 0 --durations=10 --cov=seele --cov-report=term:skip-covered --cov-fail-under=90
fi
run python -m pytest "$@"
