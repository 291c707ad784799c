"""Broker responses for tests."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from pykclient.network.client_request import ClientRequest, InFlightRequest, Shortcut
from pykclient.network.frames import NetworkSend
from pykclient.protocol.headers import encode_response
from pykclient.protocol.message import Response
from pykclient.protocol.messages.fetch import FetchResponse
from pykclient.protocol.messages.list_offsets import ListOffsetsResponse
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from pykclient.record import EndTransactionMarker, MemoryRecordsBuilder
from pykclient.record.control_record import ControlRecordType
from pykclient.types import TopicPartition


def topic_id(topic: str) -> uuid.UUID:
    """Return the id that these responses give to ``topic``."""
    return uuid.uuid5(uuid.NAMESPACE_URL, topic)


def metadata_response(
    partitions: Mapping[str, int],
    *,
    brokers: int = 1,
    epoch: int = 5,
    leaders: Mapping[TopicPartition, int] | None = None,
    offline: Iterable[int] = (),
    ids: Mapping[str, uuid.UUID] | None = None,
    errors: Mapping[str, int] | None = None,
) -> MetadataResponse:
    """Return metadata with the given number of partitions per topic.

    Broker ``partition % brokers`` leads a partition unless ``leaders`` names another.
    """
    nodes = list(range(brokers))
    ids = ids if ids is not None else {topic: topic_id(topic) for topic in partitions}
    topics = [
        MetadataResponse.MetadataResponseTopic(
            name=topic,
            topic_id=ids.get(topic, uuid.UUID(int=0)),
            partitions=[
                MetadataResponse.MetadataResponsePartition(
                    partition_index=index,
                    leader_id=(leaders or {}).get(TopicPartition(topic, index), index % brokers),
                    leader_epoch=epoch,
                    replica_nodes=nodes,
                    isr_nodes=nodes,
                    offline_replicas=list(offline),
                )
                for index in range(count)
            ],
        )
        for topic, count in partitions.items()
    ]
    topics += [
        MetadataResponse.MetadataResponseTopic(name=topic, error_code=code) for topic, code in (errors or {}).items()
    ]
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=node, host="localhost", port=9092 + node, rack=f"r{node}")
            for node in nodes
        ],
        cluster_id="a-cluster",
        controller_id=0,
        topics=topics,
    )


def batch(
    base_offset: int,
    values: Sequence[bytes | None],
    *,
    producer_id: int = -1,
    transactional: bool = False,
    epoch: int = 1,
) -> bytes:
    """Return a batch of ``values`` with keys ``k0``, ``k1``, ... and timestamps 1000, 1001, ..."""
    builder = MemoryRecordsBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=transactional,
        partition_leader_epoch=epoch,
    )
    for index, value in enumerate(values):
        builder.append(1000 + index, f"k{index}".encode(), value)
    builder.close()
    return bytes(builder.build())


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    """Return the control batch that ends a transaction."""
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    builder = MemoryRecordsBuilder(
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control_batch=True,
        partition_leader_epoch=1,
    )
    builder.append_end_txn_marker(2000, EndTransactionMarker(kind, 0))
    builder.close()
    return bytes(builder.build())


def partition_data(
    tp: TopicPartition,
    records: bytes = b"",
    *,
    error_code: int = 0,
    high_watermark: int = 100,
    last_stable_offset: int = 100,
    log_start_offset: int = 0,
    aborted: Iterable[tuple[int, int]] = (),
    preferred_read_replica: int = -1,
    leader: tuple[int, int] | None = None,
) -> FetchResponse.PartitionData:
    """Return a partition's fetch response.

    ``aborted`` holds producer id and first offset of each aborted transaction.
    """
    return FetchResponse.PartitionData(
        partition_index=tp.partition,
        error_code=error_code,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted_transactions=[
            FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first)
            for producer_id, first in aborted
        ],
        preferred_read_replica=preferred_read_replica,
        current_leader=None
        if leader is None
        else FetchResponse.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
        records=records,
    )


def fetch_response(
    partitions: Mapping[TopicPartition, FetchResponse.PartitionData],
    *,
    session_id: int = 0,
    error_code: int = 0,
    throttle_ms: int = 0,
    ids: Mapping[str, uuid.UUID] | None = None,
    endpoints: Iterable[tuple[int, str, int]] = (),
) -> FetchResponse:
    return FetchResponse(
        throttle_time_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=tp.topic, topic_id=(ids or {}).get(tp.topic, topic_id(tp.topic)), partitions=[data]
            )
            for tp, data in partitions.items()
        ],
        node_endpoints=[FetchResponse.NodeEndpoint(node_id=id, host=host, port=port) for id, host, port in endpoints],
    )


def list_offsets_response(
    found: Mapping[TopicPartition, tuple[int, int]], *, errors: Mapping[TopicPartition, int] | None = None
) -> ListOffsetsResponse:
    """Return a ListOffsets response; ``found`` holds timestamp and offset."""
    topics = [
        ListOffsetsResponse.ListOffsetsTopicResponse(
            name=tp.topic,
            partitions=[
                ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=tp.partition, timestamp=timestamp, offset=offset
                )
            ],
        )
        for tp, (timestamp, offset) in found.items()
    ]
    topics += [
        ListOffsetsResponse.ListOffsetsTopicResponse(
            name=tp.topic,
            partitions=[
                ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=tp.partition, error_code=code)
            ],
        )
        for tp, code in (errors or {}).items()
    ]
    return ListOffsetsResponse(topics=topics)


def epoch_response(
    ends: Mapping[TopicPartition, tuple[int, int]], *, errors: Mapping[TopicPartition, int] | None = None
) -> OffsetForLeaderEpochResponse:
    """Return an OffsetForLeaderEpoch response; ``ends`` holds leader epoch and end offset."""
    answers = {tp: (0, *end) for tp, end in ends.items()}
    answers.update({tp: (code, -1, -1) for tp, code in (errors or {}).items()})
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=tp.topic,
                partitions=[
                    OffsetForLeaderEpochResponse.EpochEndOffset(
                        error_code=code, partition=tp.partition, leader_epoch=epoch, end_offset=end
                    )
                ],
            )
            for tp, (code, epoch, end) in answers.items()
        ]
    )


def handle_usual(shortcut: Shortcut, request: ClientRequest, version: int, response: Response, now_ms: int) -> bool:
    """Let the network client's shortcut handle the response to ``request``; return whether it did."""
    frame = encode_response(response, version, request.correlation_id).getvalue()[4:]
    in_flight = InFlightRequest(request, version, False, NetworkSend(request.destination, ()), now_ms)
    return in_flight.handle_usual(shortcut, frame, now_ms)
