#!/usr/bin/env bash
# Build the documentation site, where a broken link is an error, and look at it in a browser.
#
#   needs    python3 (3.11 or newer) with venv and pip; chromium or google-chrome, or the look is skipped
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
export NO_MKDOCS_2_WARNING=1
if [ "${1:-}" = serve ]; then
    run .venv-docs/bin/mkdocs serve
    exit
fi
run .venv-docs/bin/mkdocs build --strict
# Without the suite's settings and fixtures, which need more libraries.
export SEELE_SITE=site
run .venv-docs/bin/python -m pytest -q -rs -c /dev/null --rootdir . --noconftest -p no:cacheprovider \
    tests/contract/test_built_site.py
