"""Produce requests and responses in their short form are the generated messages."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from pykclient.errors import ProtocolError
from pykclient.network.client_request import RequestBuilder
from pykclient.producer.future import ProducerBatch
from pykclient.producer.produce_requests import BatchesRequest, ProduceRequestBuilder, ProduceTemplate, WrittenResponse
from pykclient.protocol.headers import encode_request, encode_response
from pykclient.protocol.message import Response
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.protocol.wire import ZERO_UUID, BytesLike
from pykclient.record import MemoryRecordsBuilder
from pykclient.types import TopicPartition

IDS = {name: uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in ("a", "bé")}
VERSIONS = range(3, 14)
FLEXIBLE = range(9, 14)
PARTITION = ProduceResponse.PartitionProduceResponse


def batch_of(topic: str, partition: int, size: int) -> ProducerBatch:
    batch = ProducerBatch(TopicPartition(topic, partition), MemoryRecordsBuilder(), 0)
    assert batch.try_append(5, None, random.Random(size).randbytes(size), (), None) is not None
    batch.set_producer_state(7, 1, 0)
    batch.close()
    return batch


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_produce_request_equals_generated_message(version: int, transactional_id: str | None) -> None:
    topics = {
        "a": [batch_of("a", 0, 10), batch_of("a", 300, 5000)],
        "bé": [batch_of("bé", 2, 1)],
    }
    request = BatchesRequest(ProduceTemplate(transactional_id, -1, 30_000), topics, IDS)
    generated = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=name,
                topic_id=IDS[name],
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=batch.topic_partition.partition, records=batch.records)
                    for batch in batches
                ],
            )
            for name, batches in topics.items()
        ],
    )
    written = encode_request(request, version, 9, "me").getvalue()
    assert written == encode_request(generated, version, 9, "me").getvalue()
    assert request.topic_data == generated.topic_data


@pytest.mark.parametrize("size", [0, 57, 58, 59, 300, 952, 953, 954, 1100, 16_309, 16_310, 16_311, 20_000])
@pytest.mark.parametrize("client_id", [None, "", "mé"])
def test_request_of_one_batch_equals_generated_message(size: int, client_id: str | None) -> None:
    """The frame is the generated message's, whatever is left from the last request of the producer."""
    template = ProduceTemplate("tx" if size % 2 else None, 1, 30_000)
    for version in (13, 12, 13):
        for name, partition in (("a", 0), ("a", 2**31 - 1), ("bé", 7)):
            for id in (5, 2**31 - 1):
                batch = batch_of(name, partition, size)
                builder = ProduceRequestBuilder(BatchesRequest(template, {name: [batch]}, IDS))
                frame = b"".join(builder.encode(version, id, client_id))
                assert frame == b"".join(RequestBuilder(builder.build(version)).encode(version, id, client_id))


def test_a_frame_has_the_current_topic_id() -> None:
    template = ProduceTemplate(None, -1, 30_000)
    frames = []
    for topic_id in IDS.values():
        request = BatchesRequest(template, {"t": [batch_of("t", 0, 10)]}, {"t": topic_id})
        frames.append(b"".join(ProduceRequestBuilder(request).encode(13, 1, "me")))
        assert topic_id.bytes in frames[-1]
    assert len({len(frame) for frame in frames}) == 1


def response_of(version: int, **fields: Any) -> ProduceResponse:
    """Return a response whose last partition has ``fields``."""

    def topic(name: str, partitions: list[PARTITION]) -> ProduceResponse.TopicProduceResponse:
        has_id = version >= 13
        return ProduceResponse.TopicProduceResponse(
            name="" if has_id else name, topic_id=IDS[name] if has_id else ZERO_UUID, partition_responses=partitions
        )

    many = [PARTITION(index=index, base_offset=index * 10, log_append_time_ms=index - 1) for index in range(200)]
    last = PARTITION(**{"index": 2**31 - 1, "base_offset": 2**62, "log_start_offset": 3, **fields})
    return ProduceResponse(responses=[topic("a", many), topic("bé", [last])], throttle_time_ms=12)


def parsed(response: ProduceResponse, version: int) -> ProduceResponse:
    builder = ProduceRequestBuilder(ProduceRequest())
    frame = encode_response(response, version, 77).getvalue()[4:]
    found = builder.parse_response(frame, version)
    assert isinstance(found, ProduceResponse)
    if not isinstance(found, WrittenResponse):
        assert found == RequestBuilder(ProduceRequest()).parse_response(frame, version)
    return found


