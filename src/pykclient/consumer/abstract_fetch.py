"""What to fetch from whom, and what the answers mean (Java: AbstractFetch)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.completed_fetch import CompletedFetch
from pykclient.consumer.fetch_buffer import FetchBuffer
from pykclient.consumer.fetch_metrics import FetchMetricsAggregator
from pykclient.consumer.fetch_request_builder import FetchRequestBuilder
from pykclient.consumer.fetch_session_handler import FetchRequestData, FetchSessionHandler, PartitionData
from pykclient.consumer.fetch_state import NO_NODE
from pykclient.consumer.fetch_utils import request_metadata_update
from pykclient.consumer.offsets_for_leader_epoch_client import can_validate
from pykclient.errors import (
    FencedLeaderEpochError,
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    IllegalStateError,
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
from pykclient.network.metadata import LeaderIdAndEpoch
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.fetch_config import FetchConfig
    from pykclient.consumer.fetch_metrics import FetchMetricsManager
    from pykclient.consumer.fetch_parts import FetchParts
    from pykclient.consumer.fetch_state import FetchPosition
    from pykclient.network.client_request import ClientResponse
    from pykclient.protocol.messages.fetch import FetchResponse

INVALID_LOG_START_OFFSET = -1

_LEADER_MOVED = frozenset((NotLeaderOrFollowerError.code, FencedLeaderEpochError.code))
#: A request that begins a new session follows at once.
_SESSION_LOST = frozenset((FetchSessionIdNotFoundError.code, InvalidFetchSessionEpochError.code))
#: After these the same position is fetched again.
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


class AbstractFetch:
    """Builds fetch requests, at most one on its way per node, and buffers the answers.

    Subclasses send, and say which nodes cannot be sent to. Thread: application.
    """

    def __init__(
        self,
        parts: FetchParts,
        fetch_config: FetchConfig,
        fetch_buffer: FetchBuffer,
        metrics_manager: FetchMetricsManager,
    ) -> None:
        self._log = parts.log_context.logger(__name__)
        self._completed_fetch_log = parts.log_context.logger(CompletedFetch.__module__)
        self._log_context = parts.log_context
        self._metadata = parts.metadata
        self._subscriptions = parts.subscriptions
        self._clock = parts.clock
        self._api_versions = parts.api_versions
        self._config = fetch_config
        self._fetch_buffer = fetch_buffer
        self._metrics_manager = metrics_manager
        self._session_handlers: dict[int, FetchSessionHandler] = {}
        self._nodes_with_pending_fetch_requests: set[int] = set()
        # Nodes that answered with errors and nothing else: until when they are left in peace, and the metadata then.
        self._resting_nodes: dict[int, tuple[int, int]] = {}
        self._last_buffered: dict[int, CompletedFetch] = {}  # by node id; see _has_buffered
        self._checked_replicas = (-1, -1)
        self._sessions_end = False
        self._unsupported: UnsupportedVersionError | None = None

    def is_unavailable(self, node: Node) -> bool:
        """Whether a request to ``node`` would fail at once, as its connection was lost a moment ago."""
        raise NotImplementedError

    def maybe_throw_auth_failure(self, node: Node) -> None:
        """Raise the error, if authentication with ``node`` failed."""
        raise NotImplementedError

    def has_completed_fetches(self) -> bool:
        return not self._fetch_buffer.is_empty

    def has_available_fetches(self) -> bool:
        """Whether there is something buffered that ``poll`` would return, or an error that it would raise."""
        return self._unsupported is not None or self._fetch_buffer.has_completed_fetches(
            lambda fetch: self._subscriptions.is_fetchable(fetch.partition)
        )

    # --- requests --------------------------------------------------------------------------------------------------

    def prepare_fetch_requests(self) -> dict[Node, FetchRequestData]:
        """What to send now, by node; nodes with a request on its way or with something buffered are left in peace."""
        subscriptions = self._subscriptions
        self._metrics_manager.maybe_update_assignment(subscriptions)
        if subscriptions.has_leases:
            subscriptions.expire_preferred_read_replicas(self._clock.now_ms())
            self._drop_preferred_read_replicas_that_are_gone()
        if self._resting_nodes:
            self._wake_nodes(self._clock.now_ms())
        # All nodes before the first request: to build one moves its session on, so it must be sent, and an error of
        # another node would throw it away.
        nodes: list[Node] = []
        for node_id in subscriptions.fetch_node_ids():
            if node_id in self._nodes_with_pending_fetch_requests or node_id in self._resting_nodes:
                continue
            if node_id == NO_NODE:
                self._log.debug("Requesting metadata, as a partition to fetch has no leader")
                self._metadata.request_update(False)
            elif not self._has_buffered(node_id):
                node = self._available_node(node_id)
                if node is not None:
                    nodes.append(node)
        return {node: self._build(node.id) for node in nodes}

    def _has_buffered(self, node_id: int) -> bool:
        """Whether something is buffered of partitions that are to be fetched from this node.

        Then the others wait, too. A request would leave the buffered ones out, so they would drop out of the broker's
        session and come back a moment later.
        """
        # What came last is handed out last, so it answers for all polls until then, without a walk over the buffer.
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

    @property
    def has_resting_nodes(self) -> bool:
        """Whether a node is left in peace for a backoff, which nothing that arrives may end."""
        return bool(self._resting_nodes)

    def _wake_nodes(self, now_ms: int) -> None:
        version = self._metadata.update_version
        self._resting_nodes = {
            node_id: (until_ms, then)
            for node_id, (until_ms, then) in self._resting_nodes.items()
            if now_ms < until_ms and version == then
        }

    def _let_rest(self, node_id: int) -> None:
        """Ask it again when there is new metadata, or after a backoff.

        It answers at once as long as a partition has an error, so that without this one request would follow on the
        other until the metadata has come (as Java's do).
        """
        until_ms = self._clock.now_ms() + self._config.retry_backoff_ms
        self._resting_nodes[node_id] = (until_ms, self._metadata.update_version)

    def _available_node(self, node_id: int) -> Node | None:
        """The node, unless a request to it would fail at once. Raises the error of a failed authentication."""
        node = self._metadata.fetch().node_by_id(node_id)
        if node is None:
            # Gone from the metadata, but no new leader is known yet.
            node = self._subscriptions.leader_by_position(node_id)
        if node is None:
            return None
        if self.is_unavailable(node):
            self.maybe_throw_auth_failure(node)
            return None
        return node

    def _build(self, node_id: int) -> FetchRequestData:
        """Return the next request to ``node_id``: everything in a new session, the changes in one that exists."""
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
        return PartitionData(
            position.topic_id or ZERO_UUID,
            position.offset,
            INVALID_LOG_START_OFFSET,
            self._config.fetch_size,
            position.current_leader.epoch,
        )

    def _drop_preferred_read_replicas_that_are_gone(self) -> None:
        """Go back to the leader where the replica that it named is offline or not in the metadata."""
        checked = (self._subscriptions.lease_id, self._metadata.update_version)
        if checked == self._checked_replicas:
            return
        self._checked_replicas = checked
        cluster = self._metadata.fetch()
        for tp, node_id in self._subscriptions.leased_partitions():
            if cluster.node_if_online(tp, node_id) is None:
                self._log.debug("Not reading %s from replica %d, which is offline or unknown", tp, node_id)
                request_metadata_update(self._metadata, self._subscriptions, tp)

    def prepare_close_fetch_session_requests(self) -> dict[Node, FetchRequestData]:
        """Requests that end the sessions, so that brokers have room for others."""
        self._sessions_end = True
        cluster = self._metadata.fetch()
        requests: dict[Node, FetchRequestData] = {}
        for node_id, handler in self._session_handlers.items():
            handler.notify_close()
            node = cluster.node_by_id(node_id)
            if node is not None and not self.is_unavailable(node):
                requests[node] = handler.build({})
        return requests

    def create_fetch_request(self, node: Node, data: FetchRequestData) -> FetchRequestBuilder:
        """The request for ``data``; from now on ``node`` is pending."""
        self._nodes_with_pending_fetch_requests.add(node.id)
        return FetchRequestBuilder(self._config, data)

    # --- answers ---------------------------------------------------------------------------------------------------

    def handle_fetch_success(self, node: Node, data: FetchRequestData, response: ClientResponse) -> None:
        """Buffer what the answer brought, one CompletedFetch per partition."""
        try:
            if self._sessions_end:
                return  # the answer to a fetch that was under way: its session is at another point already
            handler = self._session_handlers[node.id]
            body: FetchResponse = response.response_body
            partitions = handler.handle_response(body, response.api_version)
            if partitions is None:
                if body.error_code == FetchSessionTopicIdError.code:
                    self._metadata.request_update(False)
                if body.error_code not in _SESSION_LOST:
                    self._let_rest(node.id)
                return
            aggregator = FetchMetricsAggregator(self._metrics_manager, partitions)
            moved: dict[TopicPartition, LeaderIdAndEpoch] = {}
            for tp, partition_data in partitions.items():
                requested = data.session_partitions.get(tp)
                if requested is None:
                    raise IllegalStateError(f"node {node.id} answered for {tp}, which was not asked for: {data}")
                if partition_data.error_code in _LEADER_MOVED and self._is_of_present_topic(tp, requested):
                    hint = partition_data.current_leader
                    if hint.leader_id != -1 and hint.leader_epoch != -1:
                        moved[tp] = LeaderIdAndEpoch(hint.leader_id, hint.leader_epoch)
                self._fetch_buffer.add(
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
            if moved:
                self._update_leaders(moved, body)
            codes = {data.error_code for tp, data in partitions.items() if tp not in moved}
            if codes and codes <= _RETRIED:
                self._let_rest(node.id)
            self._metrics_manager.record_latency(response.destination, response.request_latency_ms)
        finally:
            self._nodes_with_pending_fetch_requests.discard(node.id)

    def _is_of_present_topic(self, tp: TopicPartition, requested: PartitionData) -> bool:
        """Return False if the topic was created again since the request: its leader epochs began anew."""
        topic_id = self._metadata.topic_ids.get(tp.topic, ZERO_UUID)
        return not topic_id.int or not requested.topic_id.int or topic_id == requested.topic_id

    def _update_leaders(self, moved: dict[TopicPartition, LeaderIdAndEpoch], body: FetchResponse) -> None:
        """Take in the leaders that the answer hints at, which saves asking for metadata (KIP-951)."""
        nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in body.node_endpoints]
        for tp in self._metadata.update_partition_leadership(moved, nodes):
            leader = self._metadata.current_leader(tp)
            self._subscriptions.maybe_validate_position_for_current_leader(
                tp, leader, can_validate=can_validate(self._api_versions, leader.leader)
            )

    def handle_fetch_failure(self, node: Node, error: Exception) -> None:
        """The request failed: begin the session anew, and ask the leaders."""
        if isinstance(error, UnsupportedVersionError):
            # To try again is no use, and to say nothing (as Java does) would look like an empty topic.
            self._unsupported = UnsupportedVersionError(f"cannot read from {node.host}:{node.port}: {error}")
        try:
            handler = self._session_handlers[node.id]
            handler.handle_error(error)
            for tp in handler.session_topic_partitions():
                self._subscriptions.clear_preferred_read_replica(tp)
        finally:
            self._nodes_with_pending_fetch_requests.discard(node.id)

    def handle_close_fetch_session_success(self, node: Node, data: FetchRequestData) -> None:
        self._nodes_with_pending_fetch_requests.discard(node.id)
        self._log.debug("Node %d ended its fetch session (%s)", node.id, data.metadata)

    def handle_close_fetch_session_failure(self, node: Node, data: FetchRequestData, error: Exception) -> None:
        self._nodes_with_pending_fetch_requests.discard(node.id)
        self._log.debug("Node %d keeps its fetch session (%s) for a while: %s", node.id, data.metadata, error)

    def raise_unsupported(self) -> None:
        """Raise UnsupportedVersionError, once, if a node was found too old to be read from."""
        error, self._unsupported = self._unsupported, None
        if error is not None:
            raise error

    def reset(self) -> None:
        """Begin anew after an exception has struck in the middle of anything: without requests, sessions and buffer."""
        self._fetch_buffer.reset()
        self._nodes_with_pending_fetch_requests = set()
        self._session_handlers = {}
        self._last_buffered = {}

    def close_buffer(self) -> None:
        """Let go of what was fetched and not handed out."""
        self._fetch_buffer.close()
