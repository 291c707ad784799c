"""Signal handlers that raise at every point of a call: no record is accepted that the application has not received.

An application that goes on afterwards receives every record, and all are accepted in the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pykclient.consumer.share.acknowledgements import AcknowledgeType
from pykclient.errors import KafkaError
from tests.consumer.share.fake_share_brokers import T0, T1, FakeShareCluster, SharePartition
from tests.consumer.share.share_groups import Record, flat
from tests.support.interrupts import places

SIZES = {T0: 12, T1: 4}


class Application:
    """A consumer, and the offsets that the application has received. It has polled once."""

    def __init__(self, mode: str) -> None:
        partitions = {tp: SharePartition.of([b"%d" % each for each in range(size)], 3) for tp, size in SIZES.items()}
        self.cluster = FakeShareCluster(partitions, mode, max_poll_records=5, consumer_timeout_ms=300)
        self.consumer = self.cluster.consumer
        self.is_explicit = mode == "explicit"
        self.received: set[tuple[int, int]] = set()
        self.pending: list[Record | pa.RecordBatch] = []  # received, and not acknowledged
        self.poll()

    def poll(self) -> None:
        self.acknowledge()
        records = flat(self.consumer.poll(1_000))
        self.pending += records
        self.received.update((record.partition, record.offset) for record in records)

    def poll_arrow(self) -> None:
        self.acknowledge()
        rows = self.consumer.poll_arrow(1_000)
        self.received.update(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
        self.pending.append(rows)
        self.acknowledge()

    def acknowledge(self) -> None:
        while self.is_explicit and self.pending:
            with contextlib.suppress(KafkaError):  # its lock may be gone; then it is delivered again
                self.consumer.acknowledge(self.pending[0], AcknowledgeType.ACCEPT)
            del self.pending[0]  # after it, so that a call that was interrupted is repeated

    def commit_sync(self) -> None:
        self.acknowledge()
        self.consumer.commit_sync()

    def commit_async(self) -> None:
        self.acknowledge()
        self.consumer.commit_async()

    def loop(self) -> None:
        for record in self.consumer:
            self.received.add((record.partition, record.offset))
            if self.is_explicit:
                self.consumer.acknowledge(record)

    def unsubscribe(self) -> None:
        self.consumer.unsubscribe()

    def close(self) -> None:
        self.consumer.close()

    # --- checks ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check what was accepted; then go on, and check that nothing is lost."""
        self.check_accepted()
        consumer = self.consumer
        if not consumer._guard.closed:
            if consumer.subscription() is None:
                consumer.subscribe(["t"])
            for _ in range(20):
                self.poll()
            self.commit_sync()
            self.check_accepted()
            states = {state for one in self.cluster.brokers.partitions.values() for state in one.states.values()}
            assert states == {"accept"}
            consumer.close()
        FakeShareCluster.made.remove(self.cluster)

    def check_accepted(self) -> None:
        accepted = {
            (tp.partition, offset) for tp, one in self.cluster.brokers.partitions.items() for offset in one.accepted
        }
        assert accepted <= self.received


CALLS = ["poll", "poll_arrow", "commit_sync", "commit_async", "loop", "unsubscribe", "close"]


def check_places(name: str, mode: str, every: int) -> None:
    for place in places(every=every):
        with place:
            application = Application(mode)
            call: Callable[[], Any] = getattr(application, name)
            place.interrupt(call)
            application.check()


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
@pytest.mark.parametrize("name", CALLS)
def test_share_consumer_survives_sampled_interruptions(name: str, mode: str) -> None:
    check_places(name, mode, 149)


def test_interrupted_unsubscribe_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    application = Application("implicit")

    def interrupt(reason: str) -> None:
        raise KeyboardInterrupt(reason)

    with monkeypatch.context() as patch:
        patch.setattr(application.cluster.components.coordinator, "leave_group", interrupt)
        with pytest.raises(KeyboardInterrupt):
            application.unsubscribe()
    assert application.consumer.subscription() is None
    application.check()


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
@pytest.mark.parametrize("name", CALLS)
def test_share_consumer_survives_interruptions_at_every_line(name: str, mode: str) -> None:
    check_places(name, mode, 1)
