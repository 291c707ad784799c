"""Building fetch requests and handling their responses (Java: FetchRequestManager, AbstractFetch).

While a broker has nothing new, requests follow themselves: see RepeatedFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.consumer.fetch_collector import CompletedFetch, FetchBuffer
from pykclient.consumer.fetch_context import FetchMetricsAggregator, FetchSizes, request_metadata_update
from pykclient.consumer.fetch_session_handler import (
    FetchRequestBuilder,
    FetchRequestData,
    FetchSessionHandler,
    PartitionData,
)
from pykclient.consumer.offsets_request_manager import can_validate
from pykclient.consumer.request_manager import NOTHING, PollResult, UnsentRequest
from pykclient.consumer.subscription_state import NO_NODE
from pykclient.errors import (
    FencedLeaderEpochError,
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InconsistentTopicIdError,
    InvalidFetchSessionEpochError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    ReplicaNotAvailableError,
    UnknownLeaderEpochError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pykclient.network.client_request import CORRELATION_ID_AT, Shortcut
from pykclient.network.failures import COORDINATOR_ID_BASE, SPARE_ID_BASE
from pykclient.network.metadata import LeaderIdAndEpoch
from pykclient.protocol.headers import encode_request
from pykclient.protocol.wire import ZERO_UUID
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.fetch_context import FetchContext, FetchMetricsManager
    from pykclient.consumer.request_manager import RequestFuture
    from pykclient.consumer.subscription_state import FetchPosition
    from pykclient.consumer.values import FetchConfig
    from pykclient.network.client_request import ClientRequest, ClientResponse, Repetitions
    from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse

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

    __slots__ = ("_build", "_epoch_at", "_frame", "_handler", "_is_wanted", "_metrics")

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


INVALID_LOG_START_OFFSET = -1
_LEADER_MOVED = frozenset((NotLeaderOrFollowerError.code, FencedLeaderEpochError.code))
#: After these errors a request that begins a new session follows immediately.
_SESSION_LOST = frozenset((FetchSessionIdNotFoundError.code, InvalidFetchSessionEpochError.code))
#: After these errors the same position is fetched again.
_RETRIED = _LEADER_MOVED | {
    ReplicaNotAvailableError.code,
    KafkaStorageError.code,
    OffsetNotAvailableError.code,
    UnknownTopicOrPartitionError.code,
    UnknownTopicIdError.code,
    InconsistentTopicIdError.code,
    UnknownLeaderEpochError.code,
    UnknownServerError.code,
}


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
        self.unsupported: UnsupportedVersionError | None = None

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
        epoch = leader.epoch
        size_bytes = self.sizes.of(tp, offset) if self.sizes.ends else self._config.fetch_size
        # Without the call of PartitionData.__new__, which is Python code.
        return tuple.__new__(
            PartitionData,
            (topic_id or ZERO_UUID, offset, INVALID_LOG_START_OFFSET, size_bytes, epoch, None),
        )

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
                if body.error_code == FetchSessionTopicIdError.code:
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
        if isinstance(error, UnsupportedVersionError):
            # Retrying cannot help. Without an error (as in Java) the topic would look empty.
            self.unsupported = UnsupportedVersionError(f"cannot read from {node.host}:{node.port}: {error}")
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
