"""The share partitions and share sessions of a broker (Java: SharePartitionManager)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors import (
    BrokerError,
    FencedStateEpochError,
    GroupIdNotFoundError,
    InvalidRequestError,
    NotLeaderOrFollowerError,
    ShareSessionLimitReachedError,
    UnknownTopicOrPartitionError,
)
from pykclient.testing.replica.fetch_params import CONSUMER_REPLICA_ID, FetchParams
from pykclient.testing.share.delayed_share_fetch import DelayedShareFetch, PartitionData, Results, ShareFetch
from pykclient.testing.share.record_acquirer import AcquireRequest
from pykclient.testing.share.share_partition import AcknowledgementBatch, SharePartition
from pykclient.testing.share.share_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ShareSession,
    ShareSessionCache,
    ShareSessionKey,
)
from pykclient.testing.share.share_types import SharePartitionKey
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker

#: A partition in a request: a topic id and a number.
TopicIdPartition = tuple["UUID", int]
#: Called with the result of each partition.
FetchCallback = Callable[[dict[TopicIdPartition, PartitionData]], None]
#: Called with an error or None for each partition.
AcknowledgeCallback = Callable[[dict[TopicIdPartition, BrokerError | None]], None]

#: Errors after which the share partition is forgotten; the next fetch loads its state again.
_FENCING = (NotLeaderOrFollowerError, FencedStateEpochError, GroupIdNotFoundError, UnknownTopicOrPartitionError)


class FetchLimits(NamedTuple):
    """The bounds of a share fetch: of its wait, and of the bytes and records in the response."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: str


