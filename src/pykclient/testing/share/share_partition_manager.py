"""The share partitions and share sessions of a broker, and fetches that wait.

Java: SharePartitionManager, ShareSession, DelayedShareFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from pykclient import errors
from pykclient.protocol.messages.share_fetch import ShareFetchResponse
from pykclient.record.memory_records import MemoryRecords
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.delayed_operation import DelayedOperation
from pykclient.testing.log.log_types import FetchIsolation
from pykclient.testing.replica.fetch_session import FetchParams, FetchPartitionData, PartitionFetch
from pykclient.testing.replica.replica_manager import ReplicaManager
from pykclient.testing.share.group_config import GroupConfigManager
from pykclient.testing.share.in_flight_records import SharePartitionKey
from pykclient.testing.share.persister import Gathered, Persister
from pykclient.testing.share.share_partition import (
    AcknowledgementBatch,
    AcquireRequest,
    SharePartition,
)
from pykclient.types import TopicPartition

INITIAL_EPOCH: Final = 0

FINAL_EPOCH: Final = -1

_MAX_EPOCH: Final = (1 << 31) - 1


class ShareSessionKey(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


#: A partition in a request: a topic id and a number.
TopicIdPartition = tuple["UUID", int]


@dataclass(slots=True, eq=False)
class ShareSession:
    """The partitions that a member reads from this broker, by topic id and number, in the order of reading.

    The value of a partition is True if the next response must contain it even without records. Thread: loop.
    """

    key: ShareSessionKey
    partitions: dict[TopicIdPartition, bool]
    connection_id: str
    epoch: int = INITIAL_EPOCH + 1

    def advance(self, epoch: int) -> None:
        """Check the epoch of a request, and expect the next one. 1 follows the largest, because 0 starts a session.

        Raises:
            InvalidShareSessionEpochError: a request was lost or sent twice.
        """
        if epoch != self.epoch:
            raise errors.InvalidShareSessionEpochError(
                f"share session epoch {epoch} is wrong, {self.epoch} is the next one"
            )
        self.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1

    def update(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Apply the changes of a request."""
        for partition in added:
            self.partitions.setdefault(partition, True)
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def must_respond(self, partition: TopicIdPartition, *, has_records: bool, has_error: bool) -> bool:
        """Return whether a response must contain a partition.

        One with records moves to the end, so that the others get their turn. The end of an error is reported, too.
        """
        was_due = self.partitions.get(partition)
        if was_due is None:
            return True
        self.partitions[partition] = has_error
        if has_records:
            self.partitions[partition] = self.partitions.pop(partition)
        return was_due or has_records or has_error


PartitionData = ShareFetchResponse.PartitionData

Results = dict["SharePartition", PartitionData]

_Reads = list[tuple["SharePartition", PartitionFetch, FetchPartitionData]]


@dataclass(eq=False)
class DelayedShareFetch(DelayedOperation):
    """Completes when ``min_bytes`` of acquirable records can be read, after an error, or when the wait expires.

    Records are acquired only when it completes, so two waiting members do not take them from each other. Thread: loop.
    """

    params: FetchParams
    request: AcquireRequest
    share_partitions: Sequence[SharePartition]
    manager: ReplicaManager
    respond: Callable[[Results], None]
    reads: _Reads | None = None

    def try_complete(self, key: Hashable | None) -> bool:  # noqa: ARG002 - all partitions count together
        reads = self._read()
        size = sum(data.size_in_bytes for _, _, data in reads)
        if not any(data.error_code for _, _, data in reads) and (not size or size < self.params.min_bytes):
            return False
        self.reads = reads
        return self.force_complete()

    def on_complete(self) -> None:
        reads = self._read() if self.reads is None else self.reads
        left = self.request.max_records
        results: Results = {}
        for share_partition, fetch, data in reads:
            result = self._acquire(share_partition, fetch, data, left)
            results[share_partition] = result
            left -= sum(records.last_offset - records.first_offset + 1 for records in result.acquired_records)
        self.respond(results)

    def _read(self) -> _Reads:
        """Read from the partitions with records to acquire, each an equal share of the bytes."""
        acquirable = [each for each in self.share_partitions if each.is_active and each.can_acquire_records()]
        if not acquirable:
            return []
        max_bytes = self.params.max_bytes // len(acquirable)
        fetches = [
            PartitionFetch(
                each.topic_partition, each.records.next_fetch_offset(), max_bytes, topic_id=each.key.topic_id
            )
            for each in acquirable
        ]
        reads = self.manager.read_from_log(self.params, fetches, update=False)
        return [
            (share_partition, fetch, self._without_future(fetch, data))
            for share_partition, (fetch, data) in zip(acquirable, reads, strict=True)
        ]

    def _without_future(self, fetch: PartitionFetch, data: FetchPartitionData) -> FetchPartitionData:
        """Return ``data``, but no error for an offset after the end of the log.

        The log was truncated by an unclean election, so these records do not exist yet.
        """
        if data.error_code == errors.OffsetOutOfRangeError.code:
            partition = self.manager.partition(fetch.topic_partition)
            if partition is not None and partition.log is not None:
                if fetch.fetch_offset > partition.log.log_start_offset:
                    return FetchPartitionData()
                return FetchPartitionData(data.error_code, log_start_offset=partition.log.log_start_offset)
        return data

    def _acquire(
        self, share_partition: SharePartition, fetch: PartitionFetch, data: FetchPartitionData, left: int
    ) -> PartitionData:
        result = PartitionData(partition_index=fetch.topic_partition.partition, records=b"")
        if data.error_code == errors.OffsetOutOfRangeError.code and data.log_start_offset >= 0:
            share_partition.records.move_start(data.log_start_offset)
            return result
        if data.error_code:
            result.error_code = data.error_code
            return result
        batches = [batch for view in data.records for batch in MemoryRecords(view).batches()]
        acquirer = share_partition.acquirer()
        request = self.request._replace(max_records=left)
        acquired = acquirer.acquire(request, fetch.fetch_offset, batches)
        if self.params.isolation == FetchIsolation.TXN_COMMITTED and data.aborted_transactions:
            acquired = acquirer.archive_aborted(acquired, batches, data.aborted_transactions)
            share_partition.records.advance()
        if acquired:
            first, last = acquired[0].first_offset, acquired[-1].last_offset
            wanted = [batch.buffer for batch in batches if batch.last_offset >= first and batch.base_offset <= last]
            result.acquired_records = acquired
            result.records = wanted  # type: ignore[assignment]  # the writer accepts several pieces
        return result


