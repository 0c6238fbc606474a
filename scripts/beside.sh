#!/usr/bin/env bash
# Makes an environment beside .venv that sees its packages, and its own if those do not fit.
# usage: scripts/beside.sh DIRECTORY REQUIREMENTS [PIP-OPTION...]
set -euo pipefail

directory=$1 requirements=$2
shift 2
packages_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

rm -rf "$directory"
.venv/bin/python -m venv --without-pip "$directory"
# Also what is installed in place, as this project is.
echo "import site; site.addsitedir('$(packages_of .venv/bin/python)')" \
    >"$(packages_of "$directory/bin/python")/shared.pth"
.venv/bin/python -m pip --python "$directory" install --quiet --disable-pip-version-check "$@" \
    --requirement "$requirements"