@pytest.mark.parametrize("version", FLEXIBLE)
def test_responses_of_written_batches_take_fast_path(version: int) -> None:
    response = response_of(version)
    found = parsed(response, version)
    assert isinstance(found, WrittenResponse)
    assert found.throttle_time_ms == 12
    assert not found.responses
    assert [(name, topic_id) for name, topic_id, _ in found.written] == [
        (topic.name, topic.topic_id) for topic in response.responses
    ]
    assert [[written[:5] for written in partitions] for _, _, partitions in found.written] == [
        [
            (part.index, 0, part.base_offset, part.log_append_time_ms, part.log_start_offset)
            for part in topic.partition_responses
        ]
        for topic in response.responses
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "fields",
    [
        {"error_code": 7},
        {"error_code": -1, "error_message": "why"},
        {"error_message": ""},
        {"record_errors": [ProduceResponse.BatchIndexAndErrorMessage(batch_index=1)]},
        {"error_code": 6, "current_leader": ProduceResponse.LeaderIdAndEpoch(leader_id=1, leader_epoch=2)},
    ],
    ids=",".join,
)
def test_other_responses_are_read_as_generated_messages(version: int, fields: dict[str, Any]) -> None:
    if version < 10 and "current_leader" in fields:
        fields = {"error_code": 6}
    if version < 8:
        fields = {"error_code": 7}
    assert not isinstance(parsed(response_of(version, **fields), version), WrittenResponse)


def test_response_with_leader_addresses_is_generated_message() -> None:
    response = response_of(13)
    response.node_endpoints = [ProduceResponse.NodeEndpoint(node_id=1, host="h", port=9)]
    assert not isinstance(parsed(response, 13), WrittenResponse)


def results_of(read: Callable[[BytesLike, int], Response], frame: BytesLike, version: int) -> Any:
    """Return what a response tells of each partition, or the class of the error."""
    try:
        response = read(frame, version)
    except ProtocolError as error:
        return type(error)
    assert isinstance(response, ProduceResponse)
    if isinstance(response, WrittenResponse):
        return [(name, id, [written[:4] for written in partitions]) for name, id, partitions in response.written]
    return [
        (
            topic.name,
            topic.topic_id,
            [
                (part.index, part.error_code, part.base_offset, part.log_append_time_ms)
                for part in topic.partition_responses
            ],
        )
        for topic in response.responses
    ]


@pytest.mark.parametrize("version", FLEXIBLE)
def test_python_and_c_read_broken_responses_alike(version: int) -> None:
    """Cut or changed anywhere, bytes lead to the same error, or to the same results."""
    frame = encode_response(response_of(version), version, 77).getvalue()[4:]
    source = random.Random(version)
    for _ in range(300):
        broken = bytearray(frame)
        broken[source.randrange(4, len(frame))] = source.randrange(256)
        data = bytes(broken[: source.choice((len(frame), source.randrange(4, len(frame))))])
        expected = results_of(RequestBuilder(ProduceRequest()).parse_response, data, version)
        assert results_of(ProduceRequestBuilder(ProduceRequest()).parse_response, data, version) == expected


def one_partition(version: int, **fields: Any) -> ProduceResponse:
    has_id = version >= 13
    topic = ProduceResponse.TopicProduceResponse(
        name="" if has_id else "a",
        topic_id=IDS["a"] if has_id else ZERO_UUID,
        partition_responses=[PARTITION(**{"index": 3, "base_offset": 2**40, "log_append_time_ms": -1, **fields})],
    )
    return ProduceResponse(responses=[topic], throttle_time_ms=5)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_response_of_one_written_batch_takes_fast_path(version: int) -> None:
    found = parsed(one_partition(version), version)
    assert isinstance(found, WrittenResponse)
    assert found.throttle_time_ms == 5
    ((name, topic_id, partitions),) = found.written
    assert (name, topic_id) == (("", IDS["a"]) if version >= 13 else ("a", ZERO_UUID))
    assert partitions == [(3, 0, 2**40, -1, -1, 1, 0, 0)]


def sole_builder(name: str) -> ProduceRequestBuilder:
    """Return the builder of a request for one partition of a topic, which has been encoded."""
    request = BatchesRequest(ProduceTemplate(None, -1, 30_000), {name: [batch_of(name, 3, 10)]}, IDS)
    builder = ProduceRequestBuilder(request)
    builder.encode(13, 77, "me")
    return builder


def test_response_by_topic_id_gets_name_of_request() -> None:
    frame = encode_response(one_partition(13), 13, 77).getvalue()[4:]
    for name, expected in (("a", "a"), ("bé", "")):
        found = sole_builder(name).parse_response(frame, 13)
        assert isinstance(found, WrittenResponse)
        ((topic, topic_id, partitions),) = found.written
        assert (topic, topic_id) == (expected, IDS["a"])
        assert partitions == [(3, 0, 2**40, -1, -1, 1, 0, 0)]


def test_changed_byte_of_response_is_read_like_generated_message() -> None:
    """A response of the same length with anything else in it is read as the generated message reads it."""
    builder = sole_builder("bé")
    frame = encode_response(one_partition(13), 13, 77).getvalue()[4:]
    for position in range(4, len(frame)):
        for value in (0, 1, 2, 3, 0x7F, 0xFF):
            broken = bytearray(frame)
            broken[position] = value
            expected = results_of(RequestBuilder(ProduceRequest()).parse_response, broken, 13)
            assert results_of(ProduceRequestBuilder(ProduceRequest()).parse_response, broken, 13) == expected
            assert results_of(builder.parse_response, broken, 13) == expected
