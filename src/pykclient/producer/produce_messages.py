"""Produce requests and responses without an object for each batch (Java: ProduceRequest, ProduceResponse)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING
from uuid import UUID

from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.protocol.wire import ZERO_UUID, Reader, Writer

if TYPE_CHECKING:
    from pykclient.producer.producer_batch import ProducerBatch
    from pykclient.protocol.message import Response
    from pykclient.protocol.wire import BytesLike

_PRODUCE = ProduceRequest.API_KEY
_OLDEST, _LATEST = ApiKeys.versions(_PRODUCE)

#: The first version that identifies topics by id (KIP-516).
_FIRST_WITH_TOPIC_IDS = 13

#: A partition's part of a flexible response: index, error code, base offset, log append time, log start offset, the
#: lengths of the lists of invalid records and of the error message, and the number of tagged fields.
_PARTITION = Struct(">ihqqqBBB")
#: The values of the last three fields for a batch that was written: an empty list, null, and no fields.
_NOTHING_ELSE = (1, 0, 0)
#: A whole response with topic ids and one partition: correlation id, tagged fields, the length of a list of one topic,
#: its id, the length of a list of one partition, the partition, tagged fields, throttle time and tagged fields.
_ONE_PARTITION = Struct(">4xBB16xBihqqqBBBBiB")
_OFFSET_OF_TOPIC_ID = 6
#: The values around the partition's first five fields and the throttle time, if its batch was written.
_ONE_HEAD = (0, 2, 2)
_ONE_TAIL = (*_NOTHING_ELSE, 0)


class ProduceTemplate:
    """The fields that all produce requests of a producer share, also as bytes of the flexible versions."""

    __slots__ = ("acks", "encoded", "layout", "timeout_ms", "transactional_id")

    def __init__(self, transactional_id: str | None, acks: int, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        w = Writer()
        w.nullable_string(transactional_id, True)
        w.int16(acks)
        w.int32(timeout_ms)
        self.encoded = w.getvalue()
        self.layout = Struct(f"{len(self.encoded)}s")


class BatchesRequest(ProduceRequest):
    """A ProduceRequest that writes its batches without an object for each of them. Thread: io."""

    __slots__ = ("_template", "_topic_ids", "_topics")

    def __init__(
        self, template: ProduceTemplate, topics: Mapping[str, Sequence[ProducerBatch]], topic_ids: Mapping[str, UUID]
    ) -> None:
        self.transactional_id = template.transactional_id
        self.acks = template.acks
        self.timeout_ms = template.timeout_ms
        self.unknown_tags = None
        self._template = template
        self._topics = topics
        self._topic_ids = topic_ids

    @property
    def topic_data(self) -> list[ProduceRequest.TopicProduceData]:  # type: ignore[override]
        """The batches as generated messages, for all versions but the newest ones."""
        return [
            ProduceRequest.TopicProduceData(
                name=name,
                topic_id=self._topic_ids.get(name, ZERO_UUID),
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=batch.topic_partition.partition, records=batch.records)
                    for batch in batches
                ],
            )
            for name, batches in self._topics.items()
        ]

    def write(self, w: Writer, version: int) -> None:
        if version < self.FLEXIBLE_FROM:
            super().write(w, version)
            return
        w.pack(self._template.layout, self._template.encoded)
        w.array_length(len(self._topics), True)
        for name, batches in self._topics.items():
            if version >= _FIRST_WITH_TOPIC_IDS:
                w.uuid(self._topic_ids[name])
            else:
                w.string(name, True)
            w.array_length(len(batches), True)
            for batch in batches:
                w.int32(batch.topic_partition.partition)
                w.nullable_records(batch.records, True)
                w.tags(None)
            w.tags(None)
        w.tags(None)


class WrittenResponse(ProduceResponse):
    """A ProduceResponse by which all batches were written. Thread: io."""

    __slots__ = ("written",)

    #: The name or the id of each topic, and for each of its partitions the index, 0, the base offset and the log append
    #: time in milliseconds, followed by fields without meaning.
    written: list[tuple[str, UUID, list[tuple[int, ...]]]]

    def __init__(self, written: list[tuple[str, UUID, list[tuple[int, ...]]]], throttle_time_ms: int) -> None:
        self.written = written
        self.throttle_time_ms = throttle_time_ms
        self.responses = []
        self.node_endpoints = []
        self.unknown_tags = None

    @classmethod
    def of_one_partition(cls, frame: BytesLike) -> WrittenResponse | None:
        """Return a response with topic ids that is as long as one for one partition; None if ``read_written`` must.

        With one record at a time, all responses are of this kind. One call unpacks them.
        """
        fields = _ONE_PARTITION.unpack(frame)
        if fields[:3] != _ONE_HEAD or fields[4] or fields[8:12] != _ONE_TAIL or fields[13]:
            return None
        topic_id = Reader(frame, _OFFSET_OF_TOPIC_ID).uuid()
        return cls([("", topic_id, [fields[3:11]])], fields[12])

    @classmethod
    def read_written(cls, r: Reader, version: int) -> WrittenResponse | None:
        """Read a response of a flexible version; return None if anything but written batches is in it.

        Raises:
            RemoteProtocolError: the bytes are not a response.
        """
        topics: list[tuple[str, UUID, list[tuple[int, ...]]]] = []
        for _ in range(r.array_length(True)):
            has_id = version >= _FIRST_WITH_TOPIC_IDS
            name, topic_id = ("", r.uuid()) if has_id else (r.string(True), ZERO_UUID)
            size = r.array_length(True) * _PARTITION.size
            if size > r.remaining:
                return None
            partitions = list(_PARTITION.iter_unpack(r.raw(r.pos + size)))
            for partition in partitions:
                if partition[1] or partition[5:] != _NOTHING_ELSE:
                    return None
            topics.append((name, topic_id, partitions))
            r.tags()
        throttle_time_ms = r.int32()
        return None if r.tags() else cls(topics, throttle_time_ms)


class ProduceRequestBuilder(RequestBuilder):
    """Reads most responses without an object for each batch. Thread: io."""

    __slots__ = ()

    def __init__(self, message: ProduceRequest, min_version: int | None = None, max_version: int | None = None) -> None:
        self.message = message
        self.api_key = _PRODUCE
        self.oldest_allowed_version = _OLDEST if min_version is None else min_version
        self.latest_allowed_version = _LATEST if max_version is None else max_version

    def parse_response(self, frame: BytesLike, version: int) -> Response:
        if version >= _FIRST_WITH_TOPIC_IDS and len(frame) == _ONE_PARTITION.size:
            written = WrittenResponse.of_one_partition(frame)
            if written is not None:
                return written
        if version >= ProduceResponse.FLEXIBLE_FROM:
            r = Reader(frame, 4)  # behind the correlation id
            r.tags()
            written = WrittenResponse.read_written(r, version)
            if written is not None:
                return written
        return super().parse_response(frame, version)
