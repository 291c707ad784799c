"""A fetch session with one broker, which saves sending what the broker already knows (KIP-227, KIP-516).

Its requests and responses are written and read with few objects for each partition (Java: FetchRequest.Builder).

The first request of a session is full: it names every partition, and the broker returns a session id. Later requests
are incremental: they name only changes, and the responses leave out partitions with nothing new. Session epochs tell
both sides that no request was lost. If the epochs do not match, a new session begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from pykclient.errors import FetchSessionIdNotFoundError, RemoteProtocolError, for_code
from pykclient.log_context import LogContext
from pykclient.network.client_request import RequestBuilder, Shortcut, UsualResponse
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.wire import Reader, Writer
from pykclient.types import TopicIdPartition, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.values import FetchConfig
    from pykclient.protocol.message import Response
    from pykclient.protocol.wire import BytesLike

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = (1 << 31) - 1
#: From this version on, requests and responses identify topics by id alone.
TOPIC_ID_VERSION = 13


class FetchMetadata(NamedTuple):
    """The session id and epoch of a request. Epoch 0 begins a session, -1 ends it."""

    session_id: int
    epoch: int

    @property
    def is_full(self) -> bool:
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def next_incremental(self) -> FetchMetadata:
        """Return the metadata of the session's next request; after the largest epoch comes 1."""
        if self.epoch < 0:
            return FetchMetadata(self.session_id, FINAL_EPOCH)
        return FetchMetadata(self.session_id, 1 if self.epoch == _MAX_EPOCH else self.epoch + 1)

    def next_close_existing(self) -> FetchMetadata:
        return FetchMetadata(self.session_id, FINAL_EPOCH)

    def next_close_existing_attempt_new(self) -> FetchMetadata:
        return FetchMetadata(self.session_id, INITIAL_EPOCH)

    def __str__(self) -> str:
        session = "no session" if self.session_id == INVALID_SESSION_ID else f"session {self.session_id}"
        epoch = {INITIAL_EPOCH: "initial", FINAL_EPOCH: "final"}.get(self.epoch, self.epoch)
        return f"{session}, epoch {epoch}"


INITIAL = FetchMetadata(INVALID_SESSION_ID, INITIAL_EPOCH)


class PartitionData(NamedTuple):
    """The fetch position and limits of one partition in a request (Java: FetchRequest.PartitionData)."""

    topic_id: UUID
    fetch_offset: int
    log_start_offset: int
    max_bytes: int
    current_leader_epoch: int | None = None
    last_fetched_epoch: int | None = None


class FetchRequestData(NamedTuple):
    """The contents of a request.

    ``session_partitions`` are the partitions of the session after this request. It is a view, valid until the next
    request is built.
    """

    to_send: Mapping[TopicPartition, PartitionData]
    to_forget: list[TopicIdPartition]
    to_replace: list[TopicIdPartition]
    session_partitions: Mapping[TopicPartition, PartitionData]
    metadata: FetchMetadata
    can_use_topic_ids: bool

    @property
    def is_repeatable(self) -> bool:
        """True if the request changes nothing in its session."""
        return not (self.to_send or self.to_forget or self.to_replace or self.metadata.is_full)

    def __str__(self) -> str:
        kind = "full" if self.metadata.is_full else "incremental"
        implied = len(self.session_partitions) - len(self.to_send)
        return (
            f"{kind} fetch ({self.metadata}): {len(self.to_send)} sent, {len(self.to_forget)} forgotten, "
            f"{len(self.to_replace)} replaced, {implied} implied"
        )


