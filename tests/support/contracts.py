"""The tests that `make test` runs on real brokers: a file for each area, chaos, and Spark.

The others of them run on the embedded cluster there, which passes the same tests, and on real brokers in
`make test-full`.
"""

from __future__ import annotations

import pytest

from tests.support.unused import file_of

#: What begins or ends the path of a file whose tests on real brokers are run every time.
_DIRECTORIES = ("tests/chaos/", "tests/support/")
_FILES = (
    "tests/admin/test_access_on_kafka.py",
    "tests/admin/test_admin_on_kafka.py",
    "tests/admin/test_groups_on_kafka.py",
    "tests/admin/test_java_admin_on_kafka.py",
    "tests/admin/test_transactions_on_kafka.py",
    "tests/aio/test_aio_consumer_on_kafka.py",
    "tests/aio/test_aio_kafka_producer.py",
    "tests/cli/test_commands_on_kafka.py",
    "tests/consumer/test_consumer_groups_kafka.py",
    "tests/consumer/share/test_share_consumer_on_kafka.py",
    "tests/consumer/test_groups_kafka.py",
    "tests/interop/test_records.py",
    "tests/interop/test_transactions.py",
    "tests/network/telemetry/test_pushed_metrics.py",
    "tests/network/test_real_broker.py",
    "tests/producer/test_producer_on_kafka.py",
    "tests/producer/test_transactions_on_kafka.py",
    "tests/security/test_delegation_tokens.py",
    "tests/security/test_sasl.py",
    "tests/security/test_tls_on_kafka.py",
)
#: What the embedded cluster answers beside what a real broker answers.
_COMPARISON = "/test_as_kafka.py"


def is_beyond_contracts(item: pytest.Item) -> bool:
    """Return whether `make test` leaves a test to `make test-full`."""
    if item.get_closest_marker("exhaustive") is not None:
        return True
    if item.get_closest_marker("kafka") is None or item.get_closest_marker("spark") is not None:
        return False
    file = file_of(item)
    return not (file in _FILES or file.startswith(_DIRECTORIES) or file.endswith(_COMPARISON))
