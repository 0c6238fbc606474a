#!/usr/bin/env bash
# What a verb needs from the system: a C++ compiler, venv and headers of the chosen Python, and `node` or `chromium` where
# asked for. Installs the missing Debian packages as root; names them in one line otherwise.
# usage: scripts/packages.sh PYTHON [node|chromium]
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
# Without it the tests of the pages are skipped, so only root, who can install it, is asked for it.
if [ "${2:-}" = chromium ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    command -v chromium >/dev/null || missing+=(chromium)
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
