"""One share group with members of Java's client and of this one."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest

from pykclient import AcknowledgeType, KafkaShareConsumer
from tests.consumer.share.share_groups import Consumer, polls, produce, set_group
from tests.support.any_kafka import AnyKafka
from tests.support.java import java_command

_COUNT = 300


class JavaMember:
    """A member of Java's client, in a process of its own. Releases even numbers once."""

    def __init__(self, servers: str, group_id: str, topic: str) -> None:
        self.accepted: Counter[int] = Counter()
        self.released: Counter[int] = Counter()
        pipe = subprocess.PIPE
        command = java_command(Path(__file__).with_name("ShareMember.java"), servers, group_id, topic)
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, number, _ = line.split("\t")
            (self.accepted if what == "accepted" else self.released)[int(number)] += 1

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(30) == 0
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            assert self._process.stdout is not None
            self._process.stdout.close()


@pytest.mark.java
@pytest.mark.exhaustive
def test_java_and_this_client_share_a_partition(any_kafka: AnyKafka, topic: str, group_id: str) -> None:
    any_kafka.create_topic(topic)
    set_group(any_kafka, group_id, heartbeat_interval_ms=500)
    theirs = JavaMember(any_kafka.bootstrap_servers, group_id, topic)
    accepted: Counter[int] = Counter()
    try:
        with KafkaShareConsumer(
            topic,
            bootstrap_servers=any_kafka.bootstrap_servers,
            group_id=group_id,
            share_acknowledgement_mode="explicit",
            share_acquire_mode="record_limit",
            max_poll_records=5,
        ) as ours:
            produced = 0
            consumer: Consumer
            for consumer, records in polls(ours, timeout_s=60):
                for record in records:
                    is_released = record.delivery_count == 1 and int(record.value or b"") % 2 == 1
                    consumer.acknowledge(record, AcknowledgeType.RELEASE if is_released else AcknowledgeType.ACCEPT)
                    if not is_released:
                        accepted[int(record.value or b"")] += 1
                assert set(consumer.commit_sync().values()) <= {None}
                done = sum(accepted.values()) + sum(theirs.accepted.values())
                if done == produced >= _COUNT and theirs.released:
                    break
                if done == produced or (produced < _COUNT and theirs.accepted):  # more, until theirs has begun
                    produce(any_kafka, topic, 20, first=produced)
                    produced += 20
    finally:
        theirs.close()
    assert accepted + theirs.accepted == dict.fromkeys(range(produced), 1)
    assert accepted, "both have a part"
    assert theirs.accepted
    assert theirs.released
