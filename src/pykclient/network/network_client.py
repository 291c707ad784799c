"""Send requests to nodes and match their responses, over connections that the client opens (Java: NetworkClient)."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient import errors
from pykclient.clock import FOREVER_MS, Clock
from pykclient.errors import (
    AuthenticationError,
    DisconnectError,
    IllegalStateError,
    KafkaError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    UnsupportedVersionError,
)
from pykclient.log_context import LogContext
from pykclient.metrics import Sensor, Tally
from pykclient.network import channel_state
from pykclient.network.channel_state import ChannelState
from pykclient.network.client_request import (
    ClientRequest,
    ClientResponse,
    InFlightRequest,
    InFlightRequests,
    Repetitions,
    RequestBuilder,
    Shortcut,
)
from pykclient.network.client_telemetry import ClientTelemetry
from pykclient.network.cluster_connection_states import (
    ApiVersions,
    BackoffConfig,
    ClusterConnectionStates,
    ConnectionFailures,
    api_versions_request,
    explain_connections,
    fallback_version,
    node_api_versions,
)
from pykclient.network.failures import (
    cause_of,
    raise_if_of_signal_handler,
    reason_of,
    setup_failure,
    shown_node,
)
from pykclient.network.frames import Frame, NetworkSend
from pykclient.network.host_resolver import DefaultHostResolver, HostResolver
from pykclient.network.kafka_client import LeastLoadedNode
from pykclient.network.metadata import Metadata
from pykclient.network.metadata_updater import DefaultMetadataUpdater, MetadataUpdater
from pykclient.network.selectable import USE_DEFAULT_BUFFER_SIZE, Selectable, SocketAddress, check_address
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.api_versions import ApiVersionsResponse
from pykclient.types import Node

if TYPE_CHECKING:
    from pykclient.network.authenticator.sasl_client import Login


class NetworkClientConfig(NamedTuple):
    """The settings of a network client. Times are in milliseconds.

    ``rebootstrap_trigger_ms`` is None if metadata.recovery.strategy is none. ``throttle_time_sensor`` records the
    throttle time of each response. ``telemetry`` is None if no metrics are pushed.
    """

    client_id: str
    max_in_flight_requests_per_connection: int = 100
    request_timeout_ms: int = 30_000
    backoff: BackoffConfig = BackoffConfig(50, 1_000, 10_000, 30_000)
    socket_send_buffer: int = USE_DEFAULT_BUFFER_SIZE
    socket_receive_buffer: int = USE_DEFAULT_BUFFER_SIZE
    discover_broker_versions: bool = True
    rebootstrap_trigger_ms: int | None = 300_000
    host_resolver: HostResolver | None = None
    throttle_time_sensor: Sensor | None = None
    rng: random.Random | None = None
    #: The proxy for messages; None without one.
    through: str | None = None
    telemetry: ClientTelemetry | None = None
    login: Login | None = None


def choose(
    nodes: Sequence[Node],
    states: ClusterConnectionStates,
    selector: Selectable,
    in_flight: InFlightRequests,
    now_ms: int,
) -> LeastLoadedNode:
    """Return the connected node with the fewest requests in flight, or the best one to wait for.

    Of equal nodes, return the first. If no connected node can take a request, return one that is connecting. If there
    is none, return the node whose last connection attempt is oldest, among those that may be connected to now. As a
    last resort, return a node whose host lookup is slow.
    """
    least = FOREVER_MS
    ready: Node | None = None
    connecting: Node | None = None
    connectable: Node | None = None
    slow: Node | None = None
    any_ready = False
    for node in nodes:
        id = node.id_string
        is_ready = states.is_ready(id, now_ms) and selector.is_channel_ready(id)
        any_ready = any_ready or is_ready
        if is_ready and in_flight.can_send_more(id):
            count = in_flight.count(id)
            if not count:
                return LeastLoadedNode(node, True)
            if count < least:
                least, ready = count, node
        elif states.is_lookup_slow(id, now_ms):
            slow = node
        elif states.is_preparing_connection(id):
            connecting = node
        elif states.can_connect(id, now_ms) and (
            connectable is None
            or states.last_connect_attempt_ms(connectable.id_string) > states.last_connect_attempt_ms(id)
        ):
            connectable = node
    return LeastLoadedNode(ready or connecting or connectable or slow, any_ready)


#: The interval at which throttle times of zero are recorded together.
_INTERVAL_MS: Final = 100

#: With earlier versions, brokers wait themselves before they respond. APIs that are not listed never require waiting.
_CLIENT_THROTTLES_FROM: Final[dict[int, int]] = {
    ApiKeys.PRODUCE: 6,
    ApiKeys.FETCH: 8,
    ApiKeys.LIST_OFFSETS: 3,
    ApiKeys.METADATA: 6,
    ApiKeys.OFFSET_COMMIT: 4,
    ApiKeys.OFFSET_FETCH: 4,
    ApiKeys.FIND_COORDINATOR: 2,
    ApiKeys.JOIN_GROUP: 3,
    ApiKeys.HEARTBEAT: 2,
    ApiKeys.LEAVE_GROUP: 2,
    ApiKeys.SYNC_GROUP: 2,
    ApiKeys.DESCRIBE_GROUPS: 2,
    ApiKeys.LIST_GROUPS: 2,
    ApiKeys.API_VERSIONS: 2,
    ApiKeys.CREATE_TOPICS: 3,
    ApiKeys.DELETE_TOPICS: 2,
    ApiKeys.DELETE_RECORDS: 1,
    ApiKeys.INIT_PRODUCER_ID: 1,
    ApiKeys.ADD_PARTITIONS_TO_TXN: 1,
    ApiKeys.ADD_OFFSETS_TO_TXN: 1,
    ApiKeys.END_TXN: 1,
    ApiKeys.TXN_OFFSET_COMMIT: 1,
    ApiKeys.DESCRIBE_ACLS: 1,
    ApiKeys.CREATE_ACLS: 1,
    ApiKeys.DELETE_ACLS: 1,
    ApiKeys.DESCRIBE_CONFIGS: 2,
    ApiKeys.ALTER_CONFIGS: 1,
    ApiKeys.ALTER_REPLICA_LOG_DIRS: 1,
    ApiKeys.DESCRIBE_LOG_DIRS: 1,
    ApiKeys.CREATE_PARTITIONS: 1,
    ApiKeys.CREATE_DELEGATION_TOKEN: 1,
    ApiKeys.RENEW_DELEGATION_TOKEN: 1,
    ApiKeys.EXPIRE_DELEGATION_TOKEN: 1,
    ApiKeys.DESCRIBE_DELEGATION_TOKEN: 1,
    ApiKeys.DELETE_GROUPS: 1,
    ApiKeys.ELECT_LEADERS: 0,
    ApiKeys.INCREMENTAL_ALTER_CONFIGS: 0,
    ApiKeys.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKeys.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKeys.OFFSET_DELETE: 0,
    ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKeys.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKeys.UNREGISTER_BROKER: 0,
    ApiKeys.DESCRIBE_TOPIC_PARTITIONS: 0,
}


def should_client_throttle(api_key: int, version: int) -> bool:
    """Return whether the client must wait for the response's throttle time."""
    first = _CLIENT_THROTTLES_FROM.get(api_key)
    return first is not None and version >= first