class FetchSessionHandler:
    """The client's side of one session (Java: FetchSessionHandler).

    For each request, call ``build`` with all wanted partitions or, if ``next_is_incremental``, ``build_changes`` with
    the changed ones. Then call ``handle_response`` or ``handle_error`` before you build the next.

    Thread: owner.
    """

    __slots__ = (
        "_log",
        "_next_metadata",
        "_node_id",
        "_session_partitions",
        "_topic_names",
        "_without_topic_id",
        "answers",
        "session_topic_names",
        "usual_response",
    )

    def __init__(self, log_context: LogContext, node_id: int) -> None:
        self._log = log_context.logger(__name__)
        self._node_id = node_id
        self._next_metadata = INITIAL
        self._session_partitions: dict[TopicPartition, PartitionData] = {}
        self._topic_names: dict[UUID, str] = {}
        self._without_topic_id = 0  # the number of partitions without an id
        #: The number of requests that were answered without an error of the session.
        self.answers = 0
        #: Names by id; empty if the session cannot use ids.
        self.session_topic_names: Mapping[UUID, str] = {}
        #: That of a broker without news. Stays empty in versions whose requests begin with other fields.
        self.usual_response = UsualResponse()

    @property
    def session_id(self) -> int:
        return self._next_metadata.session_id

    @property
    def next_is_incremental(self) -> bool:
        """True if ``build_changes`` can make the next request."""
        return not self._next_metadata.is_full

    def session_topic_partitions(self) -> list[TopicPartition]:
        return list(self._session_partitions)

    def build(self, wanted: Mapping[TopicPartition, PartitionData]) -> FetchRequestData:
        """Return a request that sets the session's partitions to exactly ``wanted``."""
        if self.next_is_incremental:
            changes: dict[TopicPartition, PartitionData | None] = dict(wanted)
            changes.update((tp, None) for tp in self._session_partitions if tp not in wanted)
            return self.build_changes(changes)
        self._session_partitions = {}
        self._topic_names = {}
        self._without_topic_id = 0
        return self.build_changes(wanted)

    def build_changes(self, changes: Mapping[TopicPartition, PartitionData | None]) -> FetchRequestData:
        """Return a request that applies ``changes`` to the session; None removes a partition."""
        session = self._session_partitions
        to_send: dict[TopicPartition, PartitionData] = {}
        removed: list[TopicIdPartition] = []
        replaced: list[TopicIdPartition] = []
        can_use_topic_ids = True
        for tp, data in changes.items():
            previous = session.get(tp)
            if previous == data:
                continue
            if previous is not None and previous.topic_id.int == 0:
                self._without_topic_id -= 1
            if data is None:
                if previous is not None:
                    del session[tp]
                    removed.append(TopicIdPartition(previous.topic_id, tp))
                    # Without an id it can only be forgotten by name.
                    can_use_topic_ids &= previous.topic_id.int != 0
                continue
            to_send[tp] = session[tp] = data
            if data.topic_id.int == 0:
                self._without_topic_id += 1
            elif previous is None or (
                previous.topic_id is not data.topic_id
                and previous.topic_id != data.topic_id  # a comparison takes a call
            ):
                self._topic_names[data.topic_id] = tp.topic
                if previous is not None and previous.topic_id.int:
                    self._topic_names.pop(previous.topic_id, None)
                    replaced.append(TopicIdPartition(previous.topic_id, tp))
        can_use_topic_ids &= self._without_topic_id == 0
        self.session_topic_names = self._topic_names if can_use_topic_ids else {}
        request = FetchRequestData(to_send, removed, replaced, session, self._next_metadata, can_use_topic_ids)
        self._log.debug("Fetching from broker %d: %s", self._node_id, request)
        return request

    def response_partitions(
        self, response: FetchResponse, version: int
    ) -> dict[TopicPartition, FetchResponse.PartitionData]:
        """Return the partitions of a response by name, without those whose topic id the session does not know."""
        names = self.session_topic_names
        result: dict[TopicPartition, FetchResponse.PartitionData] = {}
        for topic in response.responses:
            name = names.get(topic.topic_id) if version >= TOPIC_ID_VERSION else topic.topic
            if name is not None:
                for partition in topic.partitions:
                    result[TopicPartition(name, partition.partition_index)] = partition
        return result

    def handle_response(
        self, response: FetchResponse, version: int
    ) -> dict[TopicPartition, FetchResponse.PartitionData] | None:
        """Process a response. Return its partitions, or None if it does not fit the session and must be ignored."""
        error = for_code(response.error_code)
        if error is not None:
            self._log.info("Broker %d refused a fetch (%s): %s", self._node_id, self._next_metadata, error)
            if isinstance(error, FetchSessionIdNotFoundError):
                self._next_metadata = INITIAL
            else:
                self._next_metadata = self._next_metadata.next_close_existing_attempt_new()
            return None
        partitions = self.response_partitions(response, version)
        full = self._next_metadata.is_full
        if full and not partitions and response.throttle_time_ms > 0:
            # A throttled client gets an empty response even to a full request (KIP-219).
            self._next_metadata = INITIAL
            return None
        # An incremental response without partitions, as an idle consumer gets them, fits any session.
        if (full or response.responses) and (problem := self._problem(partitions, response, version, full)):
            self._log.info(
                "The response of broker %d does not fit the fetch (%s): %s",
                self._node_id,
                self._next_metadata,
                problem,
            )
            self._next_metadata = INITIAL if full else self._next_metadata.next_close_existing_attempt_new()
            return None
        self.answers += 1
        if response.session_id == INVALID_SESSION_ID:
            # The broker has no room for the session, or ended it.
            self._next_metadata = INITIAL
        elif full:
            self._next_metadata = FetchMetadata(response.session_id, INITIAL_EPOCH).next_incremental()
            if version >= _FIRST_WITHOUT_REPLICA:
                self.usual_response.expect(FetchResponse(session_id=response.session_id), version)
        else:
            self._next_metadata = self._next_metadata.next_incremental()
        return partitions

    def _problem(
        self,
        partitions: dict[TopicPartition, FetchResponse.PartitionData],
        response: FetchResponse,
        version: int,
        full: bool,
    ) -> str:
        """Return the mismatch between the partitions of the response and of the session; empty if there is none."""
        session = self._session_partitions
        problems = []
        extra = [tp for tp in partitions if tp not in session]
        if extra:
            problems.append(f"partitions that are not of the session: {_join(extra)}")
        if full and len(partitions) - len(extra) < len(session):
            problems.append(f"partitions left out: {_join(tp for tp in session if tp not in partitions)}")
        if version >= TOPIC_ID_VERSION:
            names = self.session_topic_names
            ids = [topic.topic_id for topic in response.responses]
            unknown = [topic_id for topic_id in ids if topic_id not in names and topic_id.int]
            if unknown:
                problems.append(f"unknown topic ids: {_join(unknown)}")
        return "; ".join(problems)

    def next_epoch(self) -> int:
        """Advance to the next request's epoch after an empty incremental response; return the epoch."""
        self.answers += 1
        self._next_metadata = self._next_metadata.next_incremental()
        return self._next_metadata.epoch

    @property
    def epoch(self) -> int:
        """The epoch of the request in flight, or else of the next one."""
        return self._next_metadata.epoch

    def skip_epochs(self, count: int) -> None:
        """Advance by ``count`` epochs, which must not wrap around: so many empty responses have arrived."""
        self.answers += count
        self._next_metadata = FetchMetadata(self._next_metadata.session_id, self._next_metadata.epoch + count)

    def notify_close(self) -> None:
        """Make the next request end the session."""
        self._next_metadata = self._next_metadata.next_close_existing()

    def supersede(self) -> None:
        """Replace this session by a new one, because the response to the last request will be dropped."""
        self._next_metadata = self._next_metadata.next_close_existing_attempt_new()

    def handle_error(self, error: Exception) -> None:
        """Start a new session: the request failed or got no response, so the broker's state is unknown."""
        # Only debug: the network client logs lost connections, once for each outage.
        self._log.debug("A fetch (%s) from broker %d failed: %s", self._next_metadata, self._node_id, error)
        self._next_metadata = self._next_metadata.next_close_existing_attempt_new()


def _join(things: Iterable[object]) -> str:
    return ", ".join(map(str, things))


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

    __slots__ = ("_config", "data", "shortcut")

    def __init__(self, config: FetchConfig, data: FetchRequestData, shortcut: Shortcut | None = None) -> None:
        self.shortcut = shortcut
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
