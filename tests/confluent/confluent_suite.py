"""Run confluent-kafka's own unit tests with ``pykclient.confluent.cimpl`` below its Python files.

    python -m tests.confluent.confluent_suite PATH [--theirs] [pytest's arguments]

PATH is a checkout of confluent-kafka-python, and the package itself must be installed. ``--theirs`` runs the same tests
with its own extension module. The tests need pytest-asyncio and no broker.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

_FILES = (
    "Consumer",
    "DeserializingShareConsumer",
    "Messages",
    "ShareConsumer",
    "enums",
    "error",
    "kafka_error",
    "message",
    "misc",
    "oauth_cb",
    "partitioners",
    "topic_partition",
)
#: This one ends the process with its error.
_LEFT_OUT = "tests/test_kafka_error.py::test_kafkaError_unknown_error"


def main(arguments: Sequence[str]) -> int:
    """Run the tests; return pytest's exit status."""
    given = [each for each in arguments if each != "--theirs"]
    if not given:
        sys.stderr.write(__doc__ or "")
        return 2
    if "--theirs" not in arguments:
        from pykclient.confluent import cimpl

        sys.modules["confluent_kafka.cimpl"] = cimpl
    os.chdir(given[0])
    sys.path.insert(0, str(Path.cwd()))
    for name in [each for each in sys.modules if each.partition(".")[0] == "tests"]:
        del sys.modules[name]  # the checkout has a package of the same name
    options = ["-q", "-c", os.devnull, "--rootdir=.", "-o", "asyncio_mode=strict", "-p", "no:cacheprovider"]
    options += ["-o", "asyncio_default_fixture_loop_scope=function", "--deselect", _LEFT_OUT]
    return int(pytest.main([*options, *given[1:], *(f"tests/test_{name}.py" for name in _FILES)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
