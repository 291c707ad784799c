#!/usr/bin/env bash
# Run the Spark tests with releases of Spark other than the installed one: SPARK_VERSIONS, by default the oldest and the
# newest supported release. Each release gets its own environment beside $VENV, which must exist and be compiled.
set -euo pipefail
cd "$(dirname "$0")/.."
VENV="${VENV:-.venv}"
needed=$("$VENV/bin/python" -c '
import tomllib
declared = tomllib.load(open("pyproject.toml", "rb"))
groups = declared["dependency-groups"]
for name in [*declared["project"]["dependencies"], *groups["dev"]]:
    for each in groups[name["include-group"]] if isinstance(name, dict) else [name]:
        if not each.startswith("pyspark"):
            print(each)
')
for version in ${SPARK_VERSIONS:-4.1.1 4.3.0}; do
    environment="$VENV-spark-$version"
    echo "== Spark $version =="
    [ -x "$environment/bin/pip" ] || "$VENV/bin/python" -m venv "$environment"
    readarray -t packages <<<"$needed"
    "$environment/bin/pip" install --quiet --disable-pip-version-check "pyspark[connect]==$version" "${packages[@]}"
    # The package is imported from src, where it was compiled for the same Python. Spark 4.1 leaves the sockets from
    # which it collected rows for the garbage collector to close.
    PYTHONPATH="$PWD/src" "$environment/bin/python" -m pytest -q -W ignore::pytest.PytestUnraisableExceptionWarning \
        tests/spark "$@"
done
