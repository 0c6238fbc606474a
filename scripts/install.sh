#!/usr/bin/env bash
# Installs this directory into .venv, with the extras, after it has said how much that is and found room for it.
# TORCH: arguments of a first `pip install`, for another build of torch than pip's default.
# usage: scripts/install.sh PYTHON [EXTRA...]
set -euo pipefail

python=$1
shift
extras=$(IFS=, && echo "$*")

# The largest package, and megabytes to download and on disk: measured with Python 3.11 on x86-64.
case ",$extras," in
    *,test,*) largest=torch download=3300 disk=6300 ;;
    *,cuda,*) largest=torch download=3000 disk=5500 ;;
    *) largest=numpy download=90 disk=250 ;;
esac
[ -z "${TORCH:-}" ] || largest=torch download=500 disk=2000

if compgen -G ".venv/lib/python*/site-packages/$largest" >/dev/null; then
    echo 'bringing .venv up to date'
else
    echo "installing into .venv: about $download MB to download, $disk MB on disk; then a minute of compiling"
    free=$(df -Pm . | awk 'NR == 2 { print $4 }')
    if [ "$free" -lt "$disk" ]; then
        echo "soliton: not enough disk space in $PWD: $free MB are free, $disk MB are needed" >&2
        exit 2
    fi
fi
# pip is the last that appears when an environment is created.
[ -x .venv/bin/pip ] || "$python" -m venv .venv
pip=(.venv/bin/python -m pip install --disable-pip-version-check)
# shellcheck disable=SC2086  # TORCH is a list of arguments
[ -z "${TORCH:-}" ] || eval "${pip[*]} $TORCH"
"${pip[@]}" --editable ".${extras:+[$extras]}"
