"""Reports of failing addresses: in errors, and at a limited rate in the log."""

from __future__ import annotations

import pytest

from pykclient.network.cluster_connection_states import ConnectionFailures
from pykclient.network.failures import (
    COORDINATOR_ID_BASE,
    shown_address,
    shown_node,
    shown_node_id,
)
from pykclient.network.metadata import Cluster
from pykclient.types import Node

A, B = Node(1, "a", 9092), Node(2, "b", 9093)
REFUSED = "Connection refused, nothing listens there"


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        (Node(1, "kafka", 9092), "broker 1 (kafka:9092)"),
        (Node(-2, "kafka", 9092), "bootstrap server kafka:9092"),
        (Node(COORDINATOR_ID_BASE - 1, "kafka", 9092), "group coordinator (broker 1, kafka:9092)"),
        (Node(3, "::1", 9092), "broker 3 ([::1]:9092)"),
        (Node(9, "", -1), "broker 9 (no address)"),
    ],
)
def test_node_names_are_shown(node: Node, shown: str) -> None:
    assert shown_node(node) == shown


@pytest.mark.parametrize(
    ("id", "shown"),
    [(3, "broker 3"), (-1, "a bootstrap server"), (COORDINATOR_ID_BASE - 3, "the group coordinator (broker 3)")],
)
def test_node_ids_are_shown(id: int, shown: str) -> None:
    assert shown_node_id(str(id)) == shown


def test_addresses_are_shown_with_port() -> None:
    assert shown_address("fe80::1", 1) == "[fe80::1]:1"
    assert shown_address("10.0.0.1", 1) == "10.0.0.1:1"


def test_outage_is_logged_once_and_then_every_minute() -> None:
    failures = ConnectionFailures()
    lines: list[tuple[int, str]] = []
    for now_ms in range(0, 150_001, 500):
        if failures.record(A, REFUSED, now_ms):
            lines.append((now_ms, "failed"))
        if reminder := failures.reminder(now_ms):
            lines.append((now_ms, reminder))
    assert lines == [
        (0, "failed"),
        (60_000, f"a:9092 for 60 s ({REFUSED})"),
        (120_000, f"a:9092 for 120 s ({REFUSED})"),
    ]
    assert failures.clear(A, 151_000) == 151_000
    assert failures.clear(A, 152_000) is None
    assert failures.record(A, REFUSED, 160_000)


def test_reminder_names_limited_number_of_failing_nodes() -> None:
    failures = ConnectionFailures()
    for number in range(8):
        failures.record(Node(number, f"host-{number}", 1), REFUSED, 0)
    failures.clear(Node(0, "host-0", 1), 50_000)
    for number in range(1, 8):
        failures.record(Node(number, f"host-{number}", 1), REFUSED, 60_000)
    reminder = failures.reminder(60_000)
    assert reminder.startswith(f"host-1:1 for 60 s ({REFUSED}); host-2:1 for")
    assert reminder.endswith("; and 2 more")


def test_reminder_omits_addresses_no_longer_tried() -> None:
    failures = ConnectionFailures()
    failures.record(A, REFUSED, 0)
    failures.record(B, REFUSED, 0)
    failures.record(B, REFUSED, 61_000)
    assert failures.reminder(61_000) == f"b:9093 for 61 s ({REFUSED})"


def test_new_reason_is_logged_but_not_repeatedly() -> None:
    failures = ConnectionFailures()
    assert failures.record(A, "no answer within 10000 ms", 0)
    assert not failures.record(A, "no answer within 17000 ms", 20_000)  # differs only in its numbers
    assert failures.record(A, "authentication failed", 21_000)
    assert not failures.record(A, REFUSED, 22_000)
    assert not failures.record(A, "authentication failed", 40_000)
    assert failures.record(A, REFUSED, 41_000)


def test_lost_connections_to_same_address_are_logged_once() -> None:
    failures = ConnectionFailures()
    coordinator = Node(COORDINATOR_ID_BASE - 1, "a", 9092)
    assert failures.lost(A)
    assert not failures.lost(coordinator)
    assert failures.lost(B)
    failures.clear(coordinator, 0)
    assert failures.lost(A)


def test_report_names_duration_of_failure() -> None:
    failures = ConnectionFailures()
    cluster = Cluster(None, [A, B])
    assert failures.report(cluster, [("a", 9092)], 0) == ""
    failures.record(A, REFUSED, 0, "10.0.0.1")
    assert failures.report(cluster, [("a", 9092)], 999) == (
        f"1 of 2 brokers could not be reached (a:9092 (10.0.0.1): {REFUSED})"
    )
    failures.record(A, "timed out", 2_000)
    assert failures.report(cluster, [("a", 9092)], 5_000) == (
        "1 of 2 brokers could not be reached (a:9092: timed out, for 5 s)"
    )
    assert [failure.address for failure in failures.unreachable()] == ["a:9092"]
