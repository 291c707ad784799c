"""Produce requests and responses, without an object for each batch, what a response means for its batches, and the
metrics of both.

Java: ProduceRequest, ProduceResponse, Sender.handleProduceResponse and the methods that it calls, SenderMetrics.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

from pykclient import errors
from pykclient.clock import FOREVER_MS, HERE, Clock, is_interrupting
from pykclient.errors import (
    ClusterAuthorizationError,
    DuplicateSequenceError,
    FencedLeaderEpochError,
    InvalidMetadataError,
    InvalidRecordError,
    KafkaError,
    NetworkError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
    RequestTimedOutError,
    RetriableError,
    TopicAuthorizationError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pykclient.log_context import LogContext
from pykclient.metrics import Avg, Tally
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.network.failures import idempotence_denied, topics_denied
from pykclient.network.metadata import LeaderIdAndEpoch
from pykclient.producer.future import ProducerBatch
from pykclient.producer.outbox import ANSWERED, NO_OFFSET, NO_TIMESTAMP, succeed_written
from pykclient.producer.producer_metrics import GROUP, TOPIC_GROUP, Registry
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.protocol.wire import ZERO_UUID, Reader, Writer
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from pykclient.metrics import Metrics
    from pykclient.network.kafka_client import KafkaClient
    from pykclient.network.metadata import Metadata
    from pykclient.producer.producer_metadata import ProducerMetadata
    from pykclient.producer.record_accumulator import RecordAccumulator
    from pykclient.producer.transactions.producer_id_manager import ProducerIdManager
    from pykclient.protocol.message import Response
    from pykclient.protocol.wire import BytesLike

T = TypeVar("T")

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


class PartitionResponse(NamedTuple):
    """The result for one partition: its part of the response, or the error if there is no response.

    Java: ProduceResponse.PartitionResponse.
    """

    error_code: int
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET
    error_message: str | None = None
    #: The error message per invalid record, by the record's index in the batch (KIP-467).
    record_errors: Mapping[int, str | None] | None = None
    leader_id: int = NO_LEADER
    leader_epoch: int = NO_LEADER


class ProduceTemplate:
    """The fields that all produce requests of a producer share, also as bytes of the flexible versions."""

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


_NO_ERROR = 0

#: The most partitions that a line of the log names.
_MOST_NAMED: Final = 10


class ProduceResponseHandler:
    """Completes, fails, retries or splits batches according to the broker's response. Thread: io."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: ProducerMetadata,
        metrics: SenderMetrics,
        clock: Clock,
        log_context: LogContext,
        *,
        retries: int,
        id_manager: ProducerIdManager | None,
    ) -> None:
        self._log = log_context.logger(__name__)
        self._warnings = ProduceWarnings(self._log)
        self._delivery_timeout_ms = accumulator.delivery_timeout_ms
        self._register = accumulator.register
        self._metadata = metadata
        self._metrics = metrics
        self._clock = clock
        self._retries = retries
        self._id_manager = id_manager

    # --- a whole response --------------------------------------------------------------------------------------

    def handle(
        self,
        response: ClientResponse,
        batches: Mapping[TopicPartition, ProducerBatch],
        topic_names: Mapping[UUID, str],
    ) -> None:
        """Handle the response, or its absence, to a request with ``batches``. The register holds them."""
        body: ProduceResponse | None = response.response_body
        try:
            if body is not None:
                self._handle_body(body, batches, topic_names, response)
                self._metrics.latencies.append((response.destination, response.received_ms - response.created_ms))
            else:
                self._handle_no_body(response, batches)
        finally:
            if self._warnings.noted:
                self._warnings.write()

    def _handle_no_body(self, response: ClientResponse, batches: Mapping[TopicPartition, ProducerBatch]) -> None:
        if response.timed_out:
            message = f"broker {response.destination} sent no response within request.timeout.ms"
            self._complete_all(batches.values(), PartitionResponse(RequestTimedOutError.code, error_message=message))
        elif response.disconnected:
            message = f"the connection to broker {response.destination} was lost"
            self._complete_all(batches.values(), PartitionResponse(NetworkError.code, error_message=message))
        elif isinstance(response.build_error, UnsupportedVersionError):
            self._log.warning(
                "A produce request to broker %s was not sent: %s", response.destination, response.build_error
            )
            message = str(response.build_error)
            self._complete_all(batches.values(), PartitionResponse(UnsupportedVersionError.code, error_message=message))
        elif response.build_error is not None:
            self.fail_unsent(batches, response.build_error)
        else:  # acks=0: the broker sends no response
            self._complete_all(batches.values(), PartitionResponse(_NO_ERROR))

    def _complete_all(self, batches: Iterable[ProducerBatch], response: PartitionResponse) -> None:
        now_ms = self._clock.now_ms()
        for batch in batches:
            self._complete_batch(batch, response, now_ms, None)

    def fail_unsent(self, batches: Mapping[TopicPartition, ProducerBatch], error: Exception) -> None:
        """Fail the batches of a request that was not sent."""
        partitions = ", ".join(map(str, batches))
        self._log.error("A produce request for %s was not sent: %s", partitions, error)
        for batch in batches.values():
            self.fail_batch(batch, error, refused=not (batch.attempts or batch.may_be_written))

    def put_back_unsent(self, batches: Mapping[TopicPartition, ProducerBatch]) -> None:
        """Requeue batches whose request was not sent because of another batch in it."""
        now_ms = self._clock.now_ms()
        for batch in batches.values():
            if batch.is_done:
                self._register.conclude(batch)
            else:
                self._reenqueue(batch, now_ms)

    def fail_held(self, error: Exception) -> None:
        """Fail the batches that an exception in the sender has left neither queued nor in flight."""
        for batch in [*self._register.held]:
            self._register.reclaim(batch)
            if batch.is_done:
                self._register.conclude_again(batch, error)
            else:
                failure = KafkaError(f"an unexpected error kept {batch} from being sent or completed: {error!r}")
                failure.__cause__ = error
                self.fail_batch(batch, failure)

    def retry_held(self, now_ms: int) -> None:
        """Retry all held batches, after an exception ended a step or a poll."""
        message = "an exception interrupted the call that was sending the batch"
        lost = PartitionResponse(NetworkError.code, error_message=message)
        for batch in [*self._register.held]:
            if batch.is_done:
                self._register.conclude_again(batch, NetworkError(message))
            elif batch.state == ANSWERED:
                self._complete_batch(batch, lost, now_ms, None)
            else:
                self._register.put_back(batch)

    def _handle_body(
        self,
        body: ProduceResponse,
        batches: Mapping[TopicPartition, ProducerBatch],
        topic_names: Mapping[UUID, str],
        response: ClientResponse,
    ) -> None:
        node_id = response.destination
        now_ms = response.received_ms
        unanswered: dict[tuple[str, int], ProducerBatch] = dict(batches.items())
        strangers: list[str] = []
        new_leaders: dict[TopicPartition, LeaderIdAndEpoch] = {}
        # From version 13 on, responses identify topics by id.
        if isinstance(body, WrittenResponse):
            for name, topic_id, written in body.written:
                topic_name = name or topic_names.get(topic_id, "")
                unknown, late = succeed_written(self._register, unanswered, topic_name, written)
                strangers += [f"{topic_name or topic_id}-{index}" for index in unknown]
                for batch in late:
                    self._note_late(batch)
        for topic in body.responses:
            name = topic.name or topic_names.get(topic.topic_id, "")
            for partition in topic.partition_responses:
                failed = unanswered.pop((name, partition.index), None)
                if failed is None:
                    strangers.append(f"{name or topic.topic_id}-{partition.index}")
                    continue
                part = PartitionResponse(
                    partition.error_code,
                    partition.base_offset,
                    partition.log_append_time_ms,
                    partition.log_start_offset,
                    partition.error_message,
                    {error.batch_index: error.batch_index_error_message for error in partition.record_errors},
                    partition.current_leader.leader_id,
                    partition.current_leader.leader_epoch,
                )
                self._complete_batch(failed, part, now_ms, new_leaders)
        if new_leaders:
            nodes = [Node(end.node_id, end.host, end.port, end.rack) for end in body.node_endpoints if end.node_id >= 0]
            self._metadata.update_partition_leadership(new_leaders, nodes)
        if strangers:
            self._log.error("Broker %s responded for partitions not in the request: %s", node_id, ", ".join(strangers))
        if unanswered:
            # Java ignores these. They would then wait for their delivery timeout; and because a batch in flight keeps
            # its memory, that memory would be lost for good.
            message = f"the response of broker {node_id} does not contain the partition"
            self._complete_all(unanswered.values(), PartitionResponse(NetworkError.code, error_message=message))

    # --- one batch ---------------------------------------------------------------------------------------------

    def _complete_batch(
        self,
        batch: ProducerBatch,
        response: PartitionResponse,
        now_ms: int,
        new_leaders: dict[TopicPartition, LeaderIdAndEpoch] | None,
    ) -> None:
        error = errors.for_code(response.error_code, response.error_message)
        if error is None:
            self._succeed(batch, response.base_offset, response.log_append_time_ms)
        elif isinstance(error, RecordTooLargeError) and batch.record_count > 1 and not batch.is_done:
            self._split(batch, error)
        else:
            if self._can_retry(batch, error, response, now_ms):
                self._log_retry(batch, error)
                self._reenqueue(batch, now_ms)
            elif isinstance(error, DuplicateSequenceError):
                # An earlier attempt wrote the batch, so long ago that the broker no longer knows the offset.
                self._succeed(batch, response.base_offset, response.log_append_time_ms)
            else:
                # It is certain that nothing was written only if the batch's single attempt was refused. Java assumes it
                # while retries are left, and so can write the batches behind this one twice. The broker may return an
                # unknown error after it has written the batch.
                refused = batch.attempts == 0 and not isinstance(error, (RetriableError, UnknownServerError))
                refused = refused and not batch.may_be_written
                self._fail_by_response(batch, error, response, refused)
            if isinstance(error, InvalidMetadataError):
                self._refresh_metadata(batch, error, response, new_leaders)

    def _refresh_metadata(
        self,
        batch: ProducerBatch,
        error: Exception,
        response: PartitionResponse,
        new_leaders: dict[TopicPartition, LeaderIdAndEpoch] | None,
    ) -> None:
        if isinstance(error, UnknownTopicOrPartitionError):
            self._warnings.missing(batch.topic_partition)
        if (
            isinstance(error, (NotLeaderOrFollowerError, FencedLeaderEpochError))
            and new_leaders is not None
            and response.leader_id != NO_LEADER
            and response.leader_epoch != NO_LEADER
        ):
            new_leaders[batch.topic_partition] = LeaderIdAndEpoch(response.leader_id, response.leader_epoch)
        self._metadata.request_update(False)

    def _can_retry(self, batch: ProducerBatch, error: Exception, response: PartitionResponse, now_ms: int) -> bool:
        if (
            batch.has_reached_delivery_timeout(self._delivery_timeout_ms, now_ms)
            or batch.attempts >= self._retries
            or batch.is_done
        ):
            return False
        if self._id_manager is None:
            return isinstance(error, RetriableError)
        return self._id_manager.can_retry(batch, error, response.log_start_offset)

    def _log_retry(self, batch: ProducerBatch, error: Exception) -> None:
        # The network client has already logged a lost connection. One retry is normal, for example after a leader
        # election.
        if batch.attempts == 0 or isinstance(error, (NetworkError, RequestTimedOutError)):
            self._log.debug("Retrying %s after attempt %d: %s", batch, batch.attempts + 1, error)
        else:
            self._warnings.retry(batch, error)

    def _reenqueue(self, batch: ProducerBatch, now_ms: int) -> None:
        self._register.requeue(batch, now_ms)
        self._metrics.record_retries(batch.topic_partition.topic, batch.record_count)

    def _split(self, batch: ProducerBatch, error: Exception) -> None:
        """Split a batch that compressed worse than estimated into smaller ones, and queue these (KIP-126)."""
        self._log.warning("Splitting %s, because it is too large: %s", batch, error)
        self._register.split(batch)
        self._metrics.record_batch_split()

    def _succeed(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        if not self._register.succeed(batch, base_offset, log_append_time_ms):
            self._note_late(batch)

    def _note_late(self, batch: ProducerBatch) -> None:
        self._log.debug("%s was written, although its final state is %s", batch, batch.final_state)

    def _fail_by_response(
        self, batch: ProducerBatch, error: Exception, response: PartitionResponse, refused: bool
    ) -> None:
        if isinstance(error, TopicAuthorizationError):
            error = topics_denied(self._log.principal, [batch.topic_partition.topic], "WRITE")
        elif isinstance(error, ClusterAuthorizationError):
            error = idempotence_denied(self._log.principal)
        elif isinstance(error, RecordTooLargeError):
            size = batch.estimated_size_in_bytes
            error = RecordTooLargeError(
                f"a record for topic {batch.topic_partition.topic!r} is too large: its batch takes {size} bytes, more "
                "than max.message.bytes of the topic or message.max.bytes of the broker allows"
            )
        self.fail_batch(batch, error, _errors_by_record(error, response), refused=refused)

    def fail_batch(
        self,
        batch: ProducerBatch,
        error: Exception,
        error_for: Callable[[int], Exception] | None = None,
        *,
        refused: bool = False,
    ) -> None:
        """Fail all records of a batch; see ``BatchRegister.fail``."""
        if self._register.fail(batch, error, error_for, refused=refused):
            self._metrics.record_errors(batch.topic_partition.topic, batch.record_count)


def _errors_by_record(error: Exception, response: PartitionResponse) -> Callable[[int], Exception] | None:
    """Return the error of each record if the broker names the invalid ones (KIP-467); None if all share ``error``."""
    named = response.record_errors
    if not named:
        return None
    by_index: dict[int, Exception] = {}
    for index, message in named.items():
        text = message or response.error_message or str(error)
        # The partition's error code is certain to be about this record only if it is the only one named.
        by_index[index] = type(error)(text) if len(named) == 1 else InvalidRecordError(text)
    rest = KafkaError("the record was not written, because its batch contains an invalid record")
    return lambda index: by_index.get(index, rest)


#: How often the sender publishes what nobody has read meanwhile.
PUBLISH_INTERVAL_MS = 100


#: The numbers that metrics need of a batch that was sent: topic, number of records, size in bytes, compression ratio,
#: time in the queue in ms, and the size of the largest record. A plain tuple, because one is created per batch.
SentBatch = tuple[str, int, int, float, int, int]


class TopicMetrics:
    """The sensors of one topic."""

    def __init__(self, metrics: Metrics, topic: str, before_read: Callable[[int], None]) -> None:
        registry = Registry(metrics, before_read)
        self.records = registry.topic_meter(topic, "records-per-batch", "record-send", "Records sent")
        self.bytes = registry.topic_meter(topic, "bytes", "byte", "Bytes sent")
        self.retries = registry.topic_meter(topic, "record-retries", "record-retry", "Records retried")
        self.errors = registry.topic_meter(topic, "record-errors", "record-error", "Records failed")
        self.compression_rate = registry.sensor(f"topic.{topic}.compression-rate")
        self.compression_rate.add(
            metrics.metric_name(
                "compression-rate",
                TOPIC_GROUP,
                "The average ratio of compressed to uncompressed size of this topic's batches",
                {"topic": topic},
            ),
            Avg(),
        )

    def publish(self, batches: Sequence[SentBatch], now_ms: int) -> None:
        _, records, sizes, compression_ratios, _, _ = zip(*batches, strict=True)
        self.records.record(sum(records), now_ms)
        self.bytes.record(sum(sizes), now_ms)
        self.compression_rate.record_all(Tally.of(*compression_ratios), now_ms)


class SenderMetrics:
    """The sender's metrics. Thread: io, but for ``publish``, which any thread may call."""

    def __init__(self, metrics: Metrics, metadata: Metadata, client: KafkaClient, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._topics: dict[str, TopicMetrics] = {}
        # guards: publications; taken before the locks of sensors
        self._lock = threading.Lock()
        # Each is filled by the sender, and emptied by whoever publishes.
        self._unpublished: deque[SentBatch] = deque()
        self._unpublished_requests: deque[int] = deque()  # the record count of each request
        #: The node and the latency in ms of each response, for ``publish`` to record. The sender adds them.
        self.latencies: deque[tuple[str, int]] = deque()
        self._next_publication_ms = 0
        registry = Registry(metrics, self.publish)
        self._batch_size = registry.avg_max("batch-size", "batch-size", "number of bytes per batch sent")
        self._queue_time = registry.avg_max(
            "queue-time", "record-queue-time", "time in ms that batches waited to be sent"
        )
        self._request_time = registry.avg_max("request-time", "request-latency", "request latency in ms")
        self._record_size = registry.avg_max(
            "record-size", "record-size", "size in bytes of the largest record of a batch"
        )
        self._retries = registry.meter("record-retries", "record-retry", "Records retried")
        self._errors = registry.meter("errors", "record-error", "Records failed")
        self._batch_splits = registry.meter("batch-split-rate", "batch-split", "Batches split")
        self._records_per_request = registry.meter("records-per-request", "record-send", "Records sent")
        name = metrics.metric_name
        self._records_per_request.add(
            name("records-per-request-avg", GROUP, "The average number of records per request"), Avg()
        )
        self._compression_rate = registry.sensor("compression-rate")
        self._compression_rate.add(
            name("compression-rate-avg", GROUP, "The average ratio of compressed to uncompressed size of batches"),
            Avg(),
        )
        metrics.add_metric(
            name("requests-in-flight", GROUP, "Requests in flight"),
            lambda _config, _now_ms: client.in_flight_request_count(),
        )
        metrics.add_metric(
            name("metadata-age", GROUP, "The age of the metadata in seconds"),
            lambda _config, now_ms: (now_ms - metadata.last_successful_update) / 1000,
        )

    def _topic(self, topic: str) -> TopicMetrics:
        metrics = self._topics.get(topic)
        if metrics is None:
            metrics = self._topics[topic] = TopicMetrics(self._metrics, topic, self.publish)
        return metrics

    def collect_request(self, batches: Iterable[ProducerBatch]) -> None:
        """Collect the numbers of a request with these closed batches; ``publish`` records them."""
        unpublished = self._unpublished
        records = 0
        for batch in batches:
            topic = batch.topic_partition.topic
            if topic not in self._topics:
                self._topic(topic)  # not by publish(), under whose lock no reporter may be told of new metrics
            count = batch.record_count
            unpublished.append(
                (
                    topic,
                    count,
                    batch.size_in_bytes,
                    batch.compression_ratio,
                    batch.drained_ms - batch.created_ms,
                    batch.max_record_size,
                )
            )
            records += count
        self._unpublished_requests.append(records)

    def publish_if_due(self, now_ms: int) -> int:
        """Publish the collected numbers if the interval has passed; return the ms until the next call."""
        if not self._unpublished and not self.latencies:
            return FOREVER_MS
        if now_ms < self._next_publication_ms:
            return self._next_publication_ms - now_ms
        self.publish(now_ms)
        return FOREVER_MS

    def publish(self, now_ms: int) -> None:
        """Record all collected numbers, so that the metrics include all batches sent so far."""
        if is_interrupting():  # a signal handler reads a metric: this thread may hold the lock
            return
        with HERE.mark, self._lock:
            self._next_publication_ms = now_ms + PUBLISH_INTERVAL_MS
            if self.latencies:
                self._publish_latencies(now_ms)
            requests = _taken(self._unpublished_requests)
            if requests:
                self._records_per_request.record_all(Tally.of(*requests), now_ms)
            batches = _taken(self._unpublished)
            if not batches:
                return
            by_topic: dict[str, list[SentBatch]] = {}
            for batch in batches:
                by_topic.setdefault(batch[0], []).append(batch)
            for topic, of_topic in by_topic.items():
                self._topics[topic].publish(of_topic, now_ms)
            _, _, sizes, compression_ratios, queue_times_ms, largest_records = zip(*batches, strict=True)
            self._batch_size.record_all(Tally.of(*sizes), now_ms)
            self._queue_time.record_all(Tally.of(*queue_times_ms), now_ms)
            self._record_size.record_all(Tally.of(*largest_records), now_ms)
            self._compression_rate.record_all(Tally.of(*compression_ratios), now_ms)

    def record_retries(self, topic: str, count: int) -> None:
        now_ms = self._clock.now_ms()
        self._retries.record(count, now_ms)
        self._topic(topic).retries.record(count, now_ms)

    def record_errors(self, topic: str, count: int) -> None:
        now_ms = self._clock.now_ms()
        self._errors.record(count, now_ms)
        self._topic(topic).errors.record(count, now_ms)

    def _publish_latencies(self, now_ms: int) -> None:
        latencies = _taken(self.latencies)
        by_node: dict[str, list[int]] = {}
        for node_id, latency_ms in latencies:
            by_node.setdefault(node_id, []).append(latency_ms)
        self._request_time.record_all(Tally.of(*[latency_ms for _, latency_ms in latencies]), now_ms)
        for node_id, of_node in by_node.items():
            node_sensor = self._metrics.get_sensor(f"node-{node_id}.latency")
            if node_sensor is not None:
                node_sensor.record_all(Tally.of(*of_node), now_ms)

    def record_batch_split(self) -> None:
        self._batch_splits.record(1, self._clock.now_ms())


def _taken(collected: deque[T]) -> list[T]:
    """Take out what was collected so far; more may be added meanwhile."""
    return [collected.popleft() for _ in range(len(collected))]


class ProduceWarnings:
    """Collects warnings about the batches of one response, and logs one line for each kind of error.

    While brokers restart, thousands of partitions may have no leader for some seconds. A line for each of them and each
    attempt would hide all others. Thread: io.
    """

    def __init__(self, log: logging.Logger | logging.LoggerAdapter[logging.Logger]) -> None:
        self._log = log
        self._retried: dict[type[Exception], tuple[Exception, list[ProducerBatch]]] = {}
        self._missing: list[TopicPartition] = []
        #: True if there is anything to ``write``.
        self.noted = False

    def retry(self, batch: ProducerBatch, error: Exception) -> None:
        """Record that a batch is retried because of ``error``."""
        self.noted = True
        self._retried.setdefault(type(error), (error, []))[1].append(batch)

    def missing(self, partition: TopicPartition) -> None:
        """Record that a broker does not know a partition."""
        self.noted = True
        self._missing.append(partition)

    def write(self) -> None:
        """Log and clear the recorded warnings."""
        self.noted = False
        retried, self._retried = self._retried, {}
        missing, self._missing = self._missing, []
        for error, batches in retried.values():
            if len(batches) == 1:
                (batch,) = batches
                self._log.warning("Retrying %s after attempt %d: %s", batch, batch.attempts, error)
            else:
                self._log.warning(
                    "Retrying the batches of %d partitions, after up to %d attempts, because of %s: %s (%s)",
                    len(batches),
                    max(batch.attempts for batch in batches),
                    type(error).__name__,
                    error,
                    _listed([batch.topic_partition for batch in batches]),
                )
        if len(missing) == 1:
            self._log.warning("Partition %s does not exist, or this user is not authorized to describe it", missing[0])
        elif missing:
            self._log.warning(
                "%d partitions do not exist, or this user is not authorized to describe them: %s",
                len(missing),
                _listed(missing),
            )


def _listed(partitions: Sequence[TopicPartition]) -> str:
    more = len(partitions) - _MOST_NAMED
    named = ", ".join(map(str, partitions[:_MOST_NAMED]))
    return f"{named} and {more} more" if more > 0 else named
