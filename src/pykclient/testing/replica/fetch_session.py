"""Fetch requests: their parameters, and the sessions of both sides.

Java: FetchSession, FetchSessionHandler; KIP-227, KIP-516.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final, NamedTuple
from uuid import UUID

from pykclient.errors import FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.wire import ZERO_UUID
from pykclient.record.record_batch import Buffer
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.log.log_types import AbortedTxn, FetchIsolation, OffsetAndEpoch
from pykclient.types import TopicPartition

#: Replica ids of readers that are not replicas (Java: FetchRequest).
CONSUMER_REPLICA_ID = -1

UNKNOWN_OFFSET = -1

NO_EPOCH = -1


class FetchParams(NamedTuple):
    """The parameters of a fetch that apply to all partitions.

    ``rack_id`` is that of a consumer that may be sent to another replica (KIP-392); without one, only the leader may
    respond. With ``hard_max_bytes`` even the first batch is cut off if
    it is larger than the limit.
    """

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: str
    rack_id: str | None = None
    hard_max_bytes: bool = False

    @property
    def is_from_follower(self) -> bool:
        return self.replica_id >= 0


@dataclass(slots=True, eq=False)
class PartitionFetch:
    """The fetch request for one partition (Java: FetchRequest.PartitionData).

    ``current_leader_epoch`` and ``last_fetched_epoch`` are -1 if the request does not contain them;
    ``log_start_offset`` is the follower's own. Thread: loop.
    """

    topic_partition: TopicPartition
    fetch_offset: int
    max_bytes: int
    _: KW_ONLY
    topic_id: UUID = ZERO_UUID
    log_start_offset: int = UNKNOWN_OFFSET
    current_leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH

    def __repr__(self) -> str:
        return f"PartitionFetch({self.topic_partition}, from={self.fetch_offset}, max_bytes={self.max_bytes})"


@dataclass(slots=True, eq=False)
class FetchPartitionData:
    """The response for one partition.

    ``records`` are views of the log. Offsets are -1 with an error. ``diverging_epoch`` tells a reader where its log
    diverged from this one; ``preferred_read_replica`` sends a consumer to another broker. Thread: loop.
    """

    error_code: int = 0
    high_watermark: int = UNKNOWN_OFFSET
    last_stable_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    records: Sequence[Buffer] = ()
    size_in_bytes: int = 0
    aborted_transactions: list[AbortedTxn] | None = None
    diverging_epoch: OffsetAndEpoch | None = None
    preferred_read_replica: int | None = None

    def __repr__(self) -> str:
        return (
            f"FetchPartitionData(error={self.error_code}, high_watermark={self.high_watermark}, "
            f"bytes={self.size_in_bytes})"
        )


def isolation_of(replica_id: int, isolation_level: int) -> str:
    """Return the read bound of a reader. Level 0 is read_uncommitted, 1 is read_committed; followers have none."""
    if replica_id != CONSUMER_REPLICA_ID:
        return FetchIsolation.LOG_END
    return FetchIsolation.TXN_COMMITTED if isolation_level == 1 else FetchIsolation.HIGH_WATERMARK


FetchResults = Sequence[tuple[PartitionFetch, FetchPartitionData]]
Key = tuple[UUID | str, int]

INVALID_SESSION_ID: Final = 0

INITIAL_EPOCH: Final = 0

FINAL_EPOCH: Final = -1

_MAX_EPOCH: Final = (1 << 31) - 1

#: From this version on, requests identify topics by id.
_TOPIC_ID_VERSION: Final = 13

#: A session idle for this long may be evicted by a new one.
_EVICTION_MS: Final = 120_000


def next_epoch(epoch: int) -> int:
    """Return the next epoch. 1 follows the largest, because 0 starts a session."""
    return 1 if epoch == _MAX_EPOCH else epoch + 1


class CachedPartition(PartitionFetch):
    """A partition of a session: the reader's request, and the last state sent to the reader. Thread: loop."""

    def __init__(self, fetch: PartitionFetch) -> None:
        super().__init__(
            fetch.topic_partition,
            fetch.fetch_offset,
            fetch.max_bytes,
            topic_id=fetch.topic_id,
            log_start_offset=fetch.log_start_offset,
            current_leader_epoch=fetch.current_leader_epoch,
            last_fetched_epoch=fetch.last_fetched_epoch,
        )
        self.high_watermark = -1
        self.local_log_start_offset = -1

    def update_request(self, fetch: PartitionFetch) -> None:
        """Take over a new offset or epoch from the reader's request.

        A reader that begins a new epoch, or goes back, has dropped a response in flight. It is told the high
        watermark again. Kafka does not, so an idle follower may stay behind.
        """
        if fetch.current_leader_epoch != self.current_leader_epoch or fetch.fetch_offset < self.fetch_offset:
            self.high_watermark = -1
        self.fetch_offset = fetch.fetch_offset
        self.max_bytes = fetch.max_bytes
        self.log_start_offset = fetch.log_start_offset
        self.current_leader_epoch = fetch.current_leader_epoch
        self.last_fetched_epoch = fetch.last_fetched_epoch

    def maybe_update_response(self, data: FetchPartitionData) -> bool:
        """Return whether ``data`` has anything new for the reader."""
        respond = bool(data.size_in_bytes)
        if self.high_watermark != data.high_watermark:
            respond = True
            self.high_watermark = data.high_watermark
        if self.local_log_start_offset != data.log_start_offset:
            respond = True
            self.local_log_start_offset = data.log_start_offset
        if data.error_code:
            # Errors are reported every time, and so is the end of an error.
            self.high_watermark = -1
            return True
        return respond or data.preferred_read_replica is not None or data.diverging_epoch is not None


