#!/usr/bin/env bash
# Make .venv or bring it up to date. If it is up to date, this does nothing, in well under a second.
#
#   needs    python3 with venv and pip: Python 3.11 for the CPU stack, 3.11 or 3.12 for the others;
#            for the GPU stack, and for the reasoning tasks (requirements-tasks.txt), a C compiler and Python's headers
#   writes   .venv/  (4 GB on a CPU, 11 GB for GPUs); .venv-parity/ for the parity stack (7 GB with PyPI's torch)
#   takes    half a minute on a CPU from a warm package cache; three minutes for GPUs, 4.6 GB of downloads at 34 MB/s
#
#   bash scripts/setup.sh            # the stack that .venv has; at first the GPU stack if nvidia-smi lists a GPU
#   bash scripts/setup.sh cpu
#   bash scripts/setup.sh gpu        # wheels only: no CUDA toolkit; with flash-attn if PIP_FIND_LINKS has its wheel
#   bash scripts/setup.sh parity     # .venv-parity: the GPU stack's versions on a CPU (scripts/test.sh --stack parity)
#   FLASH_ATTN=source bash scripts/setup.sh gpu      # compiles flash-attn too, which needs nvcc and up to an hour
#   PYTHON=python3.11 PIP_FIND_LINKS=/my/wheels bash scripts/setup.sh      # this interpreter, your own wheels
#   DRY_RUN=1 bash scripts/setup.sh  # only print the commands
set -euo pipefail
cd -P "$(dirname "${BASH_SOURCE[0]}")/.."

UV_VERSION=0.13.8

default_stack() {
    if [ -e .venv/.seele-cpu ]; then echo cpu
    elif [ -e .venv/.seele-gpu ] || nvidia-smi -L &>/dev/null; then echo gpu
    else echo cpu; fi
}

stack="${1:-$(default_stack)}"
venv=.venv versions="(3, 11), (3, 12)" candidates=(python3 python3.12 python3.11) sources=()
case "$stack" in
    cpu) requirements=requirements-cpu.txt versions="(3, 11)," candidates=(python3.11 python3) ;;
    gpu) requirements=requirements.txt ;;
    parity) requirements=requirements-parity.txt venv=.venv-parity ;;
    *) echo "setup: unknown stack '$stack'; allowed are cpu, gpu and parity" >&2; exit 2 ;;
esac
flash_attn="${FLASH_ATTN:-}"
case "$stack $flash_attn" in
    *" " | "gpu source") ;;
    *) echo "setup: FLASH_ATTN='$flash_attn' with the $stack stack; allowed is source, with the gpu stack" >&2; exit 2 ;;
esac
if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
venv_python="$venv/bin/python" uv="$venv/bin/uv"
stamp="$venv/.seele-$stack"
unfinished="$venv/.seele-unfinished"

# What the environment depends on; pyvenv.cfg holds the version and the path of its Python.
fingerprint() {
    { echo "$stack $PWD"; cat "$venv/pyvenv.cfg" setup.py requirements*.txt scripts/locks/* scripts/setup.sh; } | sha256sum
}

has_flash_attn() { compgen -G "$venv/lib/python*/site-packages/flash_attn-*.dist-info" >/dev/null; }

is_up_to_date() {
    [ -x "$venv_python" ] && [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint; echo "$PWD")" ] &&
        { [ -z "$flash_attn" ] || has_flash_attn; }
}

# Print why an existing environment cannot be built upon; nothing if it can.
defect() {
    local other
    if ! "$venv_python" -m pip --version &>/dev/null; then echo "has no working Python and pip"; return; fi
    if [ -e "$unfinished" ]; then echo "was left unfinished"; return; fi
    for other in "$venv"/.seele-*; do
        if [ -e "$other" ] && { [ "$other" != "$stamp" ] || [ "$(tail -n 1 "$other")" != "$PWD" ]; }; then
            echo "was made for another stack or another folder"
            return
        fi
    done
}

fits() { "$1" -c "import sys, ensurepip, venv; sys.exit(sys.version_info[:2] not in ($versions))" &>/dev/null; }

# Print the first interpreter that fits, or explain and fail.
find_python() {
    local python
    for python in "$@"; do
        if fits "$python"; then command -v "$python"; return; fi
    done
    {
        echo "setup: the $stack stack needs Python in [$versions] (major, minor) with venv and pip; found"
        for python in "$@"; do
            echo "    $python: $("$python" -c 'import sys, importlib.util as u; print(sys.version.split()[0],
                "" if u.find_spec("ensurepip") else "without ensurepip (Debian: apt install python3-venv)")' 2>/dev/null ||
                echo "not found")"
        done
        echo "Install one, or name it: PYTHON=/path/to/python3.11 bash scripts/setup.sh $stack"
    } >&2
    return 1
}

# nvcc compiles flash-attn; its CUDA must have the major version of torch's. Look for it where torch will.
check_nvcc() {
    local home="${CUDA_HOME:-${CUDA_PATH:-}}" nvcc found needed
    nvcc="${home:+$home/bin/nvcc}"
    nvcc="${nvcc:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}"
    found="$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')" || true
    needed="$(sed -n 's/^cuda-toolkit==\([0-9]*\)\..*/\1/p' scripts/locks/gpu.txt)"
    if [ "$found" = "$needed" ]; then return; fi
    {
        echo "setup: FLASH_ATTN=source needs the nvcc of CUDA $needed, with which torch was built; $nvcc" \
            "$([ -n "$found" ] && echo "is of CUDA $found" || echo "is missing")"
        echo "Install that toolkit and name it, CUDA_HOME=/usr/local/cuda-$needed, or omit FLASH_ATTN: runs work without it"
    } >&2
    return 1
}

