"""The tests that `make test` leaves to `make test-full`.

On real brokers `make test` runs a file for each area, some of the chaos tests, and Spark's. The others of them run on
the embedded cluster there, which passes the same tests. It also leaves out variants of tests of which another is run.
"""

from __future__ import annotations

import pytest

from tests.support.unused import file_of

#: What begins or ends the path of a file whose tests on real brokers are run every time.
_DIRECTORIES = ("tests/support/",)
_FILES = (
    "tests/admin/test_access_on_kafka.py",
    "tests/admin/test_admin_on_kafka.py",
    "tests/admin/test_groups_on_kafka.py",
    "tests/admin/test_java_admin_on_kafka.py",
    "tests/admin/test_transactions_on_kafka.py",
    "tests/aio/test_aio_consumer_on_kafka.py",
    "tests/aio/test_aio_kafka_producer.py",
    "tests/chaos/test_brokers.py",
    "tests/chaos/test_exactly_once.py",
    "tests/chaos/test_topics.py",
    "tests/chaos/test_zombies.py",
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
#: Variants of tests by the start of their names, and the test that shows the same in `make test`.
SHOWN_BY_OTHERS = {
    "tests/chaos/test_brokers.py::test_leader_moves_under_load[real]": "test_exactly_once.py moves leaders",
    "tests/chaos/test_brokers.py::test_leader_paused_longer_than_a_request_may_take[real]": "test_exactly_once.py",
    "tests/chaos/test_brokers.py::test_producer_and_consumer_survive_leader_kills[real]": "test_exactly_once.py",
    "tests/chaos/test_brokers.py::test_rolling_restart_under_load[real]": "test_exactly_once.py restarts each broker",
    "tests/chaos/test_brokers.py::test_whole_cluster_down_with_records_buffered[real-killed while": "[real-killed]",
    "tests/consumer/test_groups_kafka.py::test_another_broker_takes_over_as_coordinator[real]": (
        "[embedded], and test_member_survives_a_coordinator_restart[real]"
    ),
    "tests/examples/test_spark_examples.py::test_spark_example_prints_what_it_says[real-": (
        "[embedded-...], and tests/spark"
    ),
    "tests/examples/test_spark_examples.py::test_a_spark_example_as_it_is_run": (
        "test_spark_example_prints_what_it_says runs them in one session"
    ),
    "tests/interop/embedded/test_releases.py::test_clients_of_java_old_and_new[1.1-2.1.1]": "[1.1-3.9.1], [4.3-2.1.1]",
    "tests/producer/test_transactions_on_kafka.py::test_a_broker_that_dies_during_transactions[real-": (
        "test_exactly_once.py"
    ),
    "tests/schema_registry/test_apicurio.py::test_apicurio_and_confluent_avro_in_both_directions": "test_peers.py",
    "tests/schema_registry/test_apicurio.py::test_apicurio_and_confluent_json_in_both_directions": "its other tests",
    "tests/schema_registry/test_apicurio.py::test_apicurio_and_confluent_protobuf_in_both_directions": "the others",
    "tests/spark/test_checkpoints.py::test_a_query_moves_there_and_back[pykclient-kafka-pykclient]": (
        "the other order has both moves"
    ),
    "tests/spark/test_crashes.py::test_killed_workers_and_drivers_lose_and_repeat_nothing": (
        "test_exactly_once_spark.py kills both"
    ),
    "tests/spark/test_parity_security.py::test_the_same_options_give_the_same_rows[mutual_tls]": (
        "[sasl_ssl], and test_tls_on_kafka.py"
    ),
    "tests/spark/test_pushdown_spark.py::test_rows_are_the_same_without_pushdown[UTC]": (
        "[Europe/Berlin], where an hour can go wrong"
    ),
    "tests/spark/test_topics_created_again.py::test_running_query_fails_when_its_topic_is_created_again[larger]": (
        "the other sizes"
    ),
    "tests/spark/test_topics_created_again.py::test_recreated_topic_is_read_from_its_beginning[larger]": "[smaller]",
}
#: What the embedded cluster answers beside what a real broker answers.
_COMPARISON = "/test_as_kafka.py"


def is_contract_file(file: str) -> bool:
    """Return whether `make test` runs the tests of a file on real brokers."""
    return file in _FILES or file.endswith(_COMPARISON)


def is_beyond_contracts(item: pytest.Item) -> bool:
    """Return whether `make test` leaves a test to `make test-full`."""
    if item.get_closest_marker("exhaustive") is not None or item.nodeid.startswith(tuple(SHOWN_BY_OTHERS)):
        return True
    if item.get_closest_marker("kafka") is None or item.get_closest_marker("spark") is not None:
        return False
    return not (is_contract_file(file_of(item)) or file_of(item).startswith(_DIRECTORIES))
