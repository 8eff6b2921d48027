# shellcheck shell=bash
# Sourced by every script: fail early, stand in the root, use .venv, and print each command before it runs.
set -euo pipefail
cd -P "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH="$PWD/.venv/bin:$PATH"
[ -x .venv/bin/python ] || echo "There is no .venv yet; scripts/setup.sh makes it." >&2
run() {
    printf '+%s\n' "$(printf ' %q' "$@")"
    [ -n "${DRY_RUN:-}" ] || "$@"
}
