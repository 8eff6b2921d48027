#!/usr/bin/env bash
# Run the core's tests with only the core installed: no torch, verl, Ray, vLLM, Hydra or transformers.
#
#   needs    Python 3.11 or 3.12 with venv and pip: python3, or the interpreter that PYTHON names
#   writes   .venv-core/, rebuilt each time
#
#   bash scripts/test_core.sh                          # tests that need a missing library are skipped, with the reason; the
#                                                      # others must cover 90 % of seele/
#   PYTHON=python3.12 bash scripts/test_core.sh -k irt # arguments go to pytest; coverage is not measured
set -euo pipefail
cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
run() {
    printf '+%s\n' "$(printf ' %q' "$@")"
    [ -n "${DRY_RUN:-}" ] || "$@"
}

run "${PYTHON:-python3}" -m venv --clear .venv-core
# Install from a copy, because a build leaves folders behind. The lock has versions that the tests pass with.
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
cp -r setup.py LICENSE NOTICE seele seele_models verl simpleRL-reason "$source"
run .venv-core/bin/python -m pip install --quiet --disable-pip-version-check --constraint scripts/locks/cpu.txt \
    "$source" pytest pytest-cov pytest-xdist hypothesis
run .venv-core/bin/python -c "import importlib.util as u, sys
sys.exit(str(found) if (found := [*filter(u.find_spec, ('torch', 'ray', 'vllm', 'hydra', 'transformers'))]) else 0)"
# Coverage is measured here, because tracing doubles the time of the libraries that are missing here.
[ $# -gt 0 ] || set -- --cov=seele --cov-report=term:skip-covered --cov-fail-under=90
run .venv-core/bin/python -m pytest tests/unit -q -n auto --dist loadfile "$@"
