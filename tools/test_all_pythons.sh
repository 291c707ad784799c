#!/usr/bin/env bash
# Run the tests that need no broker and no Java on every Python from 3.11 to 3.14 in PATH or pyenv.
set -euo pipefail
cd "$(dirname "$0")/.."
found=0
for version in 3.11 3.12 3.13 3.14; do
    for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
        "$python" -c 'pass' 2>/dev/null || continue
        found=$((found + 1))
        environment="${VENV:-.venv}-$version"
        echo "== $("$python" --version) =="
        [ -x "$environment/bin/pip" ] || "$python" -m venv "$environment"
        "$environment/bin/pip" install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
        "$environment/bin/pip" install --quiet --disable-pip-version-check --editable . --group dev
        "$environment/bin/python" -m pytest -q -m 'not java and not kafka' "$@"
        break
    done
done
[ "$found" -gt 0 ] || { echo 'no Python from 3.11 to 3.14 found' >&2; exit 1; }
