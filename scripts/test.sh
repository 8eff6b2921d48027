#!/usr/bin/env bash
# Run the test suite.
#
#   needs    nothing: the environment is made if missing (scripts/setup.sh)
#   writes   .venv/ if missing (4 GB), with --stack parity .venv-parity/; the tools' caches
#
#   bash scripts/test.sh                              # everything; the unit tests must cover 90 % of seele/
#   bash scripts/test.sh tests/unit -k curve          # arguments go to pytest; coverage is not measured
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
spread=(-q -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations=10)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
part() {
    run python -m pytest "${spread[@]}" "$@" 2>&1 | tee -a "$log" || failed=1
}
# Tracing doubles the libraries' time, so only the measured part is traced.
part tests/integration tests/gpu tests/contract
part tests/unit --cov=seele --cov-report=term:skip-covered --cov-fail-under=90
# Failures of the first part are far above, so repeat them last.
grep -E '^(FAILED|ERROR) ' "$log" || true
exit "$failed"
