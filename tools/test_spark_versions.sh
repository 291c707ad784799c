#!/usr/bin/env bash
# The tests of Spark with other releases of it than the environment has: SPARK_VERSIONS, by default the oldest and the
# newest that are supported. Each has an environment of its own beside $VENV, which must be there and compiled.
set -euo pipefail
cd "$(dirname "$0")/.."
VENV="${VENV:-.venv}"
needed=$("$VENV/bin/python" -c '
import tomllib
declared = tomllib.load(open("pyproject.toml", "rb"))
for name in [*declared["project"]["dependencies"], *declared["dependency-groups"]["dev"]]:
    if not name.startswith("pyspark"):
        print(name)
')
for version in ${SPARK_VERSIONS:-4.1.1 4.3.0}; do
    environment="$VENV-spark-$version"
    echo "== Spark $version =="
    [ -x "$environment/bin/pip" ] || "$VENV/bin/python" -m venv "$environment"
    readarray -t packages <<<"$needed"
    "$environment/bin/pip" install --quiet --disable-pip-version-check "pyspark[connect]==$version" "${packages[@]}"
    # The package itself is where it was built, for the same Python. Spark 4.1 leaves it to the garbage collector to
    # close the sockets from which it collected rows.
    PYTHONPATH="$PWD/src" "$environment/bin/python" -m pytest -q -W ignore::pytest.PytestUnraisableExceptionWarning \
        tests/spark "$@"
done
