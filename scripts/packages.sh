#!/usr/bin/env bash
# What a verb needs from the system: a C++ compiler, venv and headers of the chosen Python and, where asked for, `node`,
# `chromium`, or what builds and runs a container `image`. Installs the missing Debian packages as root; otherwise prints
# the command that does.
# usage: scripts/packages.sh PYTHON [node|chromium|image]
set -euo pipefail

fail() {
    echo "soliton: $1" >&2
    exit 2
}

python=$1
[ -n "$python" ] || fail "no Python >= 3.11 found; install one, or name it: make PYTHON=/path/to/python3"
command -v "$python" >/dev/null || fail "PYTHON=$python: no such program; name a Python >= 3.11, or leave PYTHON out"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
    fail "PYTHON=$python: is not a working Python interpreter"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "PYTHON=$python: is Python $version; 3.11 or later is needed"

missing=()
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=("python$version-venv")
"$python" -c 'import os, sysconfig; open(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' 2>/dev/null ||
    missing+=("python$version-dev")
command -v c++ >/dev/null || missing+=(g++)
if [ "${2:-}" = node ]; then
    command -v node >/dev/null || missing+=(nodejs)
    command -v npm >/dev/null || missing+=(npm)
fi
# Without it the tests of the pages are skipped, so only root, who can install it, is asked for it.
if [ "${2:-}" = chromium ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    command -v chromium >/dev/null || missing+=(chromium)
fi
if [ "${2:-}" = image ]; then
    for tool in buildah podman debootstrap; do
        command -v $tool >/dev/null || missing+=($tool)
    done
    command -v runc >/dev/null || command -v crun >/dev/null || missing+=(runc)
    [ -e /usr/lib/podman/netavark ] || [ -e /usr/lib/cni/bridge ] || missing+=(containernetworking-plugins)
fi
[ ${#missing[@]} -eq 0 ] && exit 0

command -v apt-get >/dev/null || fail "system packages are missing: ${missing[*]} (Debian's names)"
[ "$(id -u)" = 0 ] || fail "system packages are missing; install them: sudo apt install ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
echo "installing ${missing[*]}"
apt-get -qq update
apt-get -qq install --no-install-recommends "${missing[@]}" >/dev/null
