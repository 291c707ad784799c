"""Building fetch requests and handling their responses (Java: FetchRequestManager, AbstractFetch)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from pykclient.consumer.completed_fetch import CompletedFetch
from pykclient.consumer.fetch_buffer import FetchBuffer
from pykclient.consumer.fetch_messages import FetchRequestBuilder
from pykclient.consumer.fetch_metrics import FetchMetricsAggregator
from pykclient.consumer.fetch_session_handler import FetchRequestData, FetchSessionHandler, PartitionData
from pykclient.consumer.fetch_state import NO_NODE
from pykclient.consumer.fetch_utils import request_metadata_update
from pykclient.consumer.offsets_for_leader_epoch_utils import can_validate
from pykclient.consumer.request_manager import NOTHING, PollResult, UnsentRequest
from pykclient.consumer.standing_fetch import StandingFetch
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
from pykclient.network.cluster import ZERO_UUID
from pykclient.network.connection_failures import COORDINATOR_ID_BASE
from pykclient.network.metadata import LeaderIdAndEpoch
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.fetch_config import FetchConfig
    from pykclient.consumer.fetch_context import FetchContext
    from pykclient.consumer.fetch_metrics import FetchMetricsManager
    from pykclient.consumer.fetch_state import FetchPosition
    from pykclient.consumer.request_future import RequestFuture
    from pykclient.network.client_request import ClientResponse
    from pykclient.protocol.messages.fetch import FetchResponse

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


class FetchRequestManager:
    """Builds fetch requests, with at most one in flight per node, and puts the responses into ``fetch_buffer``.

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
        self._metrics_manager = metrics_manager
        self.pending: list[UnsentRequest] = []  # for the next poll
        self._session_handlers: dict[int, FetchSessionHandler] = {}
        self._nodes_with_pending_fetch_requests: set[int] = set()
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
        nodes: list[Node] = []
        for node_id in subscriptions.fetch_node_ids():
            if node_id in self._nodes_with_pending_fetch_requests or node_id in self.resting_nodes:
                continue
            if node_id == NO_NODE:
                is_all_busy = False
                self._log.debug("Requesting metadata, as a partition to fetch has no leader")
                self._metadata.request_update(False)
            elif not self._has_buffered(node_id):
                is_all_busy = False
                node = self._available_node(node_id)
                if node is not None:
                    nodes.append(node)
        for node in nodes:
            data = self._build(node.id)
            renewal = self._renewal(node.id, data) if data.is_repeatable else None
            self._create(node, data, self._on_success, self._on_failure, renewal)
        if is_all_busy:
            self._all_busy_at = changes
        return len(nodes)

    def _create(
        self,
        node: Node,
        data: FetchRequestData,
        on_success: Callable[[Node, FetchRequestData, ClientResponse], object],
        on_failure: Callable[[Node, FetchRequestData, Exception], object],
        renewal: StandingFetch | None = None,
    ) -> RequestFuture[ClientResponse]:
        self._nodes_with_pending_fetch_requests.add(node.id)
        builder = FetchRequestBuilder(self._config, data, renewal)
        request = UnsentRequest(builder, node)
        request.future.add_listener(partial(on_success, node, data), partial(on_failure, node, data))
        self.pending.append(request)
        self._client.managers.poll_soon()
        return request.future

    def _renewal(self, node_id: int, data: FetchRequestData) -> StandingFetch:
        is_wanted = partial(self._is_wanted_again, node_id, self._metadata.update_version)
        handler = self._session_handlers[node_id]
        return StandingFetch(FetchRequestBuilder(self._config, data).build, handler, self._metrics_manager, is_wanted)

    def _is_wanted_again(self, node_id: int, metadata_version: int) -> bool:
        """Return whether the next round of a poll would send the same request to this node again.

        Nothing can be buffered for a node with a request in flight, and other calls do not fetch.
        """
        return (
            self._client.awaits_records
            and metadata_version == self._metadata.update_version
            and self._subscriptions.is_fetched_as_before(node_id)
            and not self._sessions_end
        )

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
            return handler.build_changes(
                {tp: None if at is None else self._partition_data(at) for tp, at in changes.items()}
            )
        wanted = self._subscriptions.fetchable_partitions_of(node_id)
        return handler.build({tp: self._partition_data(at) for tp, at in wanted.items()})

    def _partition_data(self, position: FetchPosition) -> PartitionData:
        offset, _, leader, topic_id = position
        epoch = leader.epoch
        # Without the call of PartitionData.__new__, which is Python code.
        return tuple.__new__(
            PartitionData,
            (topic_id or ZERO_UUID, offset, INVALID_LOG_START_OFFSET, self._config.fetch_size, epoch, None),
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
            if node_id in self._nodes_with_pending_fetch_requests:
                node = Node(COORDINATOR_ID_BASE - node_id, node.host, node.port)
            futures.append(self._create(node, handler.build({}), self._on_close_success, self._on_close_failure))
        return futures

    # --- responses -------------------------------------------------------------------------------------------------

    def _on_success(self, node: Node, data: FetchRequestData, response: ClientResponse) -> None:
        """Buffer the fetched data, one CompletedFetch per partition."""
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
            for tp, partition_data in partitions.items():
                requested = data.session_partitions[tp]  # the session handler has checked that it was requested
                if partition_data.error_code in _LEADER_MOVED and self._is_of_present_topic(tp, requested):
                    hint = partition_data.current_leader
                    if hint.leader_id != -1 and hint.leader_epoch != -1:
                        moved[tp] = LeaderIdAndEpoch(hint.leader_id, hint.leader_epoch)
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
            self._is_answered(node)

    def _is_answered(self, node: Node) -> None:
        """Note that no request to ``node`` is in flight any more."""
        self._all_busy_at = None
        self._nodes_with_pending_fetch_requests.discard(node.id)

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

    def _on_failure(self, node: Node, _data: FetchRequestData, error: Exception) -> None:
        """Handle a failed request: start a new session, and read its partitions from their leaders."""
        if isinstance(error, UnsupportedVersionError):
            # Retrying cannot help. Without an error (as in Java) the topic would look empty.
            self.unsupported = UnsupportedVersionError(f"cannot read from {node.host}:{node.port}: {error}")
        try:
            handler = self._session_handlers[node.id]
            handler.handle_error(error)
            for tp in handler.session_topic_partitions():
                self._subscriptions.clear_preferred_read_replica(tp)
        finally:
            self._is_answered(node)

    def _on_close_success(self, node: Node, data: FetchRequestData, _response: ClientResponse) -> None:
        self._is_answered(node)
        self._log.debug("Node %d ended its fetch session (%s)", node.id, data.metadata)

    def _on_close_failure(self, node: Node, data: FetchRequestData, error: Exception) -> None:
        self._is_answered(node)
        self._log.debug("Node %d keeps its fetch session (%s) for a while: %s", node.id, data.metadata, error)

    def raise_unsupported(self) -> None:
        """Raise UnsupportedVersionError, once, if a node is too old to fetch from."""
        error, self.unsupported = self.unsupported, None
        if error is not None:
            raise error

    def reset(self) -> None:
        """Drop all requests, sessions and buffered data after an exception that may have struck anywhere."""
        self._fetch_buffer.reset()
        self.pending = []
        self._all_busy_at = None
        self._nodes_with_pending_fetch_requests = set()
        self._session_handlers = {}
        self._last_buffered = {}
