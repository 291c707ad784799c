"""A topic that a coordinator keeps its state in, and the choice of the coordinator.

Java: CoordinatorLoader, CoordinatorPartitionWriter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Final, Generic, TypeVar

from pykclient import errors
from pykclient.protocol.message import DataMessage
from pykclient.protocol.messages.produce import ProduceResponse
from pykclient.protocol.wire import Writer
from pykclient.record.memory_records import AnyRecordBatch, MemoryRecords
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.record.record_batch import Record
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.log.log_types import AppendOrigin, FetchIsolation, ProducerIdAndEpoch
from pykclient.testing.log.producer_state_manager import VerificationState
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.replica.replica_manager import ReplicaManager
from pykclient.types import TopicPartition


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of a coordinator's topic that stores a group or a transactional id."""
    hash = java_hash(key)
    # Java's Utils.abs maps the smallest int, which has no positive counterpart, to 0.
    return 0 if hash == -(1 << 31) else abs(hash) % partition_count


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``, which is computed from UTF-16."""
    data = text.encode("utf-16-be", "surrogatepass")
    hash = 0
    for index in range(0, len(data), 2):
        hash = (31 * hash + (data[index] << 8 | data[index + 1])) & 0xFFFFFFFF
    return hash - (1 << 32) if hash >= 1 << 31 else hash


#: The response error for each error of an append.
_RESPONSE_ERRORS: Final = {
    errors.UnknownTopicOrPartitionError.code: errors.CoordinatorNotAvailableError.code,
    errors.NotEnoughReplicasError.code: errors.CoordinatorNotAvailableError.code,
    errors.NotEnoughReplicasAfterAppendError.code: errors.CoordinatorNotAvailableError.code,
    errors.RequestTimedOutError.code: errors.CoordinatorNotAvailableError.code,
    errors.NotLeaderOrFollowerError.code: errors.NotCoordinatorError.code,
    errors.KafkaStorageError.code: errors.NotCoordinatorError.code,
    errors.NetworkError.code: errors.CoordinatorLoadInProgressError.code,
    errors.RecordTooLargeError.code: errors.UnknownServerError.code,
    errors.RecordBatchTooLargeError.code: errors.UnknownServerError.code,
    errors.InvalidFetchSizeError.code: errors.UnknownServerError.code,
}

#: Bytes of the log to read per step while a partition is loaded. Other events run between the steps.
_LOAD_STEP_BYTES: Final = 1 << 20

#: The sequence number in each batch of a transaction. Nobody checks it.
_BASE_SEQUENCE: Final = 0

#: A key, and a value or None for a tombstone.
KeyValue = tuple[bytes, bytes | None]

#: Called with an error code and, if that is 0, the offset of the first record.
AppendCallback = Callable[[int, int], None]

State = TypeVar("State")


def versioned(number: int, message: DataMessage, version: int = 0) -> bytes:
    """Return a key, which begins with the number of its type, or a value, which begins with that of its version."""
    w = Writer()
    w.int16(number)
    message.write(w, version)
    return w.getvalue()


class CoordinatorLog(Generic[State]):
    """The partitions of a coordinator's topic: appends to them, loading them after an election, and what was loaded.

    A new leader reads its partition from the start, and adds up its records to a ``State``. Until it is done, the
    partition is *loading*. Each election or resignation has a leader epoch; one that arrives after a later one has no
    effect.

    ``apply`` changes a state by a record of a batch. It may raise RemoteProtocolError or UnsupportedVersionError: a
    record from another release or a foreign writer is no reason to lose all others.

    Thread: loop
    """

    def __init__(
        self,
        broker: BrokerContext,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        topic: str,
        partition_count: int,
        append_timeout_ms: int,
        apply: Callable[[State, AnyRecordBatch, Record], None],
    ) -> None:
        self._broker = broker
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self._log = broker.log_context.logger(__name__)
        self.topic = topic
        self._partition_count = partition_count
        self._append_timeout_ms = append_timeout_ms
        self._apply = apply
        #: True while the coordinator accepts requests.
        self.active = False
        #: The states of the partitions that this broker leads and has loaded.
        self.loaded: dict[int, State] = {}
        #: The latest known leader epoch of each partition.
        self.epochs: dict[int, int] = {}
        self._loading: dict[int, int] = {}
        self._repeated: set[Callable[[], None]] = set()

    def partition_for(self, key: str) -> int:
        """Return the partition that stores a key, such as a group id."""
        count = self._metadata_cache.num_partitions(self.topic)
        if count is not None:
            # Remembered for unloading after the topic is deleted.
            self._partition_count = count
        return partition_for(key, self._partition_count)

    def topic_partition_for(self, key: str) -> TopicPartition:
        """Return the partition that stores a key, with its topic."""
        return TopicPartition(self.topic, self.partition_for(key))

    def state_for(self, key: str) -> State:
        """Return the state of the partition that stores a key.

        Raises:
            CoordinatorNotAvailableError, CoordinatorLoadInProgressError, NotCoordinatorError: this broker does not
                coordinate it, or not yet.
        """
        partition = self.partition_for(key)
        self._validate_ready(repr(key), partition in self._loading)
        if partition not in self.loaded:
            raise errors.NotCoordinatorError(f"broker {self._broker.id} does not coordinate {key!r}")
        return self.loaded[partition]

    def validate_all_loaded(self) -> None:
        """Check that no partition is being loaded.

        Raises:
            CoordinatorNotAvailableError, CoordinatorLoadInProgressError: the coordinator is not ready.
        """
        self._validate_ready(self.topic, self.is_any_loading)

    def _validate_ready(self, what: str, is_loading: bool) -> None:
        if not self.active:
            raise errors.CoordinatorNotAvailableError(f"broker {self._broker.id} is not running")
        if is_loading:
            raise errors.CoordinatorLoadInProgressError(f"broker {self._broker.id} is loading {what}")

    # --- appends

    def validate_appendable(self, partition: int) -> None:
        """Check that a partition takes records now.

        Raises:
            CoordinatorNotAvailableError: too few replicas are in sync, or the topic is not known.
            NotCoordinatorError: another broker leads it, or the disk is offline.
        """
        tp = TopicPartition(self.topic, partition)
        try:
            self._replica_manager.get_partition_or_raise(tp).validate_appendable(-1)
        except errors.BrokerError as error:
            refusal = errors.for_code(_RESPONSE_ERRORS.get(error.code, error.code), str(error))
            assert refusal is not None, "it is an error"
            raise refusal from error

    def append(
        self,
        partition: int,
        records: Iterable[KeyValue],
        then: AppendCallback,
        *,
        producer: ProducerIdAndEpoch | None = None,
        verification: VerificationState | None = None,
    ) -> None:
        """Append records, as part of the transaction of ``producer`` if there is one.

        ``then`` is called when all in-sync replicas have them, or after an error.
        """
        now_ms = self._broker.loop.wall_ms
        builder = MemoryRecordsBuilder()
        if producer is not None:
            builder.set_producer_state(producer.producer_id, producer.epoch, _BASE_SEQUENCE, True)
        for key, value in records:
            builder.append(now_ms, key, value)
        tp = TopicPartition(self.topic, partition)

        def appended(responses: dict[TopicPartition, ProduceResponse.PartitionProduceResponse]) -> None:
            response = responses[tp]
            error_code = response.error_code
            if error_code:
                self._log.info("Nothing was written to %s, error code %d", tp, error_code)
            then(_RESPONSE_ERRORS.get(error_code, error_code), response.base_offset)

        self._replica_manager.append_records(
            self._append_timeout_ms,
            -1,
            {tp: builder.build()},
            appended,
            origin=AppendOrigin.COORDINATOR,
            verifications={tp: verification},
        )

    # --- loading

    def repeat(self, work: Callable[[], None], interval_ms: int) -> None:
        """Do ``work`` at intervals, as long as this broker leads any partition. Repeated calls have no effect."""

        def run() -> None:
            self._repeated.discard(work)
            if self.active and (self.loaded or self._loading):
                work()
                self.repeat(work, interval_ms)

        if work not in self._repeated:
            self._repeated.add(work)
            self._broker.call_later(interval_ms, run)

    @property
    def is_any_loading(self) -> bool:
        """True while a partition is being loaded."""
        return bool(self._loading)

    def load(self, partition: int, epoch: int, state: State, then: Callable[[], None]) -> None:
        """Read a partition that this broker leads from leader epoch ``epoch`` on, unless a later epoch is known.

        ``state`` is empty. At the end of the log it is complete, and ``then`` is called, unless the broker resigns
        before.
        """
        if self.unload(partition, epoch):
            self._loading[partition] = epoch
            self._broker.call_soon(self._load_step, partition, epoch, None, state, then)

    def unload(self, partition: int, epoch: int) -> bool:
        """Forget a partition that another broker leads from ``epoch`` on, or that was deleted (negative).

        Return False, and do nothing, if a later epoch is known.
        """
        if epoch < 0:
            # The topic is deleted; a new one would start with epoch 0 again.
            self.epochs.pop(partition, None)
        elif epoch < self.epochs.get(partition, -1):
            return False
        else:
            self.epochs[partition] = epoch
        self._loading.pop(partition, None)
        self.loaded.pop(partition, None)
        return True

    def _load_step(
        self, partition: int, epoch: int, offset: int | None, state: State, then: Callable[[], None]
    ) -> None:
        if self._loading.get(partition) != epoch:
            return  # no longer the leader
        tp = TopicPartition(self.topic, partition)
        replica = self._replica_manager.partition(tp)
        log = None if replica is None else replica.log
        if log is None:
            self._log.warning("There is no log of %s to load", tp)
        else:
            start = log.log_start_offset if offset is None else offset
            try:
                data = log.read(start, _LOAD_STEP_BYTES, FetchIsolation.LOG_END, min_one_message=True)
                for view in data.records:
                    for batch in MemoryRecords(view).batches():
                        self._add(state, batch)
            except (errors.OffsetOutOfRangeError, errors.KafkaStorageError, errors.CorruptRecordError) as error:
                self._log.error("Could not load the rest of %s from offset %d: %s", tp, start, error)
            else:
                # Compaction can leave a log without records before its end, so the end alone does not tell.
                if start < data.next_offset < log.log_end_offset:
                    self._broker.call_soon(self._load_step, partition, epoch, data.next_offset, state, then)
                    return
        del self._loading[partition]
        self.loaded[partition] = state
        then()

    def _add(self, state: State, batch: AnyRecordBatch) -> None:
        for record in batch.records():
            if record.key is not None:
                with suppress(errors.RemoteProtocolError, errors.UnsupportedVersionError):
                    self._apply(state, batch, record)
