#!/usr/bin/env bash
# Build the Containerfile without a registry and without a daemon: buildah, on a base that debootstrap makes.
#
#   needs    root; debootstrap and buildah (Debian: apt install debootstrap buildah); 25 GB in $WORK for the CPU stack
#   writes   $WORK/{root,store,run}, which `rm -rf $WORK` removes
#   takes    see a run's times in log.txt in this folder
#
#   WORK=/tmp/containerfile STACK=cpu bash benchmarks/containerfile/build.sh
#   PIP_FIND_LINKS=/my/wheels bash benchmarks/containerfile/build.sh       # your own wheels, mounted for the build
#   CERTIFICATES=/my/certificates bash benchmarks/containerfile/build.sh   # *.crt of a network that needs them
set -euo pipefail
cd -P "$(dirname "${BASH_SOURCE[0]}")/../.."

: "${WORK:=/tmp/containerfile}" "${STACK:=cpu}" "${PIP_FIND_LINKS:=}" "${CERTIFICATES:=}"
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
base=$(sed -n 's/^FROM //p' Containerfile)
tool=(buildah --root "$WORK/store" --runroot "$WORK/run")
say() { printf '== %s s: %s\n' "$SECONDS" "$*"; }

mkdir -p "$WORK"
if [ ! -e "$WORK/root/etc/debian_version" ]; then
    say "making an empty Debian (bookworm, minbase)"
    debootstrap --variant=minbase bookworm "$WORK/root" >"$WORK/debootstrap.log"
fi
say "importing it as $base"
container=$("${tool[@]}" from scratch)
tar -C "$WORK/root" -cf "$WORK/root.tar" .
"${tool[@]}" add --quiet "$container" "$WORK/root.tar" /
if [ -n "$CERTIFICATES" ]; then
    "${tool[@]}" add --quiet "$container" "$CERTIFICATES" /usr/local/share/ca-certificates
    for name in SSL_CERT_FILE PIP_CERT; do
        "${tool[@]}" config --env "$name=/etc/ssl/certs/ca-certificates.crt" "$container"
    done
fi
"${tool[@]}" commit --quiet "$container" "$base" >/dev/null
"${tool[@]}" rm "$container" >/dev/null
rm "$WORK/root.tar"

arguments=(--build-arg STACK="$STACK")
if [ -n "$PIP_FIND_LINKS" ]; then
    arguments+=(--build-arg PIP_FIND_LINKS="$PIP_FIND_LINKS" --volume "$PIP_FIND_LINKS:$PIP_FIND_LINKS:ro")
fi
say "building the Containerfile (STACK=$STACK)"
"${tool[@]}" bud --pull=never --network host --tag "seele:$STACK" "${arguments[@]}" .

say "what the image can run"
container=$("${tool[@]}" from --pull=never "localhost/seele:$STACK")
"${tool[@]}" run "$container" -- bash -c 'seele doctor && du -sh /opt/seele/.venv; git log -1 --format="commit %h"; git status --short'
"${tool[@]}" rm "$container" >/dev/null
say "done"