# quietly WHAT COMMAND...: print one line of progress, and the end of the log if the command fails.
quietly() {
    local what=$1 start=$SECONDS
    shift
    if [ -n "${DRY_RUN:-}" ]; then echo "+ $(printf '%q ' "$@")"; return; fi
    printf 'setup: %s ...' "$what"
    if ! "$@" >>"$log" 2>&1; then
        { printf ' failed\n\n'; tail -n 25 "$log"; printf '\nsetup: that was the end of %s\n' "$log"; } >&2
        exit 1
    fi
    printf ' %d s\n' $((SECONDS - start))
}

if is_up_to_date; then echo "setup: $venv is up to date ($stack)"; exit; fi
if [ -z "${DRY_RUN:-}" ]; then
    # This file is the lock, so no lock file is left behind; NFS locks only what is open for writing. A system
    # without flock, or a file system without locks, takes the risk.
    exec 9<>scripts/setup.sh
    if command -v flock >/dev/null && ! flock -n 9; then
        echo "setup: waiting for another set-up of this folder"
        flock 9 || true
    fi
    if is_up_to_date; then echo "setup: $venv is up to date ($stack)"; exit; fi
fi

if [ "$flash_attn" = source ]; then check_nvcc; fi

log="${TMPDIR:-/tmp}/seele-setup-$$.log"
why="$(defect)"
if [ -n "$why" ]; then
    python="$(find_python "${candidates[@]}")"
    if [ -L "$venv" ]; then
        # venv --clear would empty the folder that the link points to, and then fail.
        echo "setup: $venv is a link to $(readlink "$venv"), which $why; Python makes no environment there: rm $venv" >&2
        exit 1
    fi
    [ ! -e "$venv" ] || echo "setup: $venv $why and is rebuilt"
    quietly "creating $venv ($("$python" --version))" "$python" -m venv --clear "$venv"
elif ! fits "$venv_python"; then
    echo "setup: $venv has $("$venv_python" --version), the $stack stack needs one of $versions; remove $venv first" >&2
    exit 1
fi

has_headers='import sysconfig, pathlib, sys; sys.exit(not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").is_file())'
compiles() { command -v cc >/dev/null && "$venv_python" -c "$has_headers"; }
if [ "$stack" = gpu ] && [ -z "${DRY_RUN:-}" ] && ! compiles; then
    # Triton compiles during a run.
    echo "setup: the gpu stack needs a C compiler and Python's headers (Debian: apt install gcc python3-dev)" >&2
    exit 1
fi

if [ -z "${DRY_RUN:-}" ]; then
    # If this script ends before the stamp is written, the environment is not trusted.
    rm -f "$venv"/.seele-*
    touch "$unfinished"
fi

if [ -n "${PIP_FIND_LINKS:-}" ]; then
    export UV_FIND_LINKS="${UV_FIND_LINKS:-${PIP_FIND_LINKS// /,}}"
elif [ "$stack" != gpu ]; then
    sources+=(--torch-backend cpu)
fi
if [ -n "${PIP_INDEX_URL:-}" ]; then export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}"; fi
if [ "$stack" != gpu ]; then sources+=(--overrides "scripts/locks/$stack-overrides.txt"); fi

if [[ "$("$uv" --version 2>/dev/null)" != "uv $UV_VERSION"* ]]; then
    quietly "installing uv $UV_VERSION" \
        "$venv_python" -m pip install --disable-pip-version-check "uv==$UV_VERSION"
fi
install() { quietly "installing $1" "$uv" pip install --python "$venv_python" -r "$1" "${@:2}"; }
locked=(--constraints "scripts/locks/$stack.txt" "${sources[@]}")

install "$requirements" "${locked[@]}"
if [ -n "${DRY_RUN:-}" ] || compiles; then
    install requirements-tasks.txt "${locked[@]}"
else
    echo "setup: no C compiler or no Python headers (Debian: gcc, python3-dev), so the reasoning tasks are skipped: requirements-tasks.txt"
fi
# Everything that flash-attn needs is installed by now. Its setup.py would take a wheel for another CUDA if it found one.
if [ "$flash_attn" = source ]; then
    FLASH_ATTENTION_FORCE_BUILD=TRUE install requirements-flash-attn.txt --no-deps --no-build-isolation
elif [ "$stack" = gpu ] && [ -n "${PIP_FIND_LINKS:-}" ]; then
    wheel=(pip install --python "$venv_python" --no-deps --no-index --only-binary flash-attn
        "$(grep '^flash-attn==' requirements-flash-attn.txt)")
    if [ -n "${DRY_RUN:-}" ] || "$uv" "${wheel[@]}" --dry-run &>/dev/null; then
        quietly "installing flash-attn from PIP_FIND_LINKS" "$uv" "${wheel[@]}"
    fi
fi
quietly "installing seele, editable" \
    "$uv" pip install --python "$venv_python" --no-deps --no-build-isolation --editable .

if [ -z "${DRY_RUN:-}" ]; then
    { fingerprint; echo "$PWD"; } >"$unfinished"
    mv "$unfinished" "$stamp"
    rm -f "$log"
    echo "setup: $venv is ready ($stack)"
    if [ "$stack" = gpu ] && ! has_flash_attn; then
        echo "setup: attention uses a kernel from the Hugging Face hub; for nodes without a network, fetch it now:"
        echo "    $venv_python -c \"from kernels import install_kernel; install_kernel('kernels-community/flash-attn2', 'main')\""
    fi
fi
