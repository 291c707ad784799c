"""The embedded broker handles produce and fetch requests like a real one: sessions, waits, limits, errors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from pykclient.protocol.message import ZERO_UUID
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.record import Compression, CompressionType, MemoryRecords
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually
from tests.testing.handlers.raw_client import RawClient
from tests.testing.replica.harness import batch

UNKNOWN_ID = UUID(int=99)
BATCH = batch(b"x" * 1_000)

OK, OUT_OF_RANGE, UNKNOWN_TOPIC = 0, 1, 3
INVALID_ACKS, UNKNOWN_EPOCH, UNSUPPORTED_COMPRESSION, INVALID_RECORD = 21, 75, 76, 87
SESSION_NOT_FOUND, INVALID_SESSION_EPOCH, UNKNOWN_TOPIC_ID, SESSION_TOPIC_ID_ERROR = 70, 71, 100, 106


class Topic:
    """A topic, with produce and fetch requests for it in any version."""

    def __init__(self, client: RawClient, name: str) -> None:
        self.client = client
        self.name = name
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        self.id = client.ask(request, 12, MetadataResponse).topics[0].topic_id

    def produce(
        self, records: bytes | None, version: int = 13, *, acks: int = -1, index: int = 0, id: UUID | None = None
    ) -> ProduceResponse.PartitionProduceResponse:
        answer = self.client.ask(self.produce_request(records, acks, index, id), version, ProduceResponse)
        return answer.responses[0].partition_responses[0]

    def produce_request(
        self, records: bytes | None, acks: int = -1, index: int = 0, id: UUID | None = None
    ) -> ProduceRequest:
        data = ProduceRequest.PartitionProduceData(index=index, records=records)
        return ProduceRequest(
            acks=acks,
            timeout_ms=10_000,
            topic_data=[ProduceRequest.TopicProduceData(name=self.name, topic_id=id or self.id, partition_data=[data])],
        )

    def fetch(
        self,
        *offsets: int,
        version: int = 16,
        session: tuple[int, int] = (0, -1),
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        id: UUID | None = None,
        forget: Sequence[int] = (),
        isolation: int = 0,
        **fields: Any,
    ) -> FetchResponse:
        """Fetch partition 0 at the first offset, 1 at the second, and so on; -2 leaves a partition out."""
        partitions = [
            FetchRequest.FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes, **fields
            )
            for index, offset in enumerate(offsets)
            if offset != -2
        ]
        topic = FetchRequest.FetchTopic(topic=self.name, topic_id=id or self.id, partitions=partitions)
        gone = FetchRequest.ForgottenTopic(topic=self.name, topic_id=self.id, partitions=forget)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=session[0],
            session_epoch=session[1],
            isolation_level=isolation,
            topics=[topic] if partitions else [],
            forgotten_topics_data=[gone] if forget else [],
        )
        return self.client.ask(request, version, FetchResponse)


def told(response: FetchResponse) -> dict[int, tuple[int, int, int]]:
    """Return error, high watermark and bytes of whole batches by partition. (Kafka adds the start of another batch.)"""
    return {
        data.partition_index: (data.error_code, data.high_watermark, MemoryRecords(data.records or b"").valid_bytes)
        for topic in response.responses
        for data in topic.partitions
    }


@pytest.fixture
def client(any_kafka: AnyKafka) -> Iterator[RawClient]:
    with RawClient(any_kafka.bootstrap_servers) as client:
        yield client


@pytest.fixture
def log(any_kafka: AnyKafka, client: RawClient, topic: str) -> Topic:
    any_kafka.create_topic(topic, partitions=3, config={"retention.ms": -1})
    log = Topic(client, topic)
    led = dict.fromkeys(range(3), (OK, 0, 0))
    eventually(lambda: told(log.fetch(0, 0, 0)) == led, 30.0, "all partitions have their leader")
    return log


# --- produce ---------------------------------------------------------------------------------------------------------


def test_produce_to_unknown_topics_or_with_wrong_acks_is_refused(log: Topic) -> None:
    assert log.produce(BATCH, id=UNKNOWN_ID).error_code == UNKNOWN_TOPIC_ID
    assert log.produce(BATCH, id=ZERO_UUID).error_code == UNKNOWN_TOPIC_ID
    assert log.produce(BATCH, index=9).error_code == UNKNOWN_TOPIC
    assert log.produce(BATCH, 12, index=9).error_code == UNKNOWN_TOPIC
    for acks in (2, -2):
        refused = log.produce(BATCH, acks=acks)
        assert (refused.error_code, refused.base_offset) == (INVALID_ACKS, -1)
    assert told(log.fetch(0)) == {0: (OK, 0, 0)}


def test_produce_needs_exactly_one_batch(log: Topic) -> None:
    for data in (b"", BATCH + BATCH, batch(b"a", magic=1), batch(b"a", magic=0)):
        assert log.produce(data).error_code == INVALID_RECORD
    zstd = batch(b"a" * 100, compression=Compression.of(CompressionType.ZSTD))
    assert log.produce(zstd, 6).error_code == UNSUPPORTED_COMPRESSION
    assert log.produce(zstd, 7).error_code == OK


def test_produce_error_without_acks_closes_the_connection(log: Topic, any_kafka: AnyKafka) -> None:
    with RawClient(any_kafka.bootstrap_servers) as client:
        client.send(log.produce_request(BATCH, acks=0), 13)
        other = Topic(client, log.name)  # its response must be the first to arrive: acks=0 got none
        client.send(other.produce_request(BATCH, acks=0, index=9), 13)
        with pytest.raises(ConnectionError):
            client.receive(0, 13)
    assert told(log.fetch(0)) == {0: (OK, 1, len(BATCH))}


# --- fetch -----------------------------------------------------------------------------------------------------------


def test_fetch_respects_byte_limits(log: Topic) -> None:
    for index in (0, 1):
        for _ in range(2):
            log.produce(BATCH, index=index)
    size = len(BATCH)
    assert told(log.fetch(0, 0, max_bytes=1)) == {0: (OK, 2, size), 1: (OK, 2, 0)}
    assert told(log.fetch(0, 0, partition_max_bytes=size + 1)) == {0: (OK, 2, size), 1: (OK, 2, size)}
    assert told(log.fetch(0, 0, partition_max_bytes=1)) == {0: (OK, 2, size), 1: (OK, 2, 0)}
    assert told(log.fetch(0, 0, max_bytes=3 * size)) == {0: (OK, 2, 2 * size), 1: (OK, 2, size)}
    assert told(log.fetch(2, 0, max_bytes=size - 1)) == {0: (OK, 2, 0), 1: (OK, 2, size)}


def test_offsets_and_epochs_are_validated(log: Topic) -> None:
    log.produce(BATCH)
    for offset in (-1, 2, 1 << 40):
        assert told(log.fetch(offset, max_wait_ms=5_000)) == {0: (OUT_OF_RANGE, -1, 0)}
    assert told(log.fetch(1)) == {0: (OK, 1, 0)}
    assert told(log.fetch(0, current_leader_epoch=0)) == {0: (OK, 1, len(BATCH))}
    assert told(log.fetch(0, current_leader_epoch=5, max_wait_ms=5_000)) == {0: (UNKNOWN_EPOCH, -1, 0)}
    [data] = log.fetch(1, last_fetched_epoch=0).responses[0].partitions
    assert data.diverging_epoch.epoch == -1
    assert told(log.fetch(1, last_fetched_epoch=7, max_wait_ms=5_000)) == {0: (OUT_OF_RANGE, -1, 0)}


def test_empty_fetch_response_has_default_fields(log: Topic) -> None:
    log.produce(BATCH)
    [data] = log.fetch(1).responses[0].partitions
    assert (data.last_stable_offset, data.log_start_offset, data.preferred_read_replica) == (1, 0, -1)
    assert data.aborted_transactions is None
    assert data.records is not None
    [committed] = log.fetch(1, isolation=1).responses[0].partitions
    assert committed.aborted_transactions == []


def test_unknown_topics_and_partitions_have_errors(log: Topic) -> None:
    unknown = log.fetch(0, id=UNKNOWN_ID, max_wait_ms=5_000)
    assert told(unknown) == {0: (UNKNOWN_TOPIC_ID, -1, 0)}
    assert unknown.responses[0].topic_id == UNKNOWN_ID
    assert told(log.fetch(-2, -2, -2, 0, max_wait_ms=5_000)) == {3: (UNKNOWN_TOPIC, -1, 0)}
    assert told(log.fetch(-2, -2, -2, 0, version=12)) == {3: (UNKNOWN_TOPIC, -1, 0)}


def elapsed_ms(begun: float) -> float:
    return (time.monotonic() - begun) * 1_000


def test_fetch_waits_for_bytes_error_or_timeout(log: Topic) -> None:
    log.produce(BATCH)
    begun = time.monotonic()
    assert told(log.fetch(0, 0, max_wait_ms=60_000)) == {0: (OK, 1, len(BATCH)), 1: (OK, 0, 0)}
    log.fetch(1, min_bytes=0, max_wait_ms=60_000)
    log.fetch(5, 0, max_wait_ms=60_000)  # an offset out of range
    assert elapsed_ms(begun) < 30_000
    begun = time.monotonic()
    # An unknown partition does not end the wait if the request has others.
    assert told(log.fetch(1, -2, -2, 0, max_wait_ms=600)) == {0: (OK, 1, 0), 3: (UNKNOWN_TOPIC, -1, 0)}
    assert elapsed_ms(begun) >= 590
    begun = time.monotonic()
    assert told(log.fetch(0, min_bytes=len(BATCH) + 1, max_wait_ms=600)) == {0: (OK, 1, len(BATCH))}
    assert elapsed_ms(begun) >= 590


def test_new_records_end_the_wait(log: Topic, any_kafka: AnyKafka) -> None:
    with RawClient(any_kafka.bootstrap_servers) as client:
        waiting = Topic(client, log.name)
        partition = FetchRequest.FetchPartition(partition=1, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            topics=[FetchRequest.FetchTopic(topic_id=waiting.id, partitions=[partition])],
        )
        begun = time.monotonic()
        client.send(request, 16)
        log.produce(BATCH, index=1)
        answer = client.receive(request.API_KEY, 16)
        assert isinstance(answer, FetchResponse)
        assert told(answer) == {1: (OK, 1, len(BATCH))}
        assert elapsed_ms(begun) < 30_000


# --- sessions --------------------------------------------------------------------------------------------------------


def test_session_returns_only_changes_until_it_is_closed(log: Topic) -> None:
    full = log.fetch(0, 0, 0, session=(0, 0))
    id = full.session_id
    assert id > 0
    assert told(full) == dict.fromkeys(range(3), (OK, 0, 0))
    nothing = log.fetch(session=(id, 1))
    assert (nothing.session_id, told(nothing)) == (id, {})
    log.produce(BATCH, index=1)
    assert told(log.fetch(session=(id, 2))) == {1: (OK, 1, len(BATCH))}
    # Until the reader's offset advances, it gets the same data again.
    assert told(log.fetch(session=(id, 3))) == {1: (OK, 1, len(BATCH))}
    assert told(log.fetch(-2, 1, session=(id, 4))) == {}
    log.produce(BATCH, index=0)
    assert told(log.fetch(session=(id, 5), forget=[0])) == {}
    assert told(log.fetch(0, session=(id, 6))) == {0: (OK, 1, len(BATCH))}
    ended = log.fetch(session=(id, -1))
    assert (ended.error_code, ended.session_id, told(ended)) == (OK, 0, {})
    assert log.fetch(session=(id, 7)).error_code == SESSION_NOT_FOUND


def test_session_repeats_errors_until_they_are_fixed(log: Topic) -> None:
    id = log.fetch(0, 9, session=(0, 0)).session_id
    assert told(log.fetch(session=(id, 1))) == {1: (OUT_OF_RANGE, -1, 0)}
    assert told(log.fetch(session=(id, 2))) == {1: (OUT_OF_RANGE, -1, 0)}
    assert told(log.fetch(-2, 0, session=(id, 3))) == {1: (OK, 0, 0)}
    assert told(log.fetch(session=(id, 4))) == {}


def test_fetches_with_wrong_session_are_refused(log: Topic) -> None:
    id = log.fetch(0, session=(0, 0)).session_id
    wrong = log.fetch(session=(id, 2))
    assert (wrong.error_code, wrong.session_id, told(wrong)) == (INVALID_SESSION_EPOCH, 0, {})
    assert log.fetch(session=(id + 1, 1)).error_code == SESSION_NOT_FOUND
    assert log.fetch(session=(id, 1), version=12).error_code == SESSION_TOPIC_ID_ERROR
    assert log.fetch(session=(id, 1)).error_code == OK
    again = log.fetch(0, session=(id, 0))
    assert again.session_id not in (0, id)
    assert log.fetch(session=(id, 2)).error_code == SESSION_NOT_FOUND


def test_emptied_session_is_closed(log: Topic) -> None:
    id = log.fetch(0, session=(0, 0)).session_id
    emptied = log.fetch(session=(id, 1), forget=[0])
    assert (emptied.error_code, emptied.session_id) == (OK, 0)
    assert log.fetch(session=(id, 2)).error_code == SESSION_NOT_FOUND


def test_no_session_is_created_unless_requested(log: Topic) -> None:
    assert log.fetch(0, session=(0, -1)).session_id == 0
    assert log.fetch(0, version=6).session_id == 0


def test_partitions_take_turns_in_a_session(log: Topic) -> None:
    for index in range(3):
        for _ in range(4):
            log.produce(BATCH, index=index)
    id = log.fetch(0, 0, 0, session=(0, 0), max_bytes=len(BATCH)).session_id
    turns = []
    for epoch in range(1, 7):
        answer = log.fetch(session=(id, epoch), max_bytes=len(BATCH))
        turns += [index for index, (_, _, size) in told(answer).items() if size]
    assert turns == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("version", [4, 6, 7, 9, 10, 11, 12])
def test_older_fetch_versions_work(log: Topic, version: int) -> None:
    log.produce(BATCH)
    assert log.produce(BATCH, min(version, 12)).base_offset == 1
    [data] = log.fetch(0, version=version).responses[0].partitions
    assert (data.error_code, data.high_watermark) == (OK, 2)
    assert len(list(MemoryRecords(data.records or b"").records())) == 2
