"""Keeps metadata fresh through the network client (Java: MetadataUpdater, NetworkClient.DefaultMetadataUpdater)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.errors import (
    AuthenticationError,
    InvalidTopicError,
    KafkaError,
    RetriableError,
    UnsupportedVersionError,
)
from pykclient.log_context import LogContext
from pykclient.network.failures import REMINDER_INTERVAL_MS, shown_node
from pykclient.network.metadata import Cluster, Metadata, MetadataRequestAndVersion
from pykclient.types import Node

if TYPE_CHECKING:
    from pykclient.network.client_request import RequestBuilder
    from pykclient.network.kafka_client import LeastLoadedNode
    from pykclient.protocol.message import Response
    from pykclient.protocol.messages.metadata import MetadataResponse

_LISTENER_NOT_FOUND = errors.ListenerNotFoundError.code
_REBOOTSTRAP_REQUIRED = errors.RebootstrapRequiredError.code

#: The first version whose leader epochs are reliable. Before it, epochs lagged during reassignments (Kafka 2.4).
_RELIABLE_EPOCHS_FROM = 9


class MetadataClient(Protocol):
    """The part of a NetworkClient that sends its updater's requests."""

    @property
    def reconnect_backoff_ms(self) -> int: ...

    def least_loaded_node(self, now_ms: int) -> LeastLoadedNode: ...

    def can_send_request(self, node_id: str, now_ms: int) -> bool: ...

    def is_any_node_connecting(self, now_ms: int) -> bool: ...

    def can_connect(self, node: Node, now_ms: int) -> bool: ...

    def initiate_connect(self, node: Node, now_ms: int) -> None: ...

    def send_internal_metadata_request(self, builder: RequestBuilder, node_id: str, now_ms: int) -> bool: ...


class MetadataUpdater:
    """The source of the network client's nodes. This one has a fixed set of nodes that the owner replaces.

    Thread: owner, but for ``quiet_until_ms``, which any thread may set.
    """

    bootstrap_addresses: Sequence[tuple[str, int]] = ()
    #: The time before which no request is due, and the network client need not ask.
    quiet_until_ms: int = FOREVER_MS
    #: The time at which the wait for metadata started, or None. Without a wait, no rebootstrap is needed.
    attempt_start_ms: int | None = None

    def __init__(self, nodes: Sequence[Node] = ()) -> None:
        self.set_nodes(nodes)

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        self._cluster = Cluster(None, nodes)

    def fetch_cluster(self) -> Cluster:
        return self._cluster

    def is_update_due(self, now_ms: int) -> bool:  # noqa: ARG002 - for subclasses, here and below
        """Return True if a metadata request must be sent before all other requests."""
        return False

    def maybe_update(self, now_ms: int) -> int:  # noqa: ARG002
        """Send a request if one is due. Return how many milliseconds may pass before the next call."""
        return FOREVER_MS

    def handle_server_disconnect(self, now_ms: int, node_id: str, error: AuthenticationError | None) -> None:
        """Note that the connection to a node was lost. The owner of fixed nodes sees that in the responses."""

    def handle_failed_request(self, now_ms: int, error: KafkaError | None) -> None:
        """Note that a request failed; without an error, because its connection was lost."""

    def handle_successful_response(self, version: int, now_ms: int, response: Response) -> None:
        """Take the response to a request."""

    def needs_rebootstrap(self, now_ms: int, trigger_ms: int) -> bool:  # noqa: ARG002
        """Return True if no metadata arrived for ``trigger_ms``, or if a broker asked for a rebootstrap (KIP-1102)."""
        return False

    def rebootstrap(self, now_ms: int) -> None:
        """Start from the bootstrap servers again."""

    def reset(self) -> None:
        """Forget the request in flight, because its connection was dropped."""

    def close(self) -> None:
        """Refuse further updates."""


#: A topic's transient errors are not logged for this long: creating it or electing a leader takes less.
_GRACE_MS = 2000

#: The most topics that a log line names.
_MOST_NAMED = 10

_SENTENCES: dict[type[KafkaError], tuple[str, str]] = {
    errors.UnknownTopicOrPartitionError: ("Topic {} does not exist (yet)", "Topics {} do not exist (yet)"),
    errors.LeaderNotAvailableError: ("Topic {} has no leader yet", "Topics {} have no leaders yet"),
    errors.TopicAuthorizationError: ("Not authorized to access topic {}", "Not authorized to access topics {}"),
    InvalidTopicError: ("The brokers refuse {} as the name of a topic", "The brokers refuse {} as names of topics"),
}