def _key(fetch: PartitionFetch, *, by_id: bool) -> Key:
    name, index = fetch.topic_partition
    return (fetch.topic_id, index) if by_id else (name, index)


@dataclass(eq=False)
class FetchSession:
    """The partitions of one reader, in the order in which they are read. Thread: loop."""

    id: int
    partitions: dict[Key, CachedPartition]
    created_ms: int
    _: KW_ONLY
    is_from_follower: bool
    uses_topic_ids: bool
    epoch: int = 1

    def __post_init__(self) -> None:
        self.last_used_ms = self.created_ms

    def update(self, fetches: Iterable[PartitionFetch], forgotten: Iterable[Key]) -> None:
        """Apply the changes of a request."""
        partitions = self.partitions
        for fetch in fetches:
            key = _key(fetch, by_id=self.uses_topic_ids)
            cached = partitions.get(key)
            if cached is None:
                partitions[key] = CachedPartition(fetch)
            else:
                cached.update_request(fetch)
        for key in forgotten:
            partitions.pop(key, None)

    def __repr__(self) -> str:
        reader = "follower" if self.is_from_follower else "consumer"
        return f"FetchSession({self.id}, epoch {self.epoch}, {reader}, {len(self.partitions)} partitions)"


class FetchSessionCache(dict[int, FetchSession]):
    """The sessions of a broker, at most ``max_entries``.

    A new session evicts one that was idle for two minutes, or else a less important one: a follower's evicts a
    consumer's, and one with more partitions evicts one with fewer that is older than two minutes. Thread: loop.
    """

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._max_entries = max_entries

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Mark a session as just used. The least recently used session is the first."""
        session.last_used_ms = now_ms
        self[session.id] = self.pop(session.id)

    def add(self, session: FetchSession) -> bool:
        """Add a session, if there is room or another one can be evicted; return whether it was added."""
        if len(self) >= self._max_entries and not self._try_evict(session):
            return False
        self[session.id] = session
        return True

    def _try_evict(self, candidate: FetchSession) -> bool:
        now_ms = candidate.created_ms
        oldest = next(iter(self.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > _EVICTION_MS:
            del self[oldest.id]
            return True
        worth = candidate.is_from_follower, len(candidate.partitions)
        evictable = [
            session
            for session in self.values()
            if (candidate.is_from_follower and not session.is_from_follower)
            or (
                now_ms - session.created_ms > _EVICTION_MS
                and (session.is_from_follower, len(session.partitions)) < worth
            )
        ]
        if not evictable:
            return False
        del self[min(evictable, key=lambda session: (session.is_from_follower, len(session.partitions))).id]
        return True


@dataclass(eq=False)
class FetchContext:
    """The context of one fetch request without a session (Java: SessionlessFetchContext).

    The response contains all its partitions.

    ``error_code`` is an error of the session; with one there are no partitions. Thread: loop.
    """

    partitions: Sequence[PartitionFetch] = ()
    error_code: int = 0

    def update_and_generate_response(self, results: FetchResults) -> tuple[int, int, FetchResults]:
        """Return the session id, the session's error, and the partitions of the response."""
        return INVALID_SESSION_ID, self.error_code, results

    def throttled_response(self) -> tuple[int, int]:
        """Return the session id and error of an empty, throttled response.

        It does not count as an update for the reader.
        """
        return INVALID_SESSION_ID, self.error_code