#: Called with the result of each partition.
FetchCallback = Callable[[dict[TopicIdPartition, PartitionData]], None]

#: Called with an error or None for each partition.
AcknowledgeCallback = Callable[[dict[TopicIdPartition, errors.BrokerError | None]], None]

#: Errors after which the share partition is forgotten; the next fetch loads its state again.
_FENCING = (
    errors.NotLeaderOrFollowerError,
    errors.FencedStateEpochError,
    errors.GroupIdNotFoundError,
    errors.UnknownTopicOrPartitionError,
)


class SharePartitionManager:
    """Opens share sessions, and fetches and acknowledges records in them.

    A share partition is created with the first fetch, and loads its state from the share coordinator. It ends when
    this broker no longer leads the partition. Thread: loop.
    """

    def __init__(
        self,
        broker: BrokerContext,
        replica_manager: ReplicaManager,
        persister: Persister,
        group_configs: GroupConfigManager,
    ) -> None:
        self._broker = broker
        self._replica_manager = replica_manager
        self._persister = persister
        self._group_configs = group_configs
        self._log = broker.log_context.logger(__name__)
        self._share_partitions: dict[SharePartitionKey, SharePartition] = {}
        self._max_sessions = broker.config.get_int("group.share.max.share.sessions")
        self._sessions: dict[ShareSessionKey, ShareSession] = {}

    def shutdown(self) -> None:
        """Forget everything. The state is in the share coordinators."""
        for share_partition in list(self._share_partitions.values()):
            share_partition.mark_fenced()
        self._share_partitions.clear()
        self._sessions.clear()

    # --- sessions

    def open_session(
        self, key: ShareSessionKey, partitions: Iterable[TopicIdPartition], connection_id: str
    ) -> ShareSession:
        """Begin a session, in place of the member's earlier one.

        Raises:
            ShareSessionLimitReachedError: the broker has too many sessions.
        """
        self._sessions.pop(key, None)
        if len(self._sessions) >= self._max_sessions:
            raise errors.ShareSessionLimitReachedError(
                f"broker {self._broker.id} has {len(self._sessions)} share sessions"
            )
        session = self._sessions[key] = ShareSession(key, dict.fromkeys(partitions, False), connection_id)
        return session

    def session(self, key: ShareSessionKey, epoch: int) -> ShareSession:
        """Return the session of a request that does not begin one.

        Raises:
            ShareSessionNotFoundError, InvalidShareSessionEpochError: there is none, or this is not its next request.
        """
        session = self._sessions.get(key)
        if session is None:
            raise errors.ShareSessionNotFoundError(
                f"member {key.member_id} of {key.group_id} has no share session here"
            )
        if epoch != FINAL_EPOCH:
            session.advance(epoch)
        return session

    def release_session(self, session: ShareSession, then: AcknowledgeCallback) -> None:
        """End a session, and release the records that the member has acquired."""
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]

        def released(results: dict[TopicIdPartition, errors.BrokerError | None]) -> None:
            then(results)
            # The state is written. The next member's session loads it again, with offsets that were altered meanwhile.
            if all(key.group_id != session.key.group_id for key in self._sessions):
                for key in [key for key in self._share_partitions if key.group_id == session.key.group_id]:
                    self._forget(key)

        gathered = Gathered(session.partitions, released)
        for topic_id, partition in session.partitions:
            key = SharePartitionKey(session.key.group_id, topic_id, partition)
            share_partition = self._share_partitions.get(key)
            done = partial(gathered.add, (topic_id, partition))
            if share_partition is None:
                done(errors.UnknownTopicOrPartitionError(f"{key} is not delivered here"))
            else:
                share_partition.release_acquired_records(session.key.member_id, self._fencing(key, done))

    def on_disconnect(self, connection_id: str) -> None:
        """End the sessions of a connection that was closed."""
        for session in [each for each in self._sessions.values() if each.connection_id == connection_id]:
            self._log.info("Ending the share session of %s, as its connection is closed", session.key)
            self.release_session(session, lambda _: None)

    # --- fetching

    def fetch(
        self,
        group_id: str,
        params: FetchParams,
        request: AcquireRequest,
        partitions: Sequence[tuple[TopicIdPartition, TopicPartition]],
        respond: FetchCallback,
    ) -> None:
        """Acquire records of partitions for a member; ``respond`` now, or when there are enough or time is up."""
        failed: dict[TopicIdPartition, PartitionData] = {}
        share_partitions: list[SharePartition] = []

        def completed(results: Results) -> None:
            for share_partition, data in results.items():
                key = share_partition.key
                if data.error_code == errors.NotLeaderOrFollowerError.code:
                    self._forget(key)
                failed.setdefault((key.topic_id, key.partition), data)
            respond(failed)

        if not partitions or not request.max_records or not params.max_bytes:
            respond({})
            return
        for (topic_id, number), topic_partition in partitions:
            key = SharePartitionKey(group_id, topic_id, number)
            try:
                share_partitions.append(self._get_or_create(key, topic_partition, failed))
            except errors.BrokerError as error:
                failed[topic_id, number] = _failed(number, error)
        if not share_partitions:
            respond(failed)
            return
        manager = self._replica_manager
        operation = DelayedShareFetch(params.max_wait_ms, params, request, share_partitions, manager, completed)
        keys = [key for each in share_partitions for key in (each.key, each.topic_partition)]
        if params.max_wait_ms <= 0:
            operation.try_complete(None)
            operation.force_complete()
        else:
            manager.delayed_share_fetches.try_complete_else_watch(operation, keys)

    def _get_or_create(
        self, key: SharePartitionKey, topic_partition: TopicPartition, failed: dict[TopicIdPartition, PartitionData]
    ) -> SharePartition:
        share_partition = self._share_partitions.get(key)
        if share_partition is not None:
            return share_partition
        partition = self._replica_manager.get_partition_or_raise(topic_partition)
        if not partition.is_leader or partition.topic_id != key.topic_id:
            raise errors.NotLeaderOrFollowerError(f"broker {self._broker.id} does not lead {topic_partition}")
        share_partition = SharePartition(
            self._broker,
            self._replica_manager,
            self._persister,
            self._group_configs,
            key,
            topic_partition,
            partition.leader_epoch,
            partial(self._changed, key),
        )
        self._share_partitions[key] = share_partition

        def initialized(error: errors.BrokerError | None) -> None:
            if error is not None:
                self._forget(key)
                # Only the fetch that began this reports the error; others wait and try again.
                failed[key.topic_id, key.partition] = _failed(key.partition, error)
            self._changed(key)

        share_partition.initialize(initialized)
        return share_partition

    def _changed(self, key: SharePartitionKey) -> None:
        # Not from here: the change may be part of another request, which is answered first.
        self._broker.call_soon(self._replica_manager.delayed_share_fetches.check_and_complete, key)

    # --- acknowledging

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        acknowledgements: Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]],
        then: AcknowledgeCallback,
    ) -> None:
        """Apply acknowledgements; ``then`` is called when all of them are written or refused."""
        gathered = Gathered(acknowledgements, then)
        for (topic_id, number), batches in acknowledgements.items():
            key = SharePartitionKey(group_id, topic_id, number)
            share_partition = self._share_partitions.get(key)
            done = partial(gathered.add, (topic_id, number))
            if share_partition is None or not share_partition.is_active:
                done(errors.UnknownTopicOrPartitionError("This server does not host this topic-partition."))
            else:
                share_partition.acknowledge(member_id, batches, self._fencing(key, done))

    def _fencing(
        self, key: SharePartitionKey, then: Callable[[errors.BrokerError | None], None]
    ) -> Callable[[errors.BrokerError | None], None]:
        def done(error: errors.BrokerError | None) -> None:
            if isinstance(error, _FENCING):
                self._forget(key)
            then(error)

        return done

    # --- the end

    def on_resignation(self, topic_partition: TopicPartition) -> None:
        """End the delivery of a partition that this broker no longer leads."""
        for key in [key for key, each in self._share_partitions.items() if each.topic_partition == topic_partition]:
            self._forget(key)

    def _forget(self, key: SharePartitionKey) -> None:
        share_partition = self._share_partitions.pop(key, None)
        if share_partition is not None:
            self._log.info("The share partition %s ends here", key)
            share_partition.mark_fenced()
            self._changed(key)


def _failed(partition: int, error: errors.BrokerError) -> PartitionData:
    return PartitionData(partition_index=partition, error_code=error.code, error_message=str(error), records=b"")