class _TopicError:
    def __init__(self, kind: type[KafkaError], since_ms: int) -> None:
        self.kind = kind
        self.since_ms = since_ms
        self.told_ms: int | None = None


class TopicErrorLog:
    """Decides which topic errors to log: persistent ones, at most once a minute. Thread: owner."""

    def __init__(self) -> None:
        self._errors: dict[str, _TopicError] = {}

    def news(self, response: MetadataResponse, now_ms: int) -> list[str]:
        """Return a sentence for each kind of error that is due to be logged."""
        due: dict[tuple[type[KafkaError], int], list[str]] = {}
        for topic in response.topics:
            name = topic.name or str(topic.topic_id)
            error = errors.for_code(topic.error_code)
            if error is None:
                self._errors.pop(name, None)
                continue
            known = self._errors.get(name)
            if known is None or known.kind is not type(error):
                known = self._errors[name] = _TopicError(type(error), now_ms)
            if known.told_ms is not None:
                is_due = now_ms - known.told_ms >= REMINDER_INTERVAL_MS
            else:
                is_due = now_ms - known.since_ms >= _GRACE_MS or not isinstance(error, errors.RetriableError)
            if is_due:
                lasted_ms = 0 if known.told_ms is None else now_ms - known.since_ms
                known.told_ms = now_ms
                due.setdefault((known.kind, lasted_ms // 1000), []).append(name)
        return [_sentence(kind, names, seconds) for (kind, seconds), names in due.items()]


def _sentence(kind: type[KafkaError], names: list[str], seconds: int) -> str:
    default = f"No metadata of topic {{}}: {kind.__name__}", f"No metadata of topics {{}}: {kind.__name__}"
    one, several = _SENTENCES.get(kind, default)
    listed = ", ".join(f"'{name}'" for name in names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        listed += f" and {len(names) - _MOST_NAMED} more"
    sentence = (one if len(names) == 1 else several).format(listed)
    return f"{sentence}, for {seconds} s now" if seconds else sentence


class DefaultMetadataUpdater(MetadataUpdater):
    """Asks the least loaded node for metadata whenever an update of ``Metadata`` is due. Thread: owner."""

    def __init__(
        self,
        metadata: Metadata,
        client: MetadataClient,
        request_timeout_ms: int,
        rebootstrap: bool,
        log_context: LogContext,
    ) -> None:
        self._metadata = metadata
        self._client = client
        self._request_timeout_ms = request_timeout_ms
        self._rebootstrap = rebootstrap  # metadata.recovery.strategy=rebootstrap
        self._log = log_context.logger(__name__)
        self._in_progress: MetadataRequestAndVersion | None = None
        self._topic_errors = TopicErrorLog()

    def fetch_cluster(self) -> Cluster:
        return self._metadata.fetch()

    def is_update_due(self, now_ms: int) -> bool:
        return self._in_progress is None and self._metadata.time_to_next_update(now_ms) == 0

    def maybe_update(self, now_ms: int) -> int:
        wait_ms = self._metadata.time_to_next_update(now_ms)
        if self._in_progress is not None:
            wait_ms = max(wait_ms, self._request_timeout_ms)
        if wait_ms > 0:
            return wait_ms
        if self.attempt_start_ms is None:
            self.attempt_start_ms = now_ms
        # The timeouts below and the choice of the node depend on each other: every change that makes least_loaded_node
        # return another node must end the poll.
        candidate = self._client.least_loaded_node(now_ms)
        if (
            self._rebootstrap
            and not candidate.has_node_available_or_connection_ready
            and not self._metadata.fetch().is_bootstrap_configured  # otherwise there is nothing to forget
        ):
            self.rebootstrap(now_ms)
            candidate = self._client.least_loaded_node(now_ms)
        if candidate.node is None:
            self._log.debug("No node is available for a metadata request")
            return self._client.reconnect_backoff_ms
        return self._maybe_update_from(candidate.node, now_ms)

    def _maybe_update_from(self, node: Node, now_ms: int) -> int:
        client = self._client
        if client.can_send_request(node.id_string, now_ms):
            return self._send_request(node, now_ms)
        # While any connection is being made, wait for it instead of connecting to one node after another.
        if client.is_any_node_connecting(now_ms):
            return client.reconnect_backoff_ms
        if client.can_connect(node, now_ms):
            self._log.debug("Connecting to %s to ask for metadata", shown_node(node))
            client.initiate_connect(node, now_ms)
            return client.reconnect_backoff_ms
        # The node is connected, but its queue is full or its API versions are not known yet. An event will end the
        # wait.
        return FOREVER_MS

    def _send_request(self, node: Node, now_ms: int) -> int:
        request = self._metadata.new_metadata_request_and_version(now_ms)
        self._log.debug("Asking %s for metadata", shown_node(node))
        sent = False
        # Set it before the request is sent, because a connection that breaks while sending ends the request. Reset it
        # after any exception: a request in progress that never completes would block all further metadata requests.
        self._in_progress = request
        try:
            sent = self._client.send_internal_metadata_request(request.request_builder, node.id_string, now_ms)
        finally:
            if not sent:
                self._in_progress = None
        return self._request_timeout_ms if sent else self._client.reconnect_backoff_ms

    def handle_server_disconnect(self, now_ms: int, node_id: str, error: AuthenticationError | None) -> None:
        cluster = self._metadata.fetch()
        if cluster.is_bootstrap_configured:
            node = cluster.node_by_id(int(node_id))
            if node is not None:
                self._log.debug("Disconnected from %s before it sent metadata", shown_node(node))
        if self.is_update_due(now_ms):
            # A request is due and cannot be sent, so back off as after a failed request.
            self.handle_failed_request(now_ms, None)
        if error is not None:
            self._metadata.fatal_error(error)
        self._metadata.request_update(False)  # the node may have been removed from the cluster

    def handle_failed_request(self, now_ms: int, error: KafkaError | None) -> None:
        if isinstance(error, UnsupportedVersionError) and self._metadata.fetch().is_bootstrap_configured:
            error = UnsupportedVersionError(
                f"{error}: it does not serve this client. Check the addresses that the client starts from; brokers and "
                "controllers have listeners of their own, and serve different requests"
            )
        if error is not None:
            self._metadata.fatal_error(error)
        self._metadata.failed_update(now_ms)
        self._in_progress = None

    def handle_successful_response(self, version: int, now_ms: int, response: Response) -> None:
        try:
            metadata = self._metadata.read_response(response)
        except KafkaError as error:
            self.handle_failed_request(now_ms, None if isinstance(error, RetriableError) else error)
            return
        self._apply(version, now_ms, metadata)

    def _apply(self, version: int, now_ms: int, response: MetadataResponse) -> None:
        in_progress, self._in_progress = self._in_progress, None
        self._log_problems(response, now_ms)
        if self._rebootstrap and response.error_code == _REBOOTSTRAP_REQUIRED:
            self._log.info("A broker asks this client to start again from the bootstrap servers")
            self.attempt_start_ms = -FOREVER_MS
        elif not response.brokers or in_progress is None:
            # A broker that is starting does not know any brokers yet.
            self._metadata.failed_update(now_ms)
        else:
            if version < _RELIABLE_EPOCHS_FROM:
                for topic in response.topics:
                    for partition in topic.partitions:
                        partition.leader_epoch = -1
            self.attempt_start_ms = None
            self._metadata.update(in_progress.request_version, response, in_progress.is_partial_update, now_ms)

    def _log_problems(self, response: MetadataResponse, now_ms: int) -> None:
        missing = [
            f"{topic.name}-{partition.partition_index}"
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code == _LISTENER_NOT_FOUND
        ]
        if missing:
            self._log.warning(
                "The leaders of %d partitions have no listener of the kind that this client uses: %s",
                len(missing),
                ", ".join(missing[:_MOST_NAMED]),
            )
        for sentence in self._topic_errors.news(response, now_ms):
            self._log.warning("%s", sentence)

    def needs_rebootstrap(self, now_ms: int, trigger_ms: int) -> bool:
        return self.attempt_start_ms is not None and now_ms - self.attempt_start_ms > trigger_ms

    def rebootstrap(self, now_ms: int) -> None:
        self._metadata.rebootstrap()
        self.attempt_start_ms = now_ms

    def reset(self) -> None:
        self._in_progress = None

    def close(self) -> None:
        self._metadata.close()