@dataclass(eq=False)
class FullFetchContext(FetchContext):
    """A request that starts a session. The response contains all its partitions. Thread: loop."""

    _: KW_ONLY
    manager: FetchManager
    is_from_follower: bool
    uses_topic_ids: bool

    def update_and_generate_response(self, results: FetchResults) -> tuple[int, int, FetchResults]:
        cached: dict[Key, CachedPartition] = {}
        for fetch, data in results:
            partition = cached[_key(fetch, by_id=self.uses_topic_ids)] = CachedPartition(fetch)
            partition.maybe_update_response(data)
        session_id = self.manager.create_session(
            cached, is_from_follower=self.is_from_follower, uses_topic_ids=self.uses_topic_ids
        )
        return session_id, 0, results


class IncrementalFetchContext(FetchContext):
    """A request within a session. The response contains the partitions that have changed.

    Partitions with records move to the end of the order, so that none starves when a response is full. Thread: loop.
    """

    def __init__(self, session: FetchSession) -> None:
        super().__init__(list(session.partitions.values()))
        self._session = session
        self._epoch = session.epoch

    def update_and_generate_response(self, results: FetchResults) -> tuple[int, int, FetchResults]:
        session = self._session
        session_id, error_code = self.throttled_response()
        if error_code:
            return session_id, error_code, ()
        news = []
        partitions = session.partitions
        for result in results:
            fetch, data = result
            if fetch.maybe_update_response(data):  # type: ignore[attr-defined]
                news.append(result)
                if data.size_in_bytes:
                    key = _key(fetch, by_id=session.uses_topic_ids)
                    if partitions.get(key) is fetch:
                        partitions[key] = partitions.pop(key)
        return session.id, 0, news

    def throttled_response(self) -> tuple[int, int]:
        if self._session.epoch != self._epoch:
            # Another request of the session has come in between, so the client has abandoned this one.
            return INVALID_SESSION_ID, InvalidFetchSessionEpochError.code
        return self._session.id, 0


class FetchManager:
    """Finds or creates the context of each fetch request. Thread: loop."""

    def __init__(self, broker: BrokerContext, max_sessions: int) -> None:
        self._broker = broker
        self.cache = FetchSessionCache(max_sessions)

    def new_context(
        self,
        version: int,
        session_id: int,
        epoch: int,
        fetches: Sequence[PartitionFetch],
        forgotten: Iterable[Key],
        topic_name: Callable[[UUID], str | None],
        *,
        is_from_follower: bool,
    ) -> FetchContext:
        """Return the context of a request.

        ``topic_name`` resolves topic ids that were unknown when the session got them.
        """
        uses_topic_ids = version >= _TOPIC_ID_VERSION
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self.cache.pop(session_id, None)
            if epoch == FINAL_EPOCH:
                return FetchContext(fetches)
            return FullFetchContext(
                fetches, manager=self, is_from_follower=is_from_follower, uses_topic_ids=uses_topic_ids
            )
        session = self.cache.get(session_id)
        if session is None:
            return FetchContext(error_code=FetchSessionIdNotFoundError.code)
        if session.epoch != epoch:
            return FetchContext(error_code=InvalidFetchSessionEpochError.code)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext(error_code=FetchSessionTopicIdError.code)
        session.update(fetches, forgotten)
        if not session.partitions:
            del self.cache[session_id]
            return FetchContext()
        if uses_topic_ids:
            self._resolve_names(session, topic_name)
        self.cache.touch(session, self._broker.loop.now_ms)
        session.epoch = next_epoch(epoch)
        return IncrementalFetchContext(session)

    @staticmethod
    def _resolve_names(session: FetchSession, topic_name: Callable[[UUID], str | None]) -> None:
        for cached in session.partitions.values():
            topic_partition = cached.topic_partition
            if not topic_partition.topic and cached.topic_id != ZERO_UUID:
                name = topic_name(cached.topic_id)
                if name is not None:
                    cached.topic_partition = topic_partition._replace(topic=name)

    def create_session(
        self, partitions: dict[Key, CachedPartition], *, is_from_follower: bool, uses_topic_ids: bool
    ) -> int:
        """Return the id of a new session, or INVALID_SESSION_ID if there is no room for it."""
        session_id = INVALID_SESSION_ID
        while session_id == INVALID_SESSION_ID or session_id in self.cache:
            session_id = self._broker.rng.randrange(1, 1 << 31)
        session = FetchSession(
            session_id,
            partitions,
            self._broker.loop.now_ms,
            is_from_follower=is_from_follower,
            uses_topic_ids=uses_topic_ids,
        )
        return session_id if self.cache.add(session) else INVALID_SESSION_ID


