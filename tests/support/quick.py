"""The tests of ``make quick``: all that need no Java, Spark or peers, without the files that take longest.

Each of these takes more than eight seconds of CPU (the others less than that, most of them less than one), or is about
something else than the package: peers, examples, benchmarks, wheels.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.unused import file_of

_NOT = ("java", "kafka", "spark", "slow", "exhaustive")
_TESTS = Path(__file__).parents[1]
_DIRECTORIES = frozenset({"benchmarks", "chaos", "examples", "interop", "kafka", "spark"})
#: Comparisons of embedded and real brokers.
_COMPARISON = "as_kafka.py"
_FILES = frozenset(
    {
        "tests/aio/test_spinning.py",
        "tests/consumer/test_fetch_columns.py",
        "tests/consumer/test_fetch_records.py",
        "tests/consumer/test_interrupted_calls.py",
        "tests/producer/test_faults.py",
        "tests/producer/test_interrupts.py",
        "tests/producer/test_order_simulation.py",
        "tests/producer/test_sequence_numbers.py",
        "tests/producer/test_speedups.py",
        "tests/record/test_twins.py",
        "tests/security/test_embedded_tls.py",
        "tests/security/test_proxies.py",
        "tests/simulation/test_outage_logs.py",
        "tests/simulation/test_simulation.py",
        "tests/simulation/test_transactions.py",
        "tests/test_client_types.py",
        "tests/test_wheel.py",
        "tests/testing/embedded/test_documentation.py",
        "tests/testing/embedded/test_plugin.py",
        "tests/testing/server/test_hostile_requests.py",
    }
)


def is_beyond_quick(item: pytest.Item) -> bool:
    """Return whether ``make quick`` leaves a test out."""
    file = file_of(item)
    return any(item.get_closest_marker(name) for name in _NOT) or file in _FILES or file.endswith(_COMPARISON)


def is_directory_beyond_quick(path: Path) -> bool:
    """Return whether ``make quick`` does not even look into a directory, whose imports may need other packages."""
    return path.parent == _TESTS and path.name in _DIRECTORIES