class ThrottleTimes:
    """Records the throttle times of responses in a sensor, those of zero together. Thread: owner."""

    def __init__(self, sensor: Sensor | None) -> None:
        self._sensor = sensor
        #: The number of times of zero that are not recorded yet. The owner adds to it, unless ``due_ms`` has passed.
        self.zeros = 0
        self.due_ms = 0

    def record(self, throttle_ms: int, now_ms: int) -> None:
        """Record a throttle time, after the collected zeros."""
        zeros, self.zeros = self.zeros, 0
        self.due_ms = now_ms + _INTERVAL_MS
        if self._sensor is None:
            return
        tally = Tally.of(0)
        tally.count = zeros
        self._sensor.record_all(tally, now_ms)
        self._sensor.record(throttle_ms, now_ms)


_ACTIVE, _CLOSING, _CLOSED = "ACTIVE", "CLOSING", "CLOSED"

#: SASL exchanges use the ids above this, so that their responses cannot be mistaken for others (Java:
#: SaslClientAuthenticator).
_MAX_CORRELATION_ID: Final = (1 << 31) - 1 - 8


class NetworkClient:
    """A ``KafkaClient`` over a ``Selectable``.

    It holds no socket, and reads no clock but the one it is given. It does not trust what a node sends: a frame that
    cannot be the response to the oldest request in flight closes the connection.

    Thread: owner, but for ``wakeup``, ``initiate_close``, ``active``, ``connection_report`` and ``explain``.
    """

    def __init__(
        self,
        config: NetworkClientConfig,
        selector: Selectable,
        metadata: Metadata | MetadataUpdater,
        api_versions: ApiVersions,
        clock: Clock,
        log_context: LogContext,
    ) -> None:
        self._config = config
        self._rng = config.rng or random.Random()
        self._host_resolver = config.host_resolver or DefaultHostResolver()
        self._selector = selector
        self._api_versions = api_versions
        self._clock = clock
        self._log = log_context.logger(__name__)
        self._request_timeout_ms = config.request_timeout_ms
        self._throttle_times = ThrottleTimes(config.throttle_time_sensor)
        self.reconnect_backoff_ms = config.backoff.reconnect_ms
        self._in_flight = InFlightRequests(config.max_in_flight_requests_per_connection)
        self._log_context = log_context
        self._connection_states = self._new_connection_states()
        self._failures = ConnectionFailures()
        self._nodes: dict[str, tuple[Node, str]] = {}  # node id -> node, and the address last tried
        self._nodes_needing_api_versions: dict[str, RequestBuilder] = {}
        self._aborted_sends: list[ClientResponse] = []
        self._correlation_id = 0
        self._state = _ACTIVE
        self._source = metadata  # read directly, as each poll asks when an update is due
        if isinstance(metadata, Metadata):
            metadata = DefaultMetadataUpdater(
                metadata, self, config.request_timeout_ms, config.rebootstrap_trigger_ms is not None, log_context
            )
        self._updater = metadata
        self.telemetry = config.telemetry
        self.login = config.login
        #: Called with the node and the time in ms for each response that was throttled. Thread: owner.
        self.on_throttle: Callable[[Node, int], object] | None = None
        # No request and no attempt to connect times out before this time.
        self._next_timeout_ms = FOREVER_MS
        self.last_io_ms = 0
        self._settled = 0  # the number of responses in the last poll that do not end its wait
        self._found_ready: str | None = None  # the node that ``ready`` has just found ready, if nothing happened since

    def _new_connection_states(self) -> ClusterConnectionStates:
        return ClusterConnectionStates(self._config.backoff, self._log_context, self._rng)

    def end_interrupted_wait(self) -> bool:
        return self._selector.end_interrupted_wait()

    def drop_connections(self) -> None:
        self._selector.drop_connections()
        self._in_flight = InFlightRequests(self._config.max_in_flight_requests_per_connection)
        self._connection_states = self._new_connection_states()
        for node_id in self._nodes:
            self._api_versions.remove(node_id)
        self._nodes_needing_api_versions = {}
        self._aborted_sends = []
        self._found_ready = None
        self._updater.reset()
        if self.telemetry is not None:
            self.telemetry.reset()

    # --- readiness -------------------------------------------------------------------------------------------------

    def is_ready(self, node: Node, now_ms: int) -> bool:
        """Return True if a request can be sent to ``node`` now.

        False while a metadata request is due, because that is sent first.
        """
        if now_ms >= self._source.quiet_until_ms and self._updater.is_update_due(now_ms):
            return False
        return self.can_send_request(node.id_string, now_ms)

    def ready(self, node: Node, now_ms: int) -> bool:
        """Return True if a request can be sent to ``node`` now.

        Else start to connect, unless the backoff forbids it.
        """
        node_id = node.id_string
        is_free = now_ms < self._source.quiet_until_ms or not self._updater.is_update_due(now_ms)
        if is_free and self.can_send_request(node_id, now_ms):
            self._found_ready = node_id
            return True
        if self.can_connect(node, now_ms):
            self.initiate_connect(node, now_ms)
        return False

    def can_send_request(self, node_id: str, now_ms: int) -> bool:
        """Return True if the connection is ready, is not throttled, and has room for another request."""
        return (
            self._connection_states.is_ready(node_id, now_ms)
            and self._selector.is_channel_ready(node_id)
            and self._in_flight.can_send_more(node_id)
        )

    def can_connect(self, node: Node, now_ms: int) -> bool:
        return self._connection_states.can_connect(node.id_string, now_ms)

    def is_any_node_connecting(self, now_ms: int) -> bool:
        """Return True while a connection is being made, except during a slow lookup of the host."""
        states = self._connection_states
        return any(
            states.is_connecting(node.id_string) and not states.is_lookup_slow(node.id_string, now_ms)
            for node in self._updater.fetch_cluster().nodes
        )

    def is_idle(self) -> bool:
        return not (self._in_flight.total or self._aborted_sends or self._connection_states.is_any_connecting)

    def connection_delay_ms(self, node: Node, now_ms: int) -> int:
        return self._connection_states.connection_delay_ms(node.id_string, now_ms)

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        return self._connection_states.poll_delay_ms(node.id_string, now_ms)

    def connection_failed(self, node: Node) -> bool:
        return self._connection_states.is_disconnected(node.id_string)

    def authentication_error(self, node: Node) -> AuthenticationError | None:
        return self._connection_states.authentication_error(node.id_string)

    def has_ready_nodes(self, now_ms: int) -> bool:
        return self._connection_states.has_ready_nodes(now_ms)

    def least_loaded_node(self, now_ms: int) -> LeastLoadedNode:
        """Return the best node for a request that any node can serve.

        Raises:
            IllegalStateError: the cluster has no nodes.
        """
        nodes: Sequence[Node] = self._updater.fetch_cluster().nodes
        if not nodes:
            raise IllegalStateError("there are no nodes in the Kafka cluster")
        first = self._rng.randrange(len(nodes))
        nodes = [*nodes[first:], *nodes[:first]]
        return choose(nodes, self._connection_states, self._selector, self._in_flight, now_ms)

    # --- sending ---------------------------------------------------------------------------------------------------

    def new_client_request(
        self,
        node_id: str,
        request_builder: RequestBuilder,
        created_ms: int,
        expect_response: bool,
        request_timeout_ms: int | None = None,
        callback: Callable[[ClientResponse], None] | None = None,
    ) -> ClientRequest:
        timeout_ms = self._request_timeout_ms if request_timeout_ms is None else request_timeout_ms
        id, client_id = self._next_correlation_id(), self._config.client_id
        return ClientRequest(node_id, request_builder, id, client_id, created_ms, expect_response, timeout_ms, callback)

    def _next_correlation_id(self) -> int:
        correlation_id = self._correlation_id
        self._correlation_id = correlation_id + 1 if correlation_id < _MAX_CORRELATION_ID else 0
        return correlation_id

    def send(self, request: ClientRequest, now_ms: int) -> None:
        """Send a request to its node.

        A request that cannot be built or encoded is not sent: the next poll completes it with a ``build_error``.

        Raises:
            IllegalStateError: the node is not ready.
            DisconnectError: the client is closing.
        """
        if request.destination != self._found_ready and not self.can_send_request(request.destination, now_ms):
            raise IllegalStateError(f"{self._name(request.destination)} is not ready for a request")
        self._do_send(request, False, now_ms)

    def send_internal_metadata_request(self, builder: RequestBuilder, node_id: str, now_ms: int) -> bool:
        """Send a request of the metadata updater, which gets the response. Return False if it could not be built.

        In that case, the updater has already been told of the error.
        """
        return self._do_send(self.new_client_request(node_id, builder, now_ms, True), True, now_ms)

    def _do_send(self, request: ClientRequest, is_internal: bool, now_ms: int) -> bool:
        self._found_ready = None
        if self._state != _ACTIVE:
            raise self._not_active()
        node_id = request.destination
        builder = request.request_builder
        version = builder.latest_allowed_version
        try:
            versions = self._api_versions.get(node_id)
            if versions is not None:  # None: versions are not discovered, or this request discovers them
                version = versions.latest_usable_version(builder.api_key, builder.oldest_allowed_version, version)
            buffers = builder.encode(version, request.correlation_id, request.client_id)
        except Exception as error:  # noqa: BLE001 - a builder may raise anything; only its own request may suffer
            raise_if_of_signal_handler(error)
            self._not_sent(request, is_internal, version, now_ms, error)
            return False
        if self._log.logger.isEnabledFor(logging.DEBUG):
            name = ApiKeys.name_of(builder.api_key)
            self._log.debug("Sending %s v%d, id %d, to %s", name, version, request.correlation_id, self._name(node_id))
        send = NetworkSend(node_id, buffers, request.expect_response)
        self._in_flight.add(InFlightRequest(request, version, is_internal, send, now_ms))
        self._transmit(send, request.request_timeout_ms, now_ms)
        return True

    def _transmit(self, send: NetworkSend, timeout_ms: int, now_ms: int) -> None:
        self._next_timeout_ms = min(self._next_timeout_ms, now_ms + timeout_ms)
        try:
            self._selector.send(send)
        except BaseException as error:
            # An unknown part of the frame has been sent, so the connection can no longer be used. The next poll
            # completes its requests.
            cause = KafkaError(f"sending a request failed: {type(error).__name__}: {error}")
            self._drop(self._aborted_sends, send.destination_id, now_ms, cause)
            raise

    def _not_sent(self, request: ClientRequest, is_internal: bool, version: int, now_ms: int, error: Exception) -> None:
        """Complete a request that could not be built."""
        name = ApiKeys.name_of(request.api_key)
        self._log.debug("Not sending a %s request to %s: %s", name, self._name(request.destination), error)
        if isinstance(error, LocalProtocolError) or not isinstance(error, KafkaError):
            failure = LocalProtocolError(f"the {name} v{version} request could not be encoded: {error}")
            failure.__cause__ = error
            error = failure
        if not is_internal:
            self._aborted_sends.append(
                ClientResponse(
                    request.api_key,
                    version,
                    request.correlation_id,
                    request.callback,
                    request.destination,
                    request.created_ms,
                    now_ms,
                    build_error=error,
                )
            )
        elif request.api_key == ApiKeys.API_VERSIONS:  # without the node's versions, the connection is useless
            self._drop(self._aborted_sends, request.destination, now_ms, error)
        else:
            self._updater.handle_failed_request(now_ms, error)

    # --- polling ---------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        until_ms, selector = now_ms + timeout_ms, self._selector
        while True:
            if (wait_ms := self.begin_poll(timeout_ms, now_ms)) and self._in_flight.repeated:
                self._poll_repeating(wait_ms, now_ms)
            else:
                selector.poll(wait_ms)
            responses = self.end_poll(now_ms := self._clock.now_ms())
            is_over = not self._settled or responses or now_ms >= until_ms or selector.disconnected
            if is_over or selector.connected or self._settled < len(selector.completed_receives):
                return responses
            timeout_ms = until_ms - now_ms

    def _poll_repeating(self, timeout_ms: int, now_ms: int) -> None:
        """Poll, and have the poller repeat requests by itself meanwhile, if it can.

        It sends each request again when its usual response comes, with the next correlation ids, and the wait goes on
        without any Python code.
        """
        requests, first_id = self._in_flight, self._correlation_id
        repeating: list[tuple[InFlightRequest, Callable[[], Repetitions]]] = []
        try:
            for node_id, in_flight in list(requests.repeated.items()):
                if requests.peek_next(node_id) is not in_flight:
                    del requests.repeated[node_id]
                elif requests.count(node_id) == 1 and (request := in_flight.repeatable(first_id, now_ms)) is not None:
                    end = self._selector.repeat(node_id, request)
                    if end is not None:
                        repeating.append((in_flight, end))
            self._selector.poll(timeout_ms)
        finally:
            now_ms = self._clock.now_ms()
            repeats = [in_flight.repeated(end(), first_id, now_ms) for in_flight, end in repeating]
        self._correlation_id = first_id + max(repeats, default=0)

    def begin_poll(self, timeout_ms: int, now_ms: int) -> int:
        self._found_ready = None
        if self._state != _ACTIVE:
            raise self._not_active()
        if self._aborted_sends:
            return 0
        if self._connection_states.lookups:
            self._connect_resolved(now_ms)
        metadata_ms = self._source.quiet_until_ms - now_ms
        if metadata_ms <= 0:
            metadata_ms = self._updater.maybe_update(now_ms)
        wait_ms = timeout_ms if timeout_ms < metadata_ms else metadata_ms
        wait_ms = wait_ms if wait_ms < self._request_timeout_ms else self._request_timeout_ms
        telemetry = self.telemetry
        if telemetry is not None:
            telemetry_ms = telemetry.quiet_until_ms - now_ms
            if telemetry_ms <= 0:
                telemetry_ms = telemetry.poll(self, now_ms)
            wait_ms = wait_ms if wait_ms < telemetry_ms else telemetry_ms
        return 0 if self._aborted_sends else wait_ms  # by maybe_update

    def end_poll(self, now_ms: int) -> list[ClientResponse]:
        selector = self._selector
        self.last_io_ms = now_ms
        responses, self._aborted_sends = self._aborted_sends, []
        self._settled = 0
        try:
            if self._connection_states.lookups:
                self._connect_resolved(now_ms)
            for send in selector.completed_sends:
                if not send.expect_response:
                    responses.append(self._in_flight.complete_sent(send).response(now_ms))
            if selector.completed_receives:
                self._handle_completed_receives(responses, now_ms)
            if selector.disconnected:
                self._handle_disconnections(responses, now_ms)
            if selector.connected:
                self._handle_connections()
            if self._nodes_needing_api_versions:
                self._handle_initiate_api_version_requests(now_ms)
            if now_ms > self._next_timeout_ms:
                self._handle_timeouts(responses, now_ms)
            if self._updater.attempt_start_ms is not None:
                self._handle_rebootstrap(responses, now_ms)
        finally:
            # Complete them even if a handler above raises, for example KeyboardInterrupt. These requests are no longer
            # in flight, so nothing else would complete them, and a producer's partition would stay muted.
            if responses:
                self._complete(responses)
        return responses

    def _complete(self, responses: list[ClientResponse]) -> None:
        for response in responses:
            try:
                if response.callback is not None:
                    response.callback(response)
            except Exception as error:  # noqa: BLE001 - one request's callback must not take down those of the others
                raise_if_of_signal_handler(error)
                self._log.error("The callback of %r failed", response, exc_info=True)

    def _handle_completed_receives(self, responses: list[ClientResponse], now_ms: int) -> None:
        rejected: set[str] = set()
        for node_id, frame in self._selector.completed_receives:
            if node_id in rejected:
                continue
            in_flight = self._in_flight.peek_next(node_id)
            try:
                if in_flight is None:
                    raise RemoteProtocolError("it sent a response, but no request is in flight")
                shortcut = in_flight.request.request_builder.shortcut
                if shortcut is not None and self._handle_usual(shortcut, in_flight, frame, now_ms):
                    continue
                body = in_flight.parse(frame)
            except ProtocolError as error:
                rejected.add(node_id)
                self._drop(responses, node_id, now_ms, error)
                continue
            self._in_flight.complete_next(node_id)
            throttle_ms: int = getattr(body, "throttle_time_ms", 0)  # some responses have no such field
            if throttle_ms or now_ms >= self._throttle_times.due_ms:
                self._throttle_times.record(throttle_ms, now_ms)
            else:
                self._throttle_times.zeros += 1
            if throttle_ms > 0:
                self._throttle(in_flight, throttle_ms, now_ms)
            if not in_flight.is_internal:
                responses.append(in_flight.response(now_ms, body))
            elif isinstance(body, ApiVersionsResponse):
                self._handle_api_versions_response(responses, in_flight, body, now_ms)
            else:
                self._updater.handle_successful_response(in_flight.api_version, now_ms, body)

    def _handle_usual(self, shortcut: Shortcut, in_flight: InFlightRequest, frame: Frame, now_ms: int) -> bool:
        """Handle the usual response, and send the request again if it asks for that; False if it must be parsed."""
        node_id, repetition = in_flight.request.destination, shortcut.repetition
        if repetition is not None and not (
            self.active and self._in_flight.count(node_id) == 1 and self.can_send_request(node_id, now_ms)
        ):
            return False
        if not in_flight.handle_usual(shortcut, frame, now_ms):
            return False
        if repetition is None:
            self._in_flight.complete_next(node_id)
        else:
            in_flight.repeat(repetition, self._next_correlation_id(), now_ms)
            self._in_flight.repeated[node_id] = in_flight
            self._transmit(in_flight.send, in_flight.request.request_timeout_ms, now_ms)
        self._settled += 1
        self._throttle_times.record(0, now_ms)
        return True

    def _throttle(self, in_flight: InFlightRequest, throttle_ms: int, now_ms: int) -> None:
        """Hold back further requests if the version of the response requires that (KIP-219)."""
        if self.on_throttle is not None:
            self.on_throttle(self._nodes[in_flight.request.destination][0], throttle_ms)
        if should_client_throttle(in_flight.request.api_key, in_flight.api_version):
            node_id = in_flight.request.destination
            self._in_flight.increment_throttle_time(node_id, throttle_ms)
            self._connection_states.throttle(node_id, now_ms + throttle_ms)
            self._log.debug("%s throttles this client for %d ms", self._name(node_id), throttle_ms)

    def _handle_api_versions_response(
        self, responses: list[ClientResponse], in_flight: InFlightRequest, body: ApiVersionsResponse, now_ms: int
    ) -> None:
        node_id = in_flight.request.destination
        if body.error_code == 0:
            self._api_versions.update(node_id, node_api_versions(body))
            self._became_ready(node_id)
        elif body.error_code == UnsupportedVersionError.code and in_flight.api_version > 0:
            version = min(fallback_version(body), in_flight.api_version - 1)
            self._log.debug("Asking %s for its versions again, in version %d", self._name(node_id), version)
            self._nodes_needing_api_versions[node_id] = api_versions_request(version)
        else:
            error = type(errors.for_code(body.error_code)).__name__
            cause = KafkaError(f"it rejected the ApiVersions request: {error} ({body.error_code})")
            self._drop(responses, node_id, now_ms, cause)

    def _became_ready(self, node_id: str) -> None:
        self._connection_states.ready(node_id)
        known = self._nodes.get(node_id)
        if known is not None:
            lasted_ms = self._failures.clear(known[0], self._clock.now_ms())
            if lasted_ms is not None:
                self._log.info("Connected to %s again after %d s", self._name(node_id), lasted_ms // 1000)
                return
        self._log.debug("Connected to %s", self._name(node_id))

    def _handle_disconnections(self, responses: list[ClientResponse], now_ms: int) -> None:
        for node_id, state in self._selector.disconnected.items():
            if not self._connection_states.is_disconnected(node_id):
                self._process_disconnection(responses, node_id, now_ms, state)

    def _handle_connections(self) -> None:
        for node_id in self._selector.connected:
            if self._config.discover_broker_versions:
                # Sent once the channel is ready, which may take a handshake.
                self._nodes_needing_api_versions[node_id] = api_versions_request()
            else:
                self._became_ready(node_id)

    def _handle_initiate_api_version_requests(self, now_ms: int) -> None:
        for node_id, builder in list(self._nodes_needing_api_versions.items()):
            if self._selector.is_channel_ready(node_id) and self._in_flight.can_send_more(node_id):
                # Not earlier: a handshake may never end, and only the state CONNECTING has a timeout.
                self._connection_states.checking_api_versions(node_id)
                del self._nodes_needing_api_versions[node_id]
                self._do_send(self.new_client_request(node_id, builder, now_ms, True), True, now_ms)

    def _handle_timeouts(self, responses: list[ClientResponse], now_ms: int) -> None:
        """Drop the connections whose requests, or whose setup, have timed out."""
        self._handle_timed_out_connections(responses, now_ms)
        self._handle_timed_out_requests(responses, now_ms)
        self._next_timeout_ms = min(self._connection_states.next_setup_timeout_ms, self._in_flight.next_timeout_ms)

    def _handle_timed_out_connections(self, responses: list[ClientResponse], now_ms: int) -> None:
        for node_id in self._connection_states.nodes_with_connection_setup_timeout(now_ms):
            timeout_ms = self._connection_states.connection_setup_timeout_ms(node_id)
            what = "connection" if self._config.through is None else f"connection through {self._config.through}"
            if self._connection_states.is_resolving(node_id):
                what = "answer from the DNS"
            reason = TimeoutError(f"no {what} within {timeout_ms} ms")
            self._drop(responses, node_id, now_ms, reason, timed_out=True)

    def _handle_timed_out_requests(self, responses: list[ClientResponse], now_ms: int) -> None:
        for request in [in_flight.request for in_flight in self._in_flight.timed_out_requests(now_ms)]:
            name = ApiKeys.name_of(request.api_key)
            reason = TimeoutError(f"no response to {name} within {request.request_timeout_ms} ms")
            self._drop(responses, request.destination, now_ms, reason, timed_out=True)

    def _handle_rebootstrap(self, responses: list[ClientResponse], now_ms: int) -> None:
        trigger_ms = self._config.rebootstrap_trigger_ms
        if trigger_ms is None or not self._updater.needs_rebootstrap(now_ms, trigger_ms):
            return
        for node in self._updater.fetch_cluster().nodes:
            node_id = node.id_string
            self._selector.close_channel(node_id)
            if self._connection_states.is_connecting(node_id) or self._connection_states.is_connected(node_id):
                self._process_disconnection(responses, node_id, now_ms, ChannelState(channel_state.LOCAL_CLOSE))
        self._updater.rebootstrap(now_ms)

    # --- connections -----------------------------------------------------------------------------------------------

    def initiate_connect(self, node: Node, now_ms: int) -> None:
        """Start to connect to ``node``.

        The connection's state shows a failure, and the next attempt waits for the backoff.
        """
        node_id = node.id_string
        self._nodes[node_id] = node, node.host
        self._connection_states.connecting(node_id, now_ms, node.host)
        due_ms = now_ms + self._connection_states.connection_setup_timeout_ms(node_id)
        self._next_timeout_ms = min(self._next_timeout_ms, due_ms)
        try:
            check_address(node)
            if self._connection_states.current_address(node_id) is None:
                lookup = self._host_resolver.look_up(node.host, self._selector.wakeup)
                self._connection_states.resolving(node_id, lookup)
                if not lookup.done:
                    self._log.debug("Looking up the host of %s", self._name(node_id))
                    return
                self._connection_states.resolved(node_id, now_ms)
            self._connect(node)
        except OSError as error:
            self._connecting_failed(node_id, now_ms, error)

    def _connect(self, node: Node) -> None:
        node_id = node.id_string
        ip = self._connection_states.current_address(node_id)
        assert ip is not None
        self._nodes[node_id] = node, ip
        self._log.debug("Connecting to %s at %s", self._name(node_id), ip)
        address = SocketAddress(ip, node.port, node.host)
        self._selector.connect(node_id, address, self._config.socket_send_buffer, self._config.socket_receive_buffer)

    def _connect_resolved(self, now_ms: int) -> None:
        """Connect to the nodes whose hosts have been looked up."""
        for node_id in self._connection_states.finished_lookups():
            try:
                self._connection_states.resolved(node_id, now_ms)
                self._connect(self._nodes[node_id][0])
            except OSError as error:
                self._connecting_failed(node_id, now_ms, error)

    def _connecting_failed(self, node_id: str, now_ms: int, error: OSError) -> None:
        raise_if_of_signal_handler(error)
        self._note_failure(node_id, reason_of(error))
        self._connection_states.disconnected(node_id, now_ms)
        self._updater.handle_server_disconnect(now_ms, node_id, None)

    def disconnect(self, node_id: str) -> None:
        if not self._connection_states.is_known(node_id) or self._connection_states.is_disconnected(node_id):
            return
        self._log.debug("Disconnecting from %s", self._name(node_id))
        self._found_ready = None
        self._selector.close_channel(node_id)
        now_ms = self._clock.now_ms()
        self._cancel_in_flight_requests(self._aborted_sends, node_id, now_ms, timed_out=False)
        self._connection_states.disconnected(node_id, now_ms)
        self._forget_versions(node_id)

    def close_node(self, node_id: str) -> None:
        self._log.debug("Closing the connection to %s", self._name(node_id))
        self._found_ready = None
        self._selector.close_channel(node_id)
        self._cancel_in_flight_requests(None, node_id, self._clock.now_ms(), timed_out=False)
        self._connection_states.remove(node_id)
        self._forget_versions(node_id)

    def _forget_versions(self, node_id: str) -> None:
        self._api_versions.remove(node_id)
        self._nodes_needing_api_versions.pop(node_id, None)

    def _drop(
        self, responses: list[ClientResponse], node_id: str, now_ms: int, cause: Exception, *, timed_out: bool = False
    ) -> None:
        """Close a connection from this side, and complete its requests as disconnected."""
        self._selector.close_channel(node_id)
        state = ChannelState(channel_state.LOCAL_CLOSE, cause=cause)
        self._process_disconnection(responses, node_id, now_ms, state, timed_out=timed_out)

    def _process_disconnection(
        self,
        responses: list[ClientResponse],
        node_id: str,
        now_ms: int,
        state: ChannelState,
        *,
        timed_out: bool = False,
    ) -> None:
        was_ready = self._connection_states.is_ready(node_id, FOREVER_MS)
        self._connection_states.disconnected(node_id, now_ms)
        self._forget_versions(node_id)
        if state.state == channel_state.AUTHENTICATION_FAILED and state.exception is not None:
            self._connection_states.authentication_failed(node_id, now_ms, state.exception)
            self._note_failure(node_id, f"authentication failed: {state.exception}")
        elif state.state == channel_state.EXPIRED or (state.state == channel_state.LOCAL_CLOSE and state.cause is None):
            self._log.debug("Connection to %s was closed: %s", self._name(node_id), state.state)
        elif was_ready and not timed_out:
            self._log_lost(node_id, state)
        else:
            self._note_failure(node_id, setup_failure(state))
        self._cancel_in_flight_requests(responses, node_id, now_ms, timed_out=timed_out)
        self._updater.handle_server_disconnect(now_ms, node_id, state.exception)

    def _log_lost(self, node_id: str, state: ChannelState) -> None:
        """Log that a connection broke. Only the first of several connections to an address is logged above DEBUG."""
        known = self._nodes.get(node_id)
        if isinstance(state.cause, ProtocolError):
            level = logging.WARNING
        else:
            level = logging.INFO if known is None or self._failures.lost(known[0]) else logging.DEBUG
        self._log.log(level, "Disconnected from %s: %s", self._name(node_id), cause_of(state))

    def _note_failure(self, node_id: str, reason: str) -> None:
        known = self._nodes.get(node_id)
        if known is None:
            return
        node, ip = known
        now_ms = self._clock.now_ms()
        level = logging.WARNING if self._failures.record(node, reason, now_ms, ip) else logging.DEBUG
        self._log.log(level, "Connection to %s failed: %s", self._name(node_id), reason)
        reminder = self._failures.reminder(now_ms)
        if reminder:
            self._log.warning("Still not reachable: %s", reminder)

    def _cancel_in_flight_requests(
        self, responses: list[ClientResponse] | None, node_id: str, now_ms: int, *, timed_out: bool
    ) -> None:
        """Complete all requests to a node as disconnected. If ``responses`` is None, drop them instead."""
        for in_flight in self._in_flight.clear_all(node_id):
            request = in_flight.request
            self._log.debug("Cancelled a request to %s: %s", self._name(node_id), in_flight.description(now_ms))
            if not in_flight.is_internal:
                if responses is not None:
                    responses.append(in_flight.response(now_ms, disconnected=True, timed_out=timed_out))
            elif request.api_key != ApiKeys.API_VERSIONS:
                self._updater.handle_failed_request(now_ms, None)

    def _name(self, node_id: str) -> str:
        """Return the node's name for messages."""
        known = self._nodes.get(node_id)
        return f"node {node_id}" if known is None else shown_node(known[0])

    # --- state -----------------------------------------------------------------------------------------------------

    def in_flight_request_count(self, node_id: str | None = None) -> int:
        return self._in_flight.total if node_id is None else self._in_flight.count(node_id)

    def connection_report(self) -> str:
        """Return which addresses cannot be reached, why and since when, for error messages; empty if none.

        Thread: any.
        """
        cluster, bootstrap = self._updater.fetch_cluster(), self._source.bootstrap_addresses
        return self._failures.report(cluster, bootstrap, self._clock.now_ms())

    def explain(self, now_ms: int) -> list[str]:
        nodes = {node.id_string: node for node, _ in self._nodes.copy().values() if node.id >= 0}
        nodes.update((node.id_string, node) for node in self._updater.fetch_cluster().nodes)
        return explain_connections(nodes, self._connection_states, self._in_flight, self._failures, now_ms)

    @property
    def is_unreachable(self) -> bool:
        return self._failures.cover(self._updater.fetch_cluster().nodes)

    def wakeup(self) -> None:
        self._selector.wakeup()

    def initiate_close(self) -> None:
        if self._state == _ACTIVE:
            self._state = _CLOSING
            self.wakeup()

    @property
    def active(self) -> bool:
        return self._state == _ACTIVE

    def _not_active(self) -> DisconnectError:
        return DisconnectError(f"the network client is {self._state.lower()}")

    def close(self) -> None:
        telemetry = self.telemetry
        if self._state == _ACTIVE and telemetry is not None and telemetry.push_last(self, self._clock.now_ms()):
            self._selector.poll(0)  # nobody waits for the response
        if self._state != _CLOSED:
            self._state = _CLOSED
            self._connection_states.close()
            self._selector.close()
            self._updater.close()