#: Errors that end the session and nothing else: the follower can start a new one immediately.
SESSION_ERRORS: Final = frozenset(
    {FetchSessionIdNotFoundError.code, InvalidFetchSessionEpochError.code, FetchSessionTopicIdError.code}
)


class FetchPosition(NamedTuple):
    """The last state of a partition that was sent to the leader."""

    topic_id: UUID
    fetch_offset: int
    log_start_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int


class FollowerFetchSession:
    """The partitions that the leader has in the session, and the epoch of the next request. Thread: loop."""

    def __init__(self) -> None:
        self._session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._names: dict[UUID, str] = {}
        #: As the leader knows them, or will know them after the request in flight.
        self.positions: dict[TopicPartition, FetchPosition] = {}

    @property
    def is_full(self) -> bool:
        """True if the next request names all partitions and starts a session."""
        return self._epoch == INITIAL_EPOCH

    def build(
        self, request: FetchRequest, changes: Iterable[tuple[TopicPartition, FetchPosition | None]], max_bytes: int
    ) -> bool:
        """Put the changes into ``request``; return whether there is anything to fetch.

        None as a position removes a partition. In a full request the changes are all partitions.
        """
        positions = self.positions
        if self.is_full:
            positions.clear()
            self._names.clear()
        request.session_id = self._session_id
        request.session_epoch = self._epoch
        topics: dict[UUID, FetchRequest.FetchTopic] = {}
        forgotten: dict[UUID, FetchRequest.ForgottenTopic] = {}
        for topic_partition, position in changes:
            known = positions.get(topic_partition)
            if known == position:
                continue
            if known is not None and (position is None or position.topic_id != known.topic_id):
                gone = forgotten.setdefault(known.topic_id, FetchRequest.ForgottenTopic(topic_id=known.topic_id))
                gone.partitions.append(topic_partition.partition)
                del positions[topic_partition]
            if position is None:
                continue
            positions[topic_partition] = position
            topic_id, fetch_offset, log_start_offset, current_leader_epoch, last_fetched_epoch = position
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchRequest.FetchTopic(topic_id=topic_id)
                self._names[topic_id] = topic_partition.topic
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=topic_partition.partition,
                    current_leader_epoch=current_leader_epoch,
                    fetch_offset=fetch_offset,
                    last_fetched_epoch=last_fetched_epoch,
                    log_start_offset=log_start_offset,
                    partition_max_bytes=max_bytes,
                )
            )
        request.topics = list(topics.values())
        request.forgotten_topics_data = list(forgotten.values())
        return bool(positions or forgotten)

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic in the session."""
        return self._names.get(topic_id)

    def handle_response(self, response: FetchResponse) -> bool:
        """Process a response; return whether the session continues. If not, the response has no data."""
        if response.error_code:
            if response.error_code == FetchSessionIdNotFoundError.code:
                self._session_id = INVALID_SESSION_ID
            self._epoch = INITIAL_EPOCH
            return False
        self._session_id = response.session_id
        self._epoch = INITIAL_EPOCH if response.session_id == INVALID_SESSION_ID else next_epoch(self._epoch)
        return True

    def handle_error(self) -> None:
        """Process a lost response: the leader's state is unknown now."""
        self._epoch = INITIAL_EPOCH
