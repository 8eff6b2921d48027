#!/usr/bin/env bash
# Build the documentation site; a broken link is an error.
#
#   needs    python3 (3.11 or newer) with venv and pip
#   writes   .venv-docs/ (180 MB), site/
#
#   bash scripts/docs.sh              # site/index.html
#   bash scripts/docs.sh serve        # at http://127.0.0.1:8000, rebuilt whenever a page changes
set -euo pipefail
cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
run() {
    printf '+%s\n' "$(printf ' %q' "$@")"
    [ -n "${DRY_RUN:-}" ] || "$@"
}

versions=scripts/docs_requirements.txt
if ! cmp -s "$versions" .venv-docs/versions; then
    run "${PYTHON:-python3}" -m venv --clear .venv-docs
    run .venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --requirement "$versions"
    run cp "$versions" .venv-docs/versions
fi
command=(build --strict)
if [ "${1:-}" = serve ]; then command=(serve); fi
NO_MKDOCS_2_WARNING=1 run .venv-docs/bin/mkdocs "${command[@]}"
