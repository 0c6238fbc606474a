#!/usr/bin/env bash
# What a verb needs from the system: a C++ compiler, venv and headers of the chosen Python, and where asked for `node` or
# what builds and runs a container `image`.
# Installs the missing Debian packages as root; names them in one line otherwise.
# usage: scripts/packages.sh PYTHON [node|image]
set -euo pipefail

python=$1
if [ -z "$python" ]; then
    echo "soliton: no Python >= 3.11 found; install one, or name it: make PYTHON=/path/to/python3" >&2
    exit 2
fi
python_package=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')

missing=()
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=("$python_package-venv")
"$python" -c 'import os, sysconfig; open(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' 2>/dev/null ||
    missing+=("$python_package-dev")
command -v c++ >/dev/null || missing+=(g++)
if [ "${2:-}" = node ]; then
    command -v node >/dev/null || missing+=(nodejs)
    command -v npm >/dev/null || missing+=(npm)
fi
if [ "${2:-}" = image ]; then
    for tool in buildah podman debootstrap; do
        command -v $tool >/dev/null || missing+=($tool)
    done
    command -v runc >/dev/null || command -v crun >/dev/null || missing+=(runc)
    [ -e /usr/lib/podman/netavark ] || [ -e /usr/lib/cni/bridge ] || missing+=(containernetworking-plugins)
fi
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "soliton: this needs system packages that are missing: ${missing[*]} (Debian's names)" >&2
    exit 2
fi
export DEBIAN_FRONTEND=noninteractive
echo "installing ${missing[*]}"
apt-get -qq update
apt-get -qq install --no-install-recommends "${missing[@]}" >/dev/null
