"""Produce requests and responses without an object for each batch (Java: ProduceRequest, ProduceResponse)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING
from uuid import UUID

from pykclient.network.client_request import RequestBuilder
from pykclient.producer.outbox import NO_OFFSET, NO_TIMESTAMP
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

#: For ``leader_id`` and ``leader_epoch``: the response has none.
NO_LEADER = -1

#: A partition's part of a flexible response: index, error code, base offset, log append time, log start offset, the
#: lengths of the lists of invalid records and of the error message, and the number of tagged fields.
_PARTITION = Struct(">ihqqqBBB")
#: The values of the last three fields for a batch that was written: an empty list, null, and no fields.
_NOTHING_ELSE = (1, 0, 0)
#: A whole response with topic ids and one partition: correlation id, tagged fields, the length of a list of one topic,
#: its id, the length of a list of one partition, the partition, tagged fields, throttle time and tagged fields.
_ONE_PARTITION = Struct(">4xBB16sBihqqqBBBBiB")
#: The values behind the partition's first five fields, if its batch was written.
_ONE_TAIL = (*_NOTHING_ELSE, 0)

#: The numbers of tagged fields at the end of a request: of the last partition, of its topic, and of the request.
_NO_TAGS = bytes(3)
#: Shorter records are copied behind the fields before them, as by ``Writer``.
_COPY_BELOW = 1024


class _OnePartition:
    """All that two requests for one partition of a topic have in common. Immutable. Thread: any."""

    __slots__ = ("client_id", "encoded_id", "fields", "layout", "name", "short_layout", "topic_id", "version")

    def __init__(
        self, template: ProduceTemplate, name: str, topic_id: UUID, version: int, client_id: str | None
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.encoded_id = topic_id.bytes
        self.version = version
        self.client_id = client_id
        w = Writer()
        w.nullable_string(client_id, False)
        w.tags(None)
        w.pack(template.layout, template.encoded)
        w.array_length(1, True)
        w.uuid(topic_id)
        w.array_length(1, True)
        #: What lies between the correlation id and the partition.
        self.fields = w.getvalue()
        #: Size, API key, version, correlation id, the fields, partition, and the length of its records in two bytes.
        self.layout = Struct(f">ihhi{len(self.fields)}siBB")
        #: The same with one byte for the length.
        self.short_layout = Struct(f">ihhi{len(self.fields)}siB")


class PartitionResponse:
    """The result for one partition: its part of the response, or the error if there is no response.

    Java: ProduceResponse.PartitionResponse.
    """

    __slots__ = (
        "base_offset",
        "error_code",
        "error_message",
        "leader_epoch",
        "leader_id",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        error_code: int,
        base_offset: int = NO_OFFSET,
        log_append_time_ms: int = NO_TIMESTAMP,
        log_start_offset: int = NO_OFFSET,
        error_message: str | None = None,
        record_errors: Mapping[int, str | None] | None = None,
        leader_id: int = NO_LEADER,
        leader_epoch: int = NO_LEADER,
    ) -> None:
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.error_message = error_message
        #: The error message per invalid record, by the record's index in the batch (KIP-467).
        self.record_errors = record_errors
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class ProduceTemplate:
    """The fields that all produce requests of a producer share, also as bytes of the flexible versions."""

    __slots__ = ("_one_partition", "acks", "encoded", "layout", "timeout_ms", "transactional_id")

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
        self._one_partition: _OnePartition | None = None  # of the last request

    def of_one_partition(self, name: str, topic_id: UUID, version: int, client_id: str | None) -> _OnePartition:
        """Return the constant part of requests for one partition of a topic. Thread: io."""
        one = self._one_partition
        if one is None or one.topic_id is not topic_id or one.version != version or one.client_id != client_id:
            one = self._one_partition = _OnePartition(self, name, topic_id, version, client_id)
        return one


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

    def sole_batch(self, version: int, client_id: str | None) -> tuple[_OnePartition, ProducerBatch] | None:
        """Return the only batch, and the constant part of its request; None if there are several."""
        if len(self._topics) == 1:
            ((name, batches),) = self._topics.items()
            if len(batches) == 1:
                one = self._template.of_one_partition(name, self._topic_ids[name], version, client_id)
                return one, batches[0]
        return None


class WrittenResponse(ProduceResponse):
    """A ProduceResponse in which all batches succeeded. Thread: io."""

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
    def of_one_partition(cls, frame: BytesLike, one: _OnePartition | None) -> WrittenResponse | None:
        """Read a response with topic ids for one partition; None if ``read_written`` must read it.

        With one record at a time, all responses are of this kind, and belong to a request with ``one``. One call
        unpacks them.
        """
        fields = _ONE_PARTITION.unpack(frame)
        if fields[0] or fields[1] != 2 or fields[3] != 2 or fields[5] or fields[9:13] != _ONE_TAIL or fields[14]:
            return None
        if one is not None and fields[2] == one.encoded_id:
            return cls([(one.name, one.topic_id, [fields[4:12]])], fields[13])
        return cls([("", Reader(fields[2]).uuid(), [fields[4:12]])], fields[13])

    @classmethod
    def read_written(cls, r: Reader, version: int) -> WrittenResponse | None:
        """Read a response of a flexible version; return None if it has anything but successes.

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
    """Writes most requests, and reads most responses, without an object for each batch. Thread: io."""

    __slots__ = ("_one_partition",)

    def __init__(self, message: ProduceRequest, min_version: int | None = None, max_version: int | None = None) -> None:
        self.message = message
        self.api_key = _PRODUCE
        self.oldest_allowed_version = _OLDEST if min_version is None else min_version
        self.latest_allowed_version = _LATEST if max_version is None else max_version
        self._one_partition: _OnePartition | None = None  # set if the request is for one partition

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> Sequence[BytesLike]:
        """Return the frame. For a single batch, one call packs everything except the records."""
        message = self.message
        if version >= _FIRST_WITH_TOPIC_IDS and isinstance(message, BatchesRequest):
            sole = message.sole_batch(version, client_id)
            if sole is not None:
                one, batch = sole
                records = batch.records
                size = len(records)
                length = size + 1  # as a compact type has it
                partition = batch.topic_partition.partition
                if length < 1 << 14:
                    self._one_partition = one
                    layout, fields = one.layout, one.fields
                    if length >= 1 << 7:
                        size += layout.size - 1  # without the size itself, and with _NO_TAGS
                        low, high = length & 0x7F | 0x80, length >> 7
                        head = layout.pack(size, _PRODUCE, version, correlation_id, fields, partition, low, high)
                    else:
                        layout = one.short_layout
                        size += layout.size - 1
                        head = layout.pack(size, _PRODUCE, version, correlation_id, fields, partition, length)
                    if length > _COPY_BELOW:
                        return (head, records, _NO_TAGS)
                    return (b"".join((head, records, _NO_TAGS)),)
        return super().encode(version, correlation_id, client_id)

    def parse_response(self, frame: BytesLike, version: int) -> Response:
        if version >= _FIRST_WITH_TOPIC_IDS and len(frame) == _ONE_PARTITION.size:
            written = WrittenResponse.of_one_partition(frame, self._one_partition)
            if written is not None:
                return written
        if version >= ProduceResponse.FLEXIBLE_FROM:
            r = Reader(frame, 4)  # behind the correlation id
            r.tags()
            written = WrittenResponse.read_written(r, version)
            if written is not None:
                return written
        return super().parse_response(frame, version)
