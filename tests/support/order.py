"""The order in which pytest-xdist processes run test files: longest first.

pytest-xdist's own order starts with the files that have the most tests. The longest files have few, so at the end one
process was left alone with them.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.contracts import is_contract_file
from tests.support.unused import clusters_of, file_of

#: Path prefixes of the longest files, longest first, with files that wait and files that compute interleaved. An entry
#: that is missing or out of place only costs time.
LONGEST = (
    "tests/spark/",
    "tests/examples/test_spark",  # in one process with the entry above (conftest.py)
    "tests/benchmarks/test_spark",
    "tests/chaos/test_exactly_once.py",
    "tests/chaos/test_brokers.py",  # in one process with the entry above
    "tests/consumer/test_groups_kafka.py",
    "tests/test_wheel.py",
    "tests/simulation/test_simulation.py",
    "tests/testing/controller/test_controller_chaos.py",
    "tests/producer/test_interrupts.py",
    "tests/chaos/test_cuts.py",
    "tests/interop/test_java_tools.py",
    "tests/consumer/test_interrupted_calls.py",
    "tests/consumer/test_consumer_groups_kafka.py",
    "tests/consumer/test_fetch_kafka.py",
    "tests/interop/test_old_brokers.py",
    "tests/interop/embedded/test_releases.py",
    "tests/chaos/test_outages.py",
    "tests/producer/test_faults.py",
    "tests/testing/embedded/test_documentation.py",
    "tests/examples/",
    "tests/kafka/test_cluster.py",
    "tests/chaos/",
    "tests/testing/embedded/test_plugin.py",
    "tests/producer/test_speedups.py",
    "tests/consumer/test_fetch_columns.py",
    "tests/interop/",
    "tests/testing/test_release_profiles.py",
    "tests/producer/test_producer_on_kafka.py",
    "tests/record/test_twins.py",
    "tests/network/test_selector.py",
)

#: The files of tests/spark/ that start no Spark.
_WITHOUT_SPARK = tuple(
    f"tests/spark/test_{name}.py"
    for name in (
        *("batch_reader", "consumer_pool", "filters", "java_regex", "offset_reader", "offsets", "options"),
        *("producers", "range_reader", "ranges", "schema", "stream_reader", "transactional_faults"),
        *("transactional_tokens", "transactional_writer", "transactions", "writer"),
    )
)
_THREE_BROKERS = ("tests/chaos/test_exactly_once.py", "tests/chaos/test_brokers.py")


def longest_first(items: list[pytest.Item], is_contracts: bool = False) -> None:
    """Sort tests by file: the longest files, those with real brokers, then those with the most tests.

    Files with real brokers come early so that the brokers can end soon (unused.py). For the same reason, files that one
    process runs together follow each other. The order of tests in a file stays.
    """
    sizes = Counter(map(file_of, items))
    brokers = Counter(file_of(item) for item in items if clusters_of(item))
    places = {file: (_place(file), not brokers[file], -size, file) for file, size in sizes.items()}
    first: dict[str, tuple[int, bool, int, str]] = {}
    for file, place in sorted(places.items(), key=lambda it: it[1]):
        first.setdefault(unit_of(file, is_contracts), place)
    items.sort(key=lambda item: (first[unit_of(file_of(item), is_contracts)], places[file_of(item)]))


def unit_of(file: str, is_contracts: bool) -> str:
    """Return the name of the files that one process runs together with ``file``.

    Each process starts a JVM for Spark and for each real broker of its tests: the fewer processes, the less CPU. With
    ``--contracts``, few files use real brokers; those of `make test-full` would keep one process busy for too long.
    The tests that use Spark are the longest of all units, and so have no others in theirs.
    """
    if file in _WITHOUT_SPARK:
        return "spark's parts"
    if "spark" in file:
        return "spark"
    if file in _THREE_BROKERS:
        return "three brokers"
    return "real brokers" if is_contracts and is_contract_file(file) else file


def _place(file: str) -> int:
    return next((place for place, start in enumerate(LONGEST) if file.startswith(start)), len(LONGEST))
