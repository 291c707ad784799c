"""Hanging transactions and share groups, from the command line, on the embedded cluster and on real Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykclient import KafkaShareConsumer, TopicPartition
from pykclient.clock import SYSTEM_CLOCK
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from tests.cli.command import Pykclient
from tests.support.any_kafka import AnyKafka, StartKafka
from tests.testing.handlers.raw_client import RawClient

HOUR_MS = 3_600_000
PRODUCER_ID, EPOCH = 4_021, 3
#: A version from before leaders add partitions to transactions by themselves.
VERSION = 9


def leave_a_hanging_transaction(address: str, topic: str) -> None:
    """Write a record of a transaction that began an hour ago, and that no coordinator knows."""
    builder = MemoryRecordsBuilder(
        producer_id=PRODUCER_ID, producer_epoch=EPOCH, base_sequence=0, is_transactional=True
    )
    builder.append(SYSTEM_CLOCK.wall_ms() - HOUR_MS, None, b"hangs")
    data = ProduceRequest.PartitionProduceData(index=0, records=bytes(builder.build()))
    request = ProduceRequest(
        transactional_id="unknown",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )
    with RawClient(address) as client:
        (answer,) = client.ask(request, VERSION, ProduceResponse).responses
    assert [partition.error_code for partition in answer.partition_responses] == [0]


def test_a_hanging_transaction_is_found_and_aborted(
    start_kafka: StartKafka, topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with start_kafka({"transaction.partition.verification.enable": "false"}) as kafka:
        address = kafka.bootstrap_servers
        pykclient = Pykclient(address)
        pykclient.ok("topics", "create", f"{topic}:1:1")
        pykclient.ok("produce", topic, stdin=b"before\n")
        leave_a_hanging_transaction(address, topic)
        pykclient.ok("produce", topic, stdin=b"after\n")

        (found,) = pykclient.ok("transactions", "hanging", "--topic", topic, "--json").json
        assert HOUR_MS <= found.pop("age_ms") < 2 * HOUR_MS
        assert found == {
            "topic": topic,
            "partition": 0,
            "producer_id": PRODUCER_ID,
            "producer_epoch": EPOCH,
            "start_offset": 1,
        }
        assert pykclient.ok("transactions", "hanging", "--max-timeout", "2h", "--json").json == []
        committed = ("-X", "isolation.level=read_committed", "-e", "-f", "%s\\n")
        assert pykclient.ok("consume", topic, *committed).out == "before\n"  # the rest waits for the transaction

        abort = ("transactions", "abort", "--topic", topic, "--partition", "0")
        refused = pykclient(*abort, "--start-offset", "1")
        assert refused.code == 2
        assert "--yes" in refused.err
        missing = pykclient(*abort, "--start-offset", "0", "-y")
        assert missing.code == 1
        assert f"no transaction on {TopicPartition(topic, 0)} begins at offset 0" in missing.err
        aborted = pykclient.ok(*abort, "--start-offset", "1", "-y")
        assert aborted.out.startswith(f"aborted: producer {PRODUCER_ID}, epoch {EPOCH}")

        assert pykclient.ok("transactions", "hanging", "--json").json == []
        assert pykclient.ok("consume", topic, *committed).out == "before\nafter\n"


def test_groups_commands_describe_share_group(
    any_kafka: AnyKafka, topic: str, group_id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    pykclient = Pykclient(any_kafka.bootstrap_servers)
    pykclient.ok("topics", "create", f"{topic}:1:1")
    pykclient.ok("configs", "alter", "group", group_id, "--set", "share.auto.offset.reset=earliest")
    pykclient.ok("produce", topic, stdin=b"a\nb\nc\n")
    with KafkaShareConsumer[bytes, bytes](
        bootstrap_servers=any_kafka.bootstrap_servers, group_id=group_id, max_poll_records=10
    ) as consumer:
        consumer.subscribe([topic])
        seen = 0
        deadline_ms = SYSTEM_CLOCK.now_ms() + 60_000
        while seen < 3 and SYSTEM_CLOCK.now_ms() < deadline_ms:
            seen += sum(map(len, consumer.poll(500).values()))
        consumer.commit_sync()
        (described,) = pykclient.ok("groups", "describe", group_id, "--json").json
        assert (described["type"], described["state"], described["members"]) == ("share", "Stable", 1)
    assert seen == 3
    listed = pykclient.ok("groups", "list", "--type", "share", "--json").json
    assert [row["state"] for row in listed if row["group"] == group_id] == ["Empty"]
    pykclient.ok("produce", topic, stdin=b"d\n")

    def offsets() -> list[tuple[int, int | None, int | None]]:
        (group,) = pykclient.ok("groups", "describe", group_id, "--json").json
        return [(row["partition"], row["offset"], row["lag"]) for row in group["partitions"]]

    ((partition, _, lag),) = offsets()  # brokers store a new start later
    assert (partition, lag) == (0, 1)
    reset = ("offsets", "reset", group_id, "-t", topic, "--execute", "--json")
    (to_end,) = pykclient.ok(*reset, "--to-latest").json
    assert to_end["new"] == 4
    assert offsets() == [(0, 4, 0)]
    dry_run = ("offsets", "reset", group_id, "-t", topic, "--json", "--to-earliest")
    expected = [{"topic": topic, "partition": 0, "current": 4, "new": 0}]
    assert pykclient.ok(*dry_run).json == expected
    assert offsets() == [(0, 4, 0)]
    assert pykclient.ok(*reset, "--to-earliest").json == expected
    assert offsets() == [(0, 0, 4)]
    pykclient.ok("offsets", "delete", group_id, "-t", topic, "-y")
    assert offsets() == []
    pykclient.ok("groups", "delete", group_id, "-y")
    gone = pykclient("groups", "describe", group_id)
    assert (gone.code, gone.raw) == (1, b"")
