"""Fetch requests and responses with few objects are those that the generated messages would write and read."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from pykclient.consumer.fetch_request_manager import (
    TOPIC_ID_VERSION,
    FetchMetadata,
    FetchRequestBuilder,
    FetchRequestData,
    PartitionData,
)
from pykclient.consumer.values import FetchConfig
from pykclient.errors import RemoteProtocolError
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.headers import encode_request
from pykclient.protocol.message import Response
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.wire import Writer
from pykclient.types import TopicIdPartition, TopicPartition

#: Older versions are written by the generated message.
VERSIONS = range(15, FetchRequest.VERSIONS[1] + 1)
IDS = [UUID(int=number) for number in range(1, 4)]
TOPICS = ["a", "b", "ü"]


def builder(rng: random.Random, partitions: int, forgotten: int = 0, replaced: int = 0) -> FetchRequestBuilder:
    """Return a request whose partitions change their topic several times, in the order of a session."""
    to_send = {}
    for number in range(partitions):
        topic = rng.randrange(3)
        to_send[TopicPartition(TOPICS[topic], number)] = PartitionData(
            IDS[topic], rng.getrandbits(62), rng.getrandbits(30), rng.choice((-1, 0, 7))
        )

    def left(count: int) -> list[TopicIdPartition]:
        return [TopicIdPartition(IDS[n % 3], TopicPartition(TOPICS[n % 3], 90 + n)) for n in range(count)]

    data = FetchRequestData(
        to_send, left(forgotten), left(replaced), to_send, FetchMetadata(77, 3), can_use_topic_ids=True
    )
    return FetchRequestBuilder(FetchConfig(isolation_level=1, client_rack_id="räck"), data)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sizes", [(0, 0, 0), (1, 0, 0), (9, 0, 0), (5, 4, 2), (0, 3, 0)])
def test_a_request_is_written_as_its_generated_message(version: int, sizes: tuple[int, int, int]) -> None:
    request = builder(random.Random(version), *sizes).build(version)
    generated = FetchRequest(
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=request.topics,
        forgotten_topics_data=request.forgotten_topics_data,
        rack_id=request.rack_id,
    )
    written = encode_request(request, version, 5, "me").getvalue()
    assert written == encode_request(generated, version, 5, "me").getvalue()
    assert sum(len(topic.partitions) for topic in request.topics) == sizes[0]


def response(rng: random.Random, version: int, *, plain: bool) -> FetchResponse:
    def partition(index: int) -> FetchResponse.PartitionData:
        aborted = [FetchResponse.AbortedTransaction(producer_id=1, first_offset=rng.getrandbits(40))] * rng.randrange(3)
        data = FetchResponse.PartitionData(
            partition_index=index,
            error_code=rng.choice((0, 0, 1, 6)),
            high_watermark=rng.getrandbits(62),
            last_stable_offset=rng.getrandbits(62),
            log_start_offset=rng.randrange(-1, 9),
            aborted_transactions=rng.choice((None, aborted)),
            preferred_read_replica=rng.randrange(-1, 3),
            records=rng.choice((None, b"", rng.randbytes(200))),
        )
        if not plain:
            data.current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=rng.randrange(3), leader_epoch=4)
        return data

    topics = [
        FetchResponse.FetchableTopicResponse(
            topic_id=IDS[number], partitions=[partition(index) for index in range(rng.randrange(4))]
        )
        for number in range(rng.randrange(4))
    ]
    ends = (
        [] if plain or version < 16 or rng.random() < 0.5 else [FetchResponse.NodeEndpoint(node_id=1, host="h", port=9)]
    )
    return FetchResponse(throttle_time_ms=3, error_code=0, session_id=9, responses=topics, node_endpoints=ends)


def outcome(parse: object, frame: bytes, version: int) -> Response | str:
    try:
        parsed: Response = parse(frame, version)  # type: ignore[operator]
    except RemoteProtocolError as error:
        return str(error)
    return parsed


@pytest.mark.parametrize("version", range(TOPIC_ID_VERSION, FetchRequest.VERSIONS[1] + 1))
@pytest.mark.parametrize("plain", [True, False])
def test_a_response_is_read_as_the_generated_message_reads_it(version: int, plain: bool) -> None:
    """Valid responses, responses cut off anywhere, and responses with wrong bytes."""
    rng = random.Random(version)
    reader = builder(rng, 1)

    def generated(frame: bytes, version: int) -> Response:
        return RequestBuilder.parse_response(reader, frame, version)

    for _ in range(20):
        w = Writer()
        w.int32(5)  # the correlation id
        w.tags(None)
        response(rng, version, plain=plain).write(w, version)
        frame = w.getvalue()
        frames = [frame, frame[: rng.randrange(4, len(frame))], frame + b"\0"]
        for _ in range(10):
            wrong = bytearray(frame)
            wrong[rng.randrange(4, len(wrong))] = rng.choice((0, 1, 127, 128, 255))
            frames.append(bytes(wrong))
        for each in frames:
            assert outcome(reader.parse_response, each, version) == outcome(generated, each, version)
