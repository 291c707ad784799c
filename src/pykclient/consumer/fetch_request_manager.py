"""Fetch requests: the sessions with brokers, and the manager that builds requests and handles their responses.

Java: FetchSessionHandler, FetchRequest.Builder, FetchRequestManager, AbstractFetch. Requests and responses are written
and read with few objects for each partition.

A session saves sending what the broker already knows (KIP-227, KIP-516). Its first request is full: it names every
partition, and the broker returns a session id. Later requests are incremental: they name only changes, and responses
leave out partitions with nothing new. Session epochs tell both sides that no request was lost. If the epochs do not
match, a new session begins. While a broker has nothing new, requests follow themselves: see RepeatedFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from pykclient import errors
from pykclient.consumer.application_driver import NOTHING, PollResult, UnsentRequest
from pykclient.consumer.consumer_metrics import FetchMetricsAggregator
from pykclient.consumer.fetch_collector import MENDED_BY_METADATA, CompletedFetch, FetchBuffer, request_metadata_update
from pykclient.consumer.offsets_request_manager import can_validate
from pykclient.consumer.subscription_state import NO_NODE
from pykclient.log_context import LogContext
from pykclient.network.client_request import CORRELATION_ID_AT, RequestBuilder, Shortcut, UsualResponse
from pykclient.network.failures import COORDINATOR_ID_BASE, SPARE_ID_BASE
from pykclient.network.metadata import LeaderIdAndEpoch
from pykclient.protocol.headers import encode_request
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.wire import ZERO_UUID, Reader, Writer
from pykclient.types import UNKNOWN_EPOCH, Node, TopicIdPartition, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.application_driver import RequestFuture
    from pykclient.consumer.consumer_metrics import FetchMetricsManager
    from pykclient.consumer.fetch_collector import FetchContext
    from pykclient.consumer.subscription_state import FetchPosition
    from pykclient.consumer.values import FetchConfig
    from pykclient.network.client_request import ClientRequest, ClientResponse, Repetitions
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
    max_bytes: int
    current_leader_epoch: int = UNKNOWN_EPOCH


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
        code = response.error_code
        if code:
            self._log.info(
                "Broker %d refused a fetch (%s): %s", self._node_id, self._next_metadata, errors.for_code(code)
            )
            if code == errors.FetchSessionIdNotFoundError.code:
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


#: Fields of followers in the request of a consumer.
_NO_EPOCH = _NO_LOG_START = -1
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
        if version < _FIRST_WITHOUT_REPLICA:
            super().write(w, version)
            return
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
            for tp, (_, offset, max_bytes, epoch) in group:
                w.pack(_PARTITION, tp.partition, epoch, offset, _NO_EPOCH, _NO_LOG_START, max_bytes, 0)
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
        data = self.data
        to_forget = data.to_forget
        if version >= TOPIC_ID_VERSION:
            # By name alone, forgetting the deleted topic would forget the new one.
            to_forget = to_forget + data.to_replace
        return SessionFetchRequest(data, self._config, _forgotten(to_forget) if to_forget else [])

    def parse_response(self, frame: BytesLike, version: int) -> Response:
        if version >= TOPIC_ID_VERSION:
            r = Reader(frame, 4)  # behind the correlation id
            try:
                r.tags()
                plain = read_plain_response(r, version)
            except errors.RemoteProtocolError:
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
                    current_leader_epoch=of.current_leader_epoch,
                    fetch_offset=of.fetch_offset,
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


#: The size of a record, as long as nothing of its topic was fetched, and the least size of such a fetch.
_GUESSED_RECORD_BYTES = 1024
_LEAST_GUESSED_BYTES = 64 * 1024
#: The headers of batches: base offset and length; the length does not count these two; then the format's number, and
#: the last offset's distance from the base offset (from format 2 on).
_BATCH = Struct(">qi")
_LAST_OFFSET_DELTA = Struct(">i")
_MAGIC_AT: Final = 16
_LAST_OFFSET_DELTA_AT: Final = 23
_HEADER_BYTES: Final = 61
#: The most batches of a response of one partition that are looked at. Those of a topic are much alike.
_MOST_BATCHES = 64


class FetchSizes:
    """Limits fetch sizes of partitions that are read up to an end offset, to fetch little beyond it.

    They are estimates, from the batches of the same topic that were fetched last. If one was too small, the rest is
    fetched in another request. Thread: application.
    """

    def __init__(self, limit: int) -> None:
        #: ``max.partition.fetch.bytes``
        self._limit = limit
        #: The end offsets.
        self.ends: Mapping[TopicPartition, int] = {}
        #: By topic, the bytes of an offset and of a batch.
        self._topics: dict[str, tuple[float, float]] = {}
        #: Offsets at which a batch is known to begin.
        self._boundaries: dict[TopicPartition, int] = {}
        #: Partitions for which the sizes in the last requests are too small by now.
        self.outdated: set[TopicPartition] = set()

    def of(self, tp: TopicPartition, offset: int) -> int:
        """Return the size of a fetch from ``offset`` on."""
        left = self.ends.get(tp, 0) - offset
        if left <= 0:
            return self._limit
        found = self._topics.get(tp.topic)
        if found is None:
            return min(max(left * _GUESSED_RECORD_BYTES, _LEAST_GUESSED_BYTES), self._limit)
        offset_bytes, batch_bytes = found
        # Brokers send batches from their beginning, and a last one that is cut off is of no use.
        batches = 1 if self._boundaries.get(tp) == offset else 2
        return min(int(left * offset_bytes * 1.02 + batches * batch_bytes), self._limit)

    def learn(self, tp: TopicPartition, records: bytes | bytearray | memoryview) -> None:
        """Measure the batches of a response, if the partition has an end offset."""
        if tp not in self.ends:
            return
        at = count = offsets = 0
        following = -1
        while count < _MOST_BATCHES and at + _HEADER_BYTES <= len(records) and records[at + _MAGIC_AT] >= 2:
            base, length = _BATCH.unpack_from(records, at)
            (delta,) = _LAST_OFFSET_DELTA.unpack_from(records, at + _LAST_OFFSET_DELTA_AT)
            size = _BATCH.size + length
            # No checksum was checked yet.
            if delta < 0 or size < _HEADER_BYTES or at + size > len(records):
                break
            offsets += max(1, base + 1 + delta - following if count else 1 + delta)
            following = base + 1 + delta
            at += size
            count += 1
        if not count:
            return
        previous = self._topics.get(tp.topic)
        self._topics[tp.topic] = at / offsets, at / count
        self._boundaries.pop(tp, None)
        if count < _MOST_BATCHES and following < self.ends[tp]:
            self._boundaries[tp] = following
        if previous is None or previous[1] < at / count:
            self.outdated.update(each for each in self.ends if each.topic == tp.topic)


_INT32: Final = Struct(">i")
#: max_wait_ms, min_bytes, max_bytes, isolation_level and session_id, which precede the session's epoch.
_BEFORE_EPOCH: Final = Struct(">iiibi")


class RepeatedFetch:
    """An incremental fetch request that changes nothing, and is sent again after each empty response.

    An idle consumer gets an empty response every ``fetch.max.wait.ms``. Its next request differs only in the
    correlation id and in the session's epoch, so these are written into a copy of its bytes. Other requests and
    responses take dozens of objects and two hundred calls.

    ``build`` returns the request in a version. ``is_wanted()`` tells whether the same request would be created again.
    Thread: application.
    """

    def __init__(
        self,
        build: Callable[[int], FetchRequest],
        handler: FetchSessionHandler,
        metrics: FetchMetricsManager,
        is_wanted: Callable[[], bool],
    ) -> None:
        self._build = build
        self._handler = handler
        self._metrics = metrics
        self._is_wanted = is_wanted
        self._frame = b""
        self._epoch_at = 0

    def handle(self, request: ClientRequest, now_ms: int) -> bool:
        """Handle an empty response, if the same request is to follow; return whether it is."""
        if not self._is_wanted():
            return False
        self._metrics.record_latency(request.destination, now_ms - request.created_ms, now_ms)
        return True

    def next_frame(self, request: ClientRequest, version: int, correlation_id: int) -> bytes:
        """Return the frame of the next request, and advance the session."""
        frame = bytearray(self._template(request, version))
        _INT32.pack_into(frame, CORRELATION_ID_AT, correlation_id)
        _INT32.pack_into(frame, self._epoch_at, self._handler.next_epoch())
        return bytes(frame)

    def template(self, request: ClientRequest, version: int) -> tuple[bytes, int, int] | None:
        """Return the next frame without its numbers, the position of the epoch in it, and the epoch of ``request``.

        None if the request would not be sent again.
        """
        if not self._is_wanted():
            return None
        return self._template(request, version), self._epoch_at, self._handler.epoch

    def repeated(self, request: ClientRequest, done: Repetitions, now_ms: int) -> None:
        """Record that a poller has repeated the request by itself."""
        self._handler.skip_epochs(done.repeats)
        self._metrics.record_latencies(request.destination, done.latencies_ms, now_ms)
        self._metrics.throttle_time_sensor.record_all(done.throttle_times_ms, now_ms)

    def _template(self, request: ClientRequest, version: int) -> bytes:
        if not self._frame:
            client_id = request.client_id
            self._frame = encode_request(self._build(version), version, 0, client_id).getvalue()
            # The client id has a length before it and tags behind it.
            body_at = CORRELATION_ID_AT + 4 + 2 + len((client_id or "").encode()) + 1
            self._epoch_at = body_at + _BEFORE_EPOCH.size
        return self._frame


_LEADER_MOVED = frozenset((errors.NotLeaderOrFollowerError.code, errors.FencedLeaderEpochError.code))
#: After these errors a request that begins a new session follows immediately.
_SESSION_LOST = frozenset((errors.FetchSessionIdNotFoundError.code, errors.InvalidFetchSessionEpochError.code))
#: After these errors the same position is fetched again.
_RETRIED = {*MENDED_BY_METADATA, errors.UnknownLeaderEpochError.code, errors.UnknownServerError.code}


class FetchTicket(NamedTuple):
    """A fetch that will have been answered when a session has more than ``answers``, or None before the first."""

    offset: int
    session: FetchSessionHandler | None
    answers: int


class FetchRequestManager:
    """Builds fetch requests, with at most one in flight per node, and puts the responses into ``fetch_buffer``.

    A partition is fetched from ``TopicPartitionState.fetch_node_id``: the replica that its leader has named (KIP-392),
    until ``metadata.max.age.ms`` has passed or the replica is gone; otherwise the leader.

    A poll returns only what ``create_fetch_requests`` has asked for, so that calls other than ``poll`` do not fetch.

    Thread: application.
    """

    runs_in_background = False

    def __init__(
        self,
        context: FetchContext,
        fetch_config: FetchConfig,
        fetch_buffer: FetchBuffer,
        metrics_manager: FetchMetricsManager,
    ) -> None:
        self._log = context.log_context.logger(__name__)
        self._completed_fetch_log = context.log_context.logger(CompletedFetch.__module__)
        self._log_context = context.log_context
        self._client = context.client
        self._metadata = context.metadata
        self._subscriptions = context.subscriptions
        self._clock = context.clock
        self._api_versions = context.api_versions
        self._config = fetch_config
        self._fetch_buffer = fetch_buffer
        #: For polls that read up to an end offset.
        self.sizes = FetchSizes(fetch_config.fetch_size)
        self._metrics_manager = metrics_manager
        self.pending: list[UnsentRequest] = []  # for the next poll
        self._session_handlers: dict[int, FetchSessionHandler] = {}
        #: By node id: the request, the id of its connection, and its contents.
        self._in_flight: dict[int, tuple[UnsentRequest, int, FetchRequestData]] = {}
        #: By the ids of their connections: requests whose responses do not matter any more.
        self._superseded: dict[int, FetchRequestData] = {}
        #: Nodes whose last response held only errors: the time until which they are skipped, which no response can end,
        #: and the metadata version then.
        self.resting_nodes: dict[int, tuple[int, int]] = {}
        self._last_buffered: dict[int, CompletedFetch] = {}  # by node id; see _has_buffered
        # The changes of subscriptions, metadata and buffer at which each node with partitions was found to have a
        # request in flight or buffered data, and whether the next in line had no more; None: a request may be due.
        self._all_busy_at: tuple[int, int, int, bool] | None = None
        self._checked_replicas = (-1, -1)
        self._sessions_end = False
        #: The error of a node that is too old to fetch from, for ``raise_unsupported``.
        self.unsupported: errors.UnsupportedVersionError | None = None

    def has_available_fetches(self, partitions: Collection[TopicPartition] | None = None) -> bool:
        """Return whether the buffer holds records that a poll would return, or an error that it would raise.

        ``partitions`` are the only ones that the poll asks for; None means all.
        """
        if not self._fetch_buffer.completed:
            return self.unsupported is not None
        return self.unsupported is not None or self._fetch_buffer.has_completed_fetches(
            lambda fetch: (
                self._subscriptions.is_fetchable(fetch.partition)
                and (partitions is None or fetch.partition in partitions)
            )
        )

    # --- requests --------------------------------------------------------------------------------------------------

    def poll(self, _now_ms: int) -> PollResult:
        """Return the requests that were created since the last poll."""
        if not self.pending:
            return NOTHING
        requests, self.pending = self.pending, []
        return PollResult(requests=requests)

    def create_fetch_requests(self) -> int:
        """Create a request for each node with partitions to fetch, and return the number of requests.

        Skip nodes that are unavailable, have a request in flight, or have sent data that is still buffered.

        Raises:
            AuthenticationError: authentication with a node failed.
        """
        subscriptions = self._subscriptions
        line = self._fetch_buffer.next_in_line_fetch
        is_line_over = line is None or line.is_consumed
        changes = subscriptions.changes, self._metadata.update_version, self._fetch_buffer.removals, is_line_over
        if changes == self._all_busy_at:
            return 0
        self._all_busy_at = None
        if self._metrics_manager.assignment_id != subscriptions.assignment_id:
            self._metrics_manager.update_assignment(subscriptions)
        has_leases = subscriptions.has_leases
        is_all_busy = not has_leases and not self.resting_nodes
        if has_leases:
            subscriptions.expire_preferred_read_replicas(self._clock.now_ms())
            self._drop_preferred_read_replicas_that_are_gone()
        if self.resting_nodes:
            self._wake_nodes(self._clock.now_ms())
        # Collect all nodes before building the first request. Building a request advances its session, so it must be
        # sent; an error of another node would lose it.
        nodes: list[tuple[Node, Node]] = []  # each with its connection's
        for node_id in subscriptions.fetch_node_ids():
            if node_id in self._in_flight or node_id in self.resting_nodes:
                continue
            if node_id == NO_NODE:
                is_all_busy = False
                self._log.debug("Requesting metadata, as a partition to fetch has no leader")
                self._metadata.request_update(False)
            elif not self._has_buffered(node_id):
                is_all_busy = False
                node = self._available_node(node_id)
                connection = None if node is None else self._free_connection(node)
                if node is not None and connection is not None:
                    nodes.append((node, connection))
        for node, connection in nodes:
            data = self._build(node.id)
            shortcut = self._shortcut(node.id, data) if data.is_repeatable else None
            self._create(node, connection, data, self._on_success, self._on_failure, shortcut)
        if is_all_busy:
            self._all_busy_at = changes
        return len(nodes)

    def _create(
        self,
        node: Node,
        connection: Node,
        data: FetchRequestData,
        on_success: Callable[[Node, FetchRequestData, ClientResponse], object],
        on_failure: Callable[[Node, FetchRequestData, Exception], object],
        shortcut: Shortcut | None = None,
    ) -> RequestFuture[ClientResponse]:
        if self._superseded.pop(connection.id, None) is not None:
            self._client.close_async(connection)
        builder = FetchRequestBuilder(self._config, data, shortcut)
        request = UnsentRequest(builder, connection)
        self._in_flight[node.id] = request, connection.id, data
        request.future.add_listener(partial(on_success, node, data), partial(on_failure, node, data))
        self.pending.append(request)
        self._client.managers.poll_soon()
        return request.future

    def _shortcut(self, node_id: int, data: FetchRequestData) -> Shortcut:
        is_wanted = partial(self._is_wanted_again, node_id, data, self._metadata.update_version)
        handler = self._session_handlers[node_id]
        build = FetchRequestBuilder(self._config, data).build
        fetch = RepeatedFetch(build, handler, self._metrics_manager, is_wanted)
        return Shortcut(handler.usual_response, fetch.handle, fetch)

    def _is_wanted_again(self, node_id: int, data: FetchRequestData, metadata_version: int) -> bool:
        """Return whether the next round of a poll would send the same request to this node again.

        Nothing can be buffered for a node with a request in flight, and other calls do not fetch.
        """
        return (
            self._client.awaits_records
            and self._is_in_flight(node_id, data)
            and metadata_version == self._metadata.update_version
            and self._subscriptions.is_fetched_as_before(node_id)
            and not self._sessions_end
        )

    def supersede(self, tp: TopicPartition, offset: int) -> None:
        """Let the next fetch begin at once, because ``tp`` must be read from ``offset``.

        A broker answers the requests of a connection in order. So a fetch that waits for records, perhaps at the end of
        the log, would hold up the next one for ``fetch.max.wait.ms``, as it does in Java. Its response is dropped.
        """
        node_id = self._subscriptions.fetch_node_id(tp)
        if node_id is None or node_id not in self._in_flight or self._sessions_end:
            return
        request, connection_id, data = self._in_flight[node_id]
        requested = data.session_partitions.get(tp)
        if requested is not None and requested.fetch_offset == offset:
            return
        if request in self.pending:
            self.pending.remove(request)
        else:
            self._superseded[connection_id] = data
        self._session_handlers[node_id].supersede()
        self._is_answered(node_id, data)

    def look_behind(self, tp: TopicPartition, offset: int, ticket: FetchTicket | None) -> FetchTicket | None:
        """Return None if a fetch of ``tp`` from ``offset``, its position, has found nothing since the first call.

        Until then, return the ticket for the next call; the first has None. Thread: application.
        """
        node_id = self._subscriptions.fetch_node_id(tp)
        session = None if node_id is None else self._session_handlers.get(node_id)
        if ticket is not None and session is not None and ticket[:2] == (offset, session):
            if session.answers <= ticket.answers:
                return ticket
            is_buffered = self._fetch_buffer.has_completed_fetches(lambda fetch: fetch.partition == tp)
            return ticket if is_buffered else None
        answers = 0 if session is None else session.answers
        if session is not None and node_id in self._in_flight:
            requested = self._in_flight[node_id][2].session_partitions.get(tp)
            if requested is None or requested.fetch_offset != offset:
                answers += 1
        return FetchTicket(offset, session, answers)

    def _free_connection(self, node: Node) -> Node | None:
        """Return the node whose connection the next fetch takes, if that can be used now.

        If both of a broker's connections have a superseded fetch, the second one is closed and opened again.
        """
        if node.id not in self._superseded:
            return node
        spare = Node(SPARE_ID_BASE - node.id, node.host, node.port)
        return None if self._client.is_unavailable(spare) else spare

    def _has_buffered(self, node_id: int) -> bool:
        """Return whether data is buffered for partitions that are fetched from this node.

        The node's other partitions then wait, too. A request would leave the buffered ones out, so the broker would
        drop them from its session and have to add them again a moment later.
        """
        # The newest buffered data is returned last, so checking it is enough for all polls until then; this avoids
        # walking the buffer.
        node_of = self._subscriptions.fetch_node_id
        last = self._last_buffered.get(node_id)
        if last is not None and self._fetch_buffer.holds(last) and node_of(last.partition) == node_id:
            return True
        for fetch in self._fetch_buffer.newest_first():
            if node_of(fetch.partition) == node_id:
                self._last_buffered[node_id] = fetch
                return True
        self._last_buffered.pop(node_id, None)
        return False

    def _wake_nodes(self, now_ms: int) -> None:
        version = self._metadata.update_version
        self.resting_nodes = {
            node_id: (until_ms, then)
            for node_id, (until_ms, then) in self.resting_nodes.items()
            if now_ms < until_ms and version == then
        }

    def _let_rest(self, node_id: int) -> None:
        """Skip the node until there is new metadata or a backoff has passed.

        A broker responds immediately while a partition has an error. Without this backoff, one request would follow
        another until metadata arrives, as in Java.
        """
        until_ms = self._clock.now_ms() + self._config.retry_backoff_ms
        self.resting_nodes[node_id] = (until_ms, self._metadata.update_version)

    def _available_node(self, node_id: int) -> Node | None:
        """Return the node, or None if a request to it would fail immediately.

        Raises:
            AuthenticationError: authentication with the node failed.
        """
        node = self._metadata.fetch().node_by_id(node_id)
        if node is None:
            # The node left the metadata, but no new leader is known yet.
            node = self._subscriptions.leader_by_position(node_id)
        if node is None:
            return None
        if self._client.is_unavailable(node):
            self._client.maybe_throw_auth_failure(node)
            return None
        return node

    def _build(self, node_id: int) -> FetchRequestData:
        """Return the next request to ``node_id``: all partitions in a new session, the changes in an existing one."""
        handler = self._session_handlers.get(node_id)
        if handler is None:
            handler = self._session_handlers[node_id] = FetchSessionHandler(self._log_context, node_id)
        if handler.next_is_incremental:
            changes = self._subscriptions.take_changes_of(node_id)
            if self.sizes.outdated:
                changes.update(self._outdated(node_id))
            return handler.build_changes(
                {tp: None if at is None else self._partition_data(tp, at) for tp, at in changes.items()}
            )
        wanted = self._subscriptions.fetchable_partitions_of(node_id)
        return handler.build({tp: self._partition_data(tp, at) for tp, at in wanted.items()})

    def _outdated(self, node_id: int) -> dict[TopicPartition, FetchPosition]:
        """Return the partitions of a node whose fetches were too small, which need not have moved."""
        wanted = self._subscriptions.fetchable_partitions_of(node_id)
        found = {tp: wanted[tp] for tp in self.sizes.outdated if tp in wanted}
        self.sizes.outdated = {tp for tp in self.sizes.outdated if tp in self.sizes.ends and tp not in found}
        return found

    def _partition_data(self, tp: TopicPartition, position: FetchPosition) -> PartitionData:
        offset, _, leader, topic_id = position
        epoch = UNKNOWN_EPOCH if leader.epoch is None else leader.epoch
        size_bytes = self.sizes.of(tp, offset) if self.sizes.ends else self._config.fetch_size
        # Without the call of PartitionData.__new__, which is Python code.
        return tuple.__new__(PartitionData, (topic_id or ZERO_UUID, offset, size_bytes, epoch))

    def _drop_preferred_read_replicas_that_are_gone(self) -> None:
        """Fetch from the leader again if the preferred read replica is offline or not in the metadata."""
        checked = (self._subscriptions.lease_id, self._metadata.update_version)
        if checked == self._checked_replicas:
            return
        self._checked_replicas = checked
        cluster = self._metadata.fetch()
        for tp, node_id in self._subscriptions.leased_partitions():
            if cluster.node_if_online(tp, node_id) is None:
                self._log.debug("Not fetching %s from replica %d, which is offline or unknown", tp, node_id)
                request_metadata_update(self._metadata, self._subscriptions, tp)

    def close_sessions(self) -> list[RequestFuture[ClientResponse]]:
        """Create requests that end the sessions, which frees their slots on the brokers; return their futures.

        A broker answers the requests of a connection in order. So where a fetch waits for records, the request goes
        over another connection, which the group coordinator may have already. A second call does nothing.
        """
        if self._sessions_end:
            return []
        self._sessions_end = True
        cluster = self._metadata.fetch()
        futures = []
        for node_id, handler in self._session_handlers.items():
            node = cluster.node_by_id(node_id)
            if node is None or not handler.session_id or self._client.is_unavailable(node):
                continue
            handler.notify_close()
            if node_id in self._in_flight or node_id in self._superseded:
                node = Node(COORDINATOR_ID_BASE - node_id, node.host, node.port)
            futures.append(self._create(node, node, handler.build({}), self._on_close_success, self._on_close_failure))
        return futures

    # --- responses -------------------------------------------------------------------------------------------------

    def _on_success(self, node: Node, data: FetchRequestData, response: ClientResponse) -> None:
        """Buffer the fetched data, one CompletedFetch per partition."""
        if self._was_superseded(data):
            return
        try:
            if self._sessions_end:
                return  # a response to an earlier fetch: its session has already moved on
            handler = self._session_handlers[node.id]
            body: FetchResponse = response.response_body
            partitions = handler.handle_response(body, response.api_version)
            if partitions is None:
                if body.error_code == errors.FetchSessionTopicIdError.code:
                    self._metadata.request_update(False)
                if body.error_code not in _SESSION_LOST:
                    self._let_rest(node.id)
                return
            latency_ms = response.request_latency_ms
            self._metrics_manager.record_latency(response.destination, latency_ms, response.received_ms)
            if not partitions:
                return
            aggregator = FetchMetricsAggregator(self._metrics_manager, partitions)
            completed: list[CompletedFetch] = []
            moved: dict[TopicPartition, LeaderIdAndEpoch] = {}
            has_ends = bool(self.sizes.ends)
            for tp, partition_data in partitions.items():
                requested = data.session_partitions[tp]  # the session handler has checked that it was requested
                if partition_data.error_code in _LEADER_MOVED and self._is_of_present_topic(tp, requested):
                    hint = partition_data.current_leader
                    if hint.leader_id != -1 and hint.leader_epoch != -1:
                        moved[tp] = LeaderIdAndEpoch(hint.leader_id, hint.leader_epoch)
                if has_ends and partition_data.records:
                    self.sizes.learn(tp, partition_data.records)
                completed.append(
                    CompletedFetch(
                        self._completed_fetch_log,
                        self._subscriptions,
                        tp,
                        partition_data,
                        aggregator,
                        requested.fetch_offset,
                        requested.topic_id if requested.topic_id.int else None,
                    )
                )
            self._fetch_buffer.add_all(completed)
            if moved:
                self._update_leaders(moved, body)
            codes = {data.error_code for tp, data in partitions.items() if tp not in moved}
            if codes and codes <= _RETRIED:
                self._let_rest(node.id)
        finally:
            self._is_answered(node.id, data)

    def _is_answered(self, node_id: int, data: FetchRequestData) -> None:
        """Note that ``data`` is not in flight to the node any more."""
        self._all_busy_at = None
        if self._is_in_flight(node_id, data):
            del self._in_flight[node_id]

    def _is_in_flight(self, node_id: int, data: FetchRequestData) -> bool:
        return node_id in self._in_flight and self._in_flight[node_id][2] is data

    def _was_superseded(self, data: FetchRequestData) -> bool:
        """Return whether the response to ``data`` is to be dropped, and free its connection for other fetches."""
        for connection_id, superseded in self._superseded.items():
            if superseded is data:
                del self._superseded[connection_id]
                return True
        return False

    def _is_of_present_topic(self, tp: TopicPartition, requested: PartitionData) -> bool:
        """Return False if the topic was created again since the request, because its leader epochs start again."""
        topic_id = self._metadata.topic_ids.get(tp.topic, ZERO_UUID)
        return not topic_id.int or not requested.topic_id.int or topic_id == requested.topic_id

    def _update_leaders(self, moved: dict[TopicPartition, LeaderIdAndEpoch], body: FetchResponse) -> None:
        """Update the metadata with the new leaders named in the response, which saves a metadata request (KIP-951)."""
        nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in body.node_endpoints]
        for tp in self._metadata.update_partition_leadership(moved, nodes):
            leader = self._metadata.current_leader(tp)
            self._subscriptions.maybe_validate_position_for_current_leader(
                tp, leader, can_validate=can_validate(self._api_versions, leader.leader)
            )

    def _on_failure(self, node: Node, data: FetchRequestData, error: Exception) -> None:
        """Handle a failed request: start a new session, and read its partitions from their leaders."""
        if self._was_superseded(data):
            return
        if isinstance(error, errors.UnsupportedVersionError):
            # Retrying cannot help. Without an error (as in Java) the topic would look empty.
            self.unsupported = errors.UnsupportedVersionError(f"cannot read from {node.host}:{node.port}: {error}")
        try:
            handler = self._session_handlers[node.id]
            handler.handle_error(error)
            for tp in handler.session_topic_partitions():
                self._subscriptions.clear_preferred_read_replica(tp)
        finally:
            self._is_answered(node.id, data)

    def _on_close_success(self, node: Node, data: FetchRequestData, _response: ClientResponse) -> None:
        self._is_answered(node.id, data)
        self._log.debug("Node %d ended its fetch session (%s)", node.id, data.metadata)

    def _on_close_failure(self, node: Node, data: FetchRequestData, error: Exception) -> None:
        self._is_answered(node.id, data)
        self._log.debug("Node %d keeps its fetch session (%s) for a while: %s", node.id, data.metadata, error)

    def raise_unsupported(self) -> None:
        """Raise UnsupportedVersionError, once, if a node is too old to fetch from."""
        error, self.unsupported = self.unsupported, None
        if error is not None:
            raise error

    def reset(self) -> None:
        """Drop all requests, sessions and buffered data after an unexpected exception."""
        self._fetch_buffer.reset()
        self.pending = []
        self._all_busy_at = None
        self._in_flight = {}
        self._superseded = {}
        self._session_handlers = {}
        self._last_buffered = {}