class SharePartitionManager:
    """Opens share sessions, and fetches and acknowledges records in them.

    A share partition is created with the first fetch, and loads its state from the share coordinator. It ends when
    this broker no longer leads the partition. Thread: loop.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._log = broker.log_context.logger(__name__)
        self._share_partitions: dict[SharePartitionKey, SharePartition] = {}
        self._sessions = ShareSessionCache(broker.config.get_int("group.share.max.share.sessions"))

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
        session = ShareSession(key, partitions, connection_id)
        if not self._sessions.add(session):
            raise ShareSessionLimitReachedError(f"broker {self._broker.id} has {len(self._sessions)} share sessions")
        return session

    def session(self, key: ShareSessionKey, epoch: int) -> ShareSession:
        """Return the session of a request that does not begin one.

        Raises:
            ShareSessionNotFoundError, InvalidShareSessionEpochError: there is none, or this is not its next request.
        """
        session = self._sessions.get(key)
        if epoch != FINAL_EPOCH:
            session.advance(epoch)
        return session

    def release_session(self, session: ShareSession, then: AcknowledgeCallback) -> None:
        """End a session, and release the records that the member has acquired."""
        self._sessions.remove(session)

        def released(results: dict[TopicIdPartition, BrokerError | None]) -> None:
            then(results)
            # The state is written. The next member's session loads it again, with offsets that were altered meanwhile.
            if not self._sessions.has_members(session.key.group_id):
                for key in [key for key in self._share_partitions if key.group_id == session.key.group_id]:
                    self._forget(key)

        gathered = _Gathered(session.partitions, released)
        for topic_id, partition in session.partitions:
            key = SharePartitionKey(session.key.group_id, topic_id, partition)
            share_partition = self._share_partitions.get(key)
            done = partial(gathered.add, (topic_id, partition))
            if share_partition is None:
                done(UnknownTopicOrPartitionError(f"{key} is not delivered here"))
            else:
                share_partition.release_acquired_records(session.key.member_id, self._fencing(key, done))

    def on_disconnect(self, connection_id: str) -> None:
        """End the sessions of a connection that was closed."""
        for session in self._sessions.of_connection(connection_id):
            self._log.info("Ending the share session of %s, as its connection is closed", session.key)
            self.release_session(session, lambda _: None)

    # --- fetching

    def fetch(
        self,
        group_id: str,
        limits: FetchLimits,
        request: AcquireRequest,
        partitions: Sequence[tuple[TopicIdPartition, TopicPartition]],
        respond: FetchCallback,
    ) -> None:
        """Acquire records of partitions for a member; ``respond`` now, or when there are enough or time is up."""
        errors: dict[TopicIdPartition, PartitionData] = {}
        share_partitions: list[SharePartition] = []

        def completed(results: Results) -> None:
            for share_partition, data in results.items():
                key = share_partition.key
                if data.error_code == NotLeaderOrFollowerError.code:
                    self._forget(key)
                errors.setdefault((key.topic_id, key.partition), data)
            respond(errors)

        if not partitions or not request.max_records or not limits.max_bytes:
            respond({})
            return
        for (topic_id, number), topic_partition in partitions:
            key = SharePartitionKey(group_id, topic_id, number)
            try:
                share_partitions.append(self._get_or_create(key, topic_partition, errors))
            except BrokerError as error:
                errors[topic_id, number] = _failed(number, error)
        if not share_partitions:
            respond(errors)
            return
        params = FetchParams(
            CONSUMER_REPLICA_ID, -1, limits.max_wait_ms, limits.min_bytes, limits.max_bytes, limits.isolation
        )
        manager = self._broker.replica_manager
        operation = DelayedShareFetch(ShareFetch(params, request, share_partitions), manager, completed)
        keys = [key for each in share_partitions for key in (each.key, each.topic_partition)]
        if limits.max_wait_ms <= 0:
            operation.try_complete(None)
            operation.force_complete()
        else:
            manager.delayed_share_fetches.try_complete_else_watch(operation, keys)

    def _get_or_create(
        self, key: SharePartitionKey, topic_partition: TopicPartition, errors: dict[TopicIdPartition, PartitionData]
    ) -> SharePartition:
        share_partition = self._share_partitions.get(key)
        if share_partition is not None:
            return share_partition
        partition = self._broker.replica_manager.get_partition_or_raise(topic_partition)
        if not partition.is_leader or partition.topic_id != key.topic_id:
            raise NotLeaderOrFollowerError(f"broker {self._broker.id} does not lead {topic_partition}")
        share_partition = SharePartition(
            self._broker, key, topic_partition, partition.leader_epoch, partial(self._changed, key)
        )
        self._share_partitions[key] = share_partition

        def initialized(error: BrokerError | None) -> None:
            if error is not None:
                self._forget(key)
                # Only the fetch that began this reports the error; others wait and try again.
                errors[key.topic_id, key.partition] = _failed(key.partition, error)
            self._changed(key)

        share_partition.initialize(initialized)
        return share_partition

    def _changed(self, key: SharePartitionKey) -> None:
        # Not from here: the change may be part of another request, which is answered first.
        self._broker.call_soon(self._broker.replica_manager.delayed_share_fetches.check_and_complete, key)

    # --- acknowledging

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        acknowledgements: Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]],
        then: AcknowledgeCallback,
    ) -> None:
        """Apply acknowledgements; ``then`` is called when all of them are written or refused."""
        gathered = _Gathered(acknowledgements, then)
        for (topic_id, number), batches in acknowledgements.items():
            key = SharePartitionKey(group_id, topic_id, number)
            share_partition = self._share_partitions.get(key)
            done = partial(gathered.add, (topic_id, number))
            if share_partition is None or not share_partition.is_active:
                done(UnknownTopicOrPartitionError("This server does not host this topic-partition."))
            else:
                share_partition.acknowledge(member_id, batches, self._fencing(key, done))

    def _fencing(
        self, key: SharePartitionKey, then: Callable[[BrokerError | None], None]
    ) -> Callable[[BrokerError | None], None]:
        def done(error: BrokerError | None) -> None:
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


def check_epoch(epoch: int, *, has_acknowledgements: bool) -> None:
    """Check the epoch of a share fetch.

    Raises:
        InvalidRequestError: a request that begins a session has acknowledgements.
    """
    if epoch == INITIAL_EPOCH and has_acknowledgements:
        raise InvalidRequestError("the first request of a share session cannot have acknowledgements")


class _Gathered:
    """Collects the results of partitions, and passes them on when all are there. Thread: loop."""

    __slots__ = ("_left", "_results", "_then")

    def __init__(self, partitions: Iterable[TopicIdPartition], then: AcknowledgeCallback) -> None:
        self._results: dict[TopicIdPartition, BrokerError | None] = dict.fromkeys(partitions)
        self._left = len(self._results)
        self._then = then
        if not self._left:
            then({})

    def add(self, partition: TopicIdPartition, error: BrokerError | None) -> None:
        """Add the result of one partition."""
        self._results[partition] = error
        self._left -= 1
        if not self._left:
            self._then(self._results)


def _failed(partition: int, error: BrokerError) -> PartitionData:
    return PartitionData(partition_index=partition, error_code=error.code, error_message=str(error), records=b"")
