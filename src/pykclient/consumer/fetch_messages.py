"""Fetch requests and responses with few objects for each partition (Java: FetchRequest.Builder)."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING

from pykclient.consumer.fetch_session_handler import TOPIC_ID_VERSION, FetchRequestData
from pykclient.errors import RemoteProtocolError
from pykclient.network.client_request import Renewal, RequestBuilder
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.wire import Reader, Writer

if TYPE_CHECKING:
    from pykclient.consumer.fetch_config import FetchConfig
    from pykclient.consumer.fetch_session_handler import PartitionData
    from pykclient.protocol.message import Response
    from pykclient.protocol.wire import BytesLike
    from pykclient.types import TopicIdPartition, TopicPartition

_NO_EPOCH = -1
#: The state in the request of a consumer. Nothing changes it.
_NO_REPLICA = FetchRequest.ReplicaState()

#: From this version on, a request of a consumer begins with ``_BEFORE_TOPICS``.
_FIRST_WITHOUT_REPLICA = 15
#: max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch.
_BEFORE_TOPICS = Struct(">iiibii")
#: A partition of a request: index, leader epoch, offset, last fetched epoch, log start offset, maximum size in bytes,
#: and the number of tagged fields.
_PARTITION = Struct(">iiqiqiB")

#: throttle_time_ms, error_code and session_id of a response.
_BEFORE_RESPONSES = Struct(">ihi")
#: A partition of a response: index, error code, high watermark, last stable offset, log start offset.
_PARTITION_DATA = Struct(">ihqqq")
#: Tagged fields that a response without errors does not have. Nothing changes them.
_NO_DIVERGING_EPOCH = FetchResponse.EpochEndOffset()
_NO_LEADER = FetchResponse.LeaderIdAndEpoch()
_NO_SNAPSHOT = FetchResponse.SnapshotId()


class SessionFetchRequest(FetchRequest):
    """A FetchRequest that writes its partitions without an object for each of them. Thread: owner."""

    __slots__ = ("_data",)

    def __init__(
        self, data: FetchRequestData, config: FetchConfig, forgotten: list[FetchRequest.ForgottenTopic]
    ) -> None:
        self._data = data
        self.cluster_id = None
        self.replica_id = -1
        self.replica_state = _NO_REPLICA
        self.max_wait_ms = config.max_wait_ms
        self.min_bytes = config.min_bytes
        self.max_bytes = config.max_bytes
        self.isolation_level = config.isolation_level
        self.session_id, self.session_epoch = data.metadata
        self.forgotten_topics_data = forgotten
        self.rack_id = config.client_rack_id
        self.unknown_tags = None

    @property
    def topics(self) -> list[FetchRequest.FetchTopic]:  # type: ignore[override]
        """The partitions as generated messages."""
        return _topics(self._data)

    def write(self, w: Writer, version: int) -> None:
        w.pack(
            _BEFORE_TOPICS,
            self.max_wait_ms,
            self.min_bytes,
            self.max_bytes,
            self.isolation_level,
            self.session_id,
            self.session_epoch,
        )
        groups = _by_topic(self._data)
        w.array_length(len(groups), True)
        for group in groups:
            w.uuid(group[0][1].topic_id)
            w.array_length(len(group), True)
            for tp, (_, offset, log_start_offset, max_bytes, epoch, last_epoch) in group:
                w.pack(
                    _PARTITION,
                    tp.partition,
                    _NO_EPOCH if epoch is None else epoch,
                    offset,
                    _NO_EPOCH if last_epoch is None else last_epoch,
                    log_start_offset,
                    max_bytes,
                    0,
                )
            w.tags(None)
        w.array_length(len(self.forgotten_topics_data), True)
        for forgotten in self.forgotten_topics_data:
            forgotten.write(w, version)
        w.string(self.rack_id, True)
        w.tags(None)


def read_plain_response(r: Reader, version: int) -> FetchResponse | None:
    """Read a response whose tagged fields are all absent, in a version with topic ids; None if it has others.

    Raises:
        RemoteProtocolError: the bytes are not a response.
    """
    response = FetchResponse.__new__(FetchResponse)
    response.throttle_time_ms, response.error_code, response.session_id = r.unpack(_BEFORE_RESPONSES)
    response.responses = responses = []
    response.node_endpoints = []
    response.unknown_tags = None
    new_topic, new_partition = FetchResponse.FetchableTopicResponse.__new__, FetchResponse.PartitionData.__new__
    for _ in range(r.array_length(True)):
        topic = new_topic(FetchResponse.FetchableTopicResponse)
        topic.topic = ""
        topic.topic_id = r.uuid()
        topic.partitions = partitions = []
        topic.unknown_tags = None
        for _ in range(r.array_length(True)):
            partition = new_partition(FetchResponse.PartitionData)
            (
                partition.partition_index,
                partition.error_code,
                partition.high_watermark,
                partition.last_stable_offset,
                partition.log_start_offset,
            ) = r.unpack(_PARTITION_DATA)
            count = r.nullable_array_length(True)
            partition.aborted_transactions = (
                None if count < 0 else [FetchResponse.AbortedTransaction.read(r, version) for _ in range(count)]
            )
            partition.preferred_read_replica = r.int32()
            partition.records = r.nullable_records(True)
            partition.diverging_epoch = _NO_DIVERGING_EPOCH
            partition.current_leader = _NO_LEADER
            partition.snapshot_id = _NO_SNAPSHOT
            partition.unknown_tags = None
            if r.uvarint():
                return None
            partitions.append(partition)
        if r.uvarint():
            return None
        responses.append(topic)
    return None if r.uvarint() else response


class FetchRequestBuilder(RequestBuilder):
    """Writes a session's data into a fetch request. Without topic ids, it uses no version that needs them.

    Thread: owner.
    """

    __slots__ = ("_config", "data", "renewal")

    def __init__(self, config: FetchConfig, data: FetchRequestData, renewal: Renewal | None = None) -> None:
        self.renewal = renewal
        oldest, latest = FetchRequest.VERSIONS
        self._config = config
        self.data = data
        self.api_key = FetchRequest.API_KEY
        self.oldest_allowed_version = oldest
        self.latest_allowed_version = latest if data.can_use_topic_ids else TOPIC_ID_VERSION - 1

    def build(self, version: int) -> FetchRequest:
        data, config = self.data, self._config
        to_forget = data.to_forget
        if version >= TOPIC_ID_VERSION:
            # By name alone, forgetting the deleted topic would forget the new one.
            to_forget = to_forget + data.to_replace
        forgotten = _forgotten(to_forget) if to_forget else []
        if version >= _FIRST_WITHOUT_REPLICA:
            return SessionFetchRequest(data, config, forgotten)
        return FetchRequest(
            max_wait_ms=config.max_wait_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.max_bytes,
            isolation_level=config.isolation_level,
            session_id=data.metadata.session_id,
            session_epoch=data.metadata.epoch,
            topics=_topics(data),
            forgotten_topics_data=forgotten,
            rack_id=config.client_rack_id,
        )

    def parse_response(self, frame: BytesLike, version: int) -> Response:
        if version >= TOPIC_ID_VERSION:
            r = Reader(frame, 4)  # behind the correlation id
            try:
                r.tags()
                plain = read_plain_response(r, version)
            except RemoteProtocolError:
                plain = None  # raised again below
            if plain is not None:
                return plain
        return super().parse_response(frame, version)

    def __repr__(self) -> str:
        return f"FetchRequestBuilder({self.data})"


def _by_topic(data: FetchRequestData) -> list[list[tuple[TopicPartition, PartitionData]]]:
    """Return the partitions in order, with a new group wherever the topic changes."""
    groups: list[list[tuple[TopicPartition, PartitionData]]] = []
    last = None
    for item in data.to_send.items():
        if item[0].topic != last:
            last = item[0].topic
            groups.append([item])
        else:
            groups[-1].append(item)
    return groups


def _topics(data: FetchRequestData) -> list[FetchRequest.FetchTopic]:
    return [
        FetchRequest.FetchTopic(
            topic=group[0][0].topic,
            topic_id=group[0][1].topic_id,
            partitions=[
                FetchRequest.FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=_NO_EPOCH if of.current_leader_epoch is None else of.current_leader_epoch,
                    fetch_offset=of.fetch_offset,
                    last_fetched_epoch=_NO_EPOCH if of.last_fetched_epoch is None else of.last_fetched_epoch,
                    log_start_offset=of.log_start_offset,
                    partition_max_bytes=of.max_bytes,
                )
                for tp, of in group
            ],
        )
        for group in _by_topic(data)
    ]


def _forgotten(partitions: Iterable[TopicIdPartition]) -> list[FetchRequest.ForgottenTopic]:
    topics: dict[tuple[str, int], FetchRequest.ForgottenTopic] = {}
    for topic_id, tp in partitions:
        key = tp.topic, topic_id.int
        if key not in topics:
            topics[key] = FetchRequest.ForgottenTopic(topic=tp.topic, topic_id=topic_id)
        topics[key].partitions.append(tp.partition)
    return list(topics.values())
