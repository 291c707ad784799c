"""Handling of produce responses (Java: Sender.handleProduceResponse and the methods it calls)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pykclient import errors
from pykclient.clock import Clock
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
from pykclient.network.client_request import ClientResponse
from pykclient.network.failures import idempotence_denied, topics_denied
from pykclient.network.metadata import LeaderIdAndEpoch
from pykclient.producer.outbox import ANSWERED, succeed_written
from pykclient.producer.produce_messages import NO_LEADER, PartitionResponse, WrittenResponse
from pykclient.producer.producer_batch import ProducerBatch
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.producer.producer_metadata import ProducerMetadata
    from pykclient.producer.producer_metrics import SenderMetrics
    from pykclient.producer.record_accumulator import RecordAccumulator
    from pykclient.producer.transactions.producer_id_manager import ProducerIdManager
    from pykclient.protocol.messages.produce import ProduceResponse

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
        return self._id_manager.can_retry(batch, error, response)

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


class ProduceWarnings:
    """Collects warnings about the batches of one response, and logs one line for each kind of error.

    While brokers restart, thousands of partitions may have no leader for some seconds. A line for each of them and each
    attempt would hide all others. Thread: io.
    """

    __slots__ = ("_log", "_missing", "_retried", "noted")

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
