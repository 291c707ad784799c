"""Calls of the admin client in progress: the metadata, a call's requests, all calls, the parts of a client, steps."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from pykclient import errors
from pykclient.admin.api import ANY_BROKER, CONTROLLER, AdminApiHandler, ApiResult, for_all, whole
from pykclient.admin.values import Results
from pykclient.clock import FOREVER_MS
from pykclient.config.admin_config import AdminClientConfig
from pykclient.errors import (
    AuthorizationError,
    DisconnectError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    NotControllerError,
    RemoteProtocolError,
    RetriableError,
    UnknownTopicOrPartitionError,
    UnsupportedEndpointTypeError,
    UnsupportedVersionError,
    UseAfterForkError,
)
from pykclient.log_context import LogContext
from pykclient.metrics import MetricConfig, Metrics, register_app_info
from pykclient.network.client_request import RequestBuilder
from pykclient.network.client_utils import create_network_client, parse_and_validate_addresses, resolver_for
from pykclient.network.cluster_connection_states import ApiVersions
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import BOOTSTRAP_ADVICE, call_denied, principal_of, shown_node_id
from pykclient.network.metadata import ClusterResourceListeners, Metadata, MetadataRequestBuilder
from pykclient.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pykclient.protocol.messages.metadata import MetadataResponse

if TYPE_CHECKING:
    from pykclient.admin.api import ApiRequest, LookupStrategy
    from pykclient.clock import Clock
    from pykclient.network.client_request import ClientResponse
    from pykclient.network.kafka_client import IdentifiedTelemetry, KafkaClient
    from pykclient.protocol.message import Request, Response
    from pykclient.types import Node

#: The type of endpoint in a DescribeCluster request for controllers, and its first version with such types.
CONTROLLER_ENDPOINTS: Final = 2
ENDPOINT_TYPES_FROM: Final = 1


class _DescribeControllersBuilder(RequestBuilder):
    """Asks a controller for the controllers of the quorum (KIP-919)."""

    __slots__ = ()

    def __init__(self) -> None:
        request = DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS)
        super().__init__(request, min_version=ENDPOINT_TYPES_FROM)


class AdminMetadata(Metadata):
    """Metadata without topics: the nodes of the cluster, and which of them is the controller.

    If ``bootstrap.controllers`` is set, the nodes are the controllers of the quorum, and the controller is the active
    one. Thread: any.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        log_context: LogContext,
        cluster_resource_listeners: ClusterResourceListeners | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(
            config["retry.backoff.ms"],
            config["retry.backoff.max.ms"],
            config["metadata.max.age.ms"],
            log_context,
            cluster_resource_listeners,
            rng,
        )
        #: True if the client is connected to controllers instead of brokers (KIP-919).
        self.uses_controllers = bool(config["bootstrap.controllers"])

    def new_metadata_request_builder(self) -> RequestBuilder:
        if self.uses_controllers:
            return _DescribeControllersBuilder()
        return MetadataRequestBuilder.for_topic_names((), True)  # no topic is created; older versions cannot say so

    def read_response(self, response: Response) -> MetadataResponse:
        if not isinstance(response, DescribeClusterResponse):
            return super().read_response(response)
        error = errors.for_code(response.error_code, response.error_message)
        if isinstance(error, errors.MismatchedEndpointTypeError):
            raise errors.MismatchedEndpointTypeError(
                "an address of bootstrap.controllers is a broker's. Name the listeners of the controllers "
                "(controller.listener.names), or set bootstrap.servers to connect to brokers"
            )
        if error is not None:
            raise error
        return MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack
                )
                for node in response.brokers
            ],
            controller_id=response.controller_id,
            cluster_id=response.cluster_id,
        )


K = TypeVar("K")
V = TypeVar("V")
_TIME_ADVICE = "Give the call more time with timeout_ms, or look into the brokers' logs"


def _of_controllers(text: str) -> str:
    """Return a text about brokers as one about controllers."""
    return text.replace("bootstrap servers", "bootstrap controllers").replace(
        "brokers are up and that bootstrap.servers", "controllers are up and that bootstrap.controllers"
    )


class RetryPolicy(NamedTuple):
    """The backoff between attempts for a key, and the limit of retries (``retries``).

    ``principal`` is the name that the client authenticates with, if known; messages show it.
    """

    backoff: ExponentialBackoff
    retries: int
    request_timeout_ms: int
    principal: str | None = None


class Deadline(NamedTuple):
    """The deadline of an application's call, which may need several API calls. ``at_ms`` is its time."""

    timeout_ms: int
    at_ms: int


class _Item:
    """The state of a key that has no result yet."""

    __slots__ = ("attempts", "destination", "last_error", "not_before_ms")

    def __init__(self) -> None:
        self.destination: int | None = None  # None: to be looked up
        self.attempts = 0  # that have failed
        self.not_before_ms = -FOREVER_MS
        self.last_error: KafkaError | None = None


class Attempt:
    """A request of a call that is in flight. Thread: that of the call."""

    def __init__(self, call: AdminCall[Any, Any], request: ApiRequest[Any], is_lookup: bool) -> None:
        self._call = call
        self.request = request
        self.is_lookup = is_lookup
        self.is_sent = False

    @property
    def is_current(self) -> bool:
        """False if nobody waits for the response any more."""
        return self._call.is_waiting_for(self)

    def on_complete(self, response: ClientResponse) -> None:
        """Process the response. It is ignored if nobody waits for it."""
        self._call.on_complete(self, response)

    def fail(self, error: KafkaError, now_ms: int) -> None:
        """Record that the request was never sent."""
        self._call.on_failure(self, error, now_ms)


class AdminCall(Generic[K, V]):
    """A call of one API for many keys.

    Each key is looked up, sent, and retried on its own terms; keys that are due at the same time share requests.
    ``begin`` comes before all other methods. ``on_done`` is called once, when no key is left, or when the call has
    timed out. Thread: that of ``AdminCalls``.
    """

    _policy: RetryPolicy
    deadline: Deadline

    def __init__(self, handler: AdminApiHandler[K, V], keys: Iterable[K]) -> None:
        self._handler = handler
        self._waiting: dict[K, _Item] = {key: _Item() for key in keys}
        self._in_flight: dict[K, _Item] = {}
        self._attempts: set[Attempt] = set()
        self.results: Results[K, V] = Results()
        self.on_done: Callable[[], object] | None = None
        #: True once each key has a result. Other threads read it, so it is set last.
        self.is_done = not self._waiting
        #: True if a broker was not the right one, so that metadata should be refreshed before the next attempt.
        self.wants_metadata = False

    def begin(self, deadline: Deadline, policy: RetryPolicy, uses_controllers: bool) -> None:
        """Set the limits of the call.

        Raises:
            UnsupportedEndpointTypeError: the client is connected to controllers, and they do not serve the call.
        """
        if uses_controllers and not self._handler.lookup.SERVED_BY_CONTROLLERS:
            raise UnsupportedEndpointTypeError(
                f"{self.name} is served by brokers only, and this client is connected to controllers "
                "(bootstrap.controllers). Use a client with bootstrap.servers for it"
            )
        self.deadline = deadline
        self._policy = policy

    @property
    def name(self) -> str:
        return self._handler.name

    def is_waiting_for(self, attempt: Attempt) -> bool:
        return attempt in self._attempts

    # --- deciding ----------------------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> tuple[list[Attempt], int]:
        """Return the attempts due at ``now_ms``, and the ms until the next one if no response arrives."""
        wait_ms = FOREVER_MS
        to_look_up: list[K] = []
        by_destination: dict[int, list[K]] = {}
        for key, item in self._waiting.items():
            if item.not_before_ms > now_ms:
                wait_ms = min(wait_ms, item.not_before_ms - now_ms)
                continue
            if item.destination is None:
                item.destination = self._handler.lookup.destination_of(key)
            if item.destination is None:
                to_look_up.append(key)
            else:
                by_destination.setdefault(item.destination, []).append(key)
        attempts: list[Attempt] = []
        if to_look_up:
            attempts += [Attempt(self, request, True) for request in self._handler.lookup.requests(to_look_up)]
        timeout_ms = max(0, min(self._policy.request_timeout_ms, self.deadline.at_ms - now_ms))
        for destination, keys in by_destination.items():
            for request in self._handler.requests(destination, keys, timeout_ms):
                attempts.append(Attempt(self, request, False))
        for attempt in attempts:
            self._attempts.add(attempt)
            for key in attempt.request.keys:
                self._in_flight[key] = self._waiting.pop(key)
        return attempts, wait_ms

    # --- hearing -----------------------------------------------------------------------------------------------------

    def on_complete(self, attempt: Attempt, response: ClientResponse) -> None:
        if attempt not in self._attempts:
            return
        error: KafkaError | None = response.authentication_error or response.build_error
        if error is None and response.disconnected:
            why = "no answer came in time" if response.timed_out else "the connection was lost"
            error = DisconnectError(f"a request to {shown_node_id(response.destination)} failed: {why}")
            if not attempt.is_lookup:
                self._handler.uncertain.update(attempt.request.keys)
        now_ms = response.received_ms
        if error is not None:
            self.on_failure(attempt, error, now_ms)
            return
        keys = attempt.request.keys
        if attempt.is_lookup:
            found = self._handler.lookup.handle_response(keys, response.response_body)
            items = {key: self._in_flight[key] for key in found.completed}
            for key, destination in found.completed.items():
                items[key].destination = destination
            self._settle(attempt, found, now_ms, is_lookup=True)
            return
        self._handler.latency_ms = response.request_latency_ms
        result = self._handler.handle_response(attempt.request.destination, keys, response.response_body)
        self._settle(attempt, result, now_ms)

    def on_failure(self, attempt: Attempt, error: KafkaError, now_ms: int) -> None:
        """Record that an attempt got no response."""
        if attempt not in self._attempts:
            return
        keys = attempt.request.keys
        result: ApiResult[K, Any]
        if isinstance(error, UnsupportedVersionError):
            if attempt.is_lookup and self._handler.lookup.handle_unsupported_version():
                self._attempts.discard(attempt)
                for key in keys:
                    self._waiting[key] = self._in_flight.pop(key)
                return
            shown = UnsupportedVersionError(
                f"{self.name}: {error}. The brokers are too old for this call, or do not implement it"
            )
            shown.__cause__ = error
            result = self._handler.handle_unsupported_version(keys, shown)
        else:
            result = ApiResult()
            kind = result.unmapped if isinstance(error, RetriableError) else result.failed
            kind.update(dict.fromkeys(keys, error))
        self._settle(attempt, result, now_ms)

    def _settle(self, attempt: Attempt, result: ApiResult[K, Any], now_ms: int, *, is_lookup: bool = False) -> None:
        """Apply what became of the keys of an attempt."""
        self._attempts.discard(attempt)
        self.wants_metadata |= bool(result.unmapped)
        self.results.error_of_all = result.error_of_all or self.results.error_of_all
        backoffs: dict[int, int] = {}  # by the number of attempts, so that keys which failed together stay together
        for key in attempt.request.keys:
            item = self._in_flight.pop(key)
            if key in result.completed:
                if is_lookup:
                    self._waiting[key] = item
                else:
                    self.results.succeeded[key] = result.completed[key]
            elif key in result.failed:
                self.results.failed[key] = self._explained(key, result.failed[key])
            elif key in result.retry:
                self._retry(key, item, result.retry[key], now_ms, backoffs)
            elif key in result.unmapped:
                # A broker that does not pass a request on to the controller would refuse it again.
                refused = item.destination == ANY_BROKER and isinstance(result.unmapped[key], NotControllerError)
                item.destination = CONTROLLER if refused else None
                self._retry(key, item, result.unmapped[key], now_ms, backoffs)
            else:
                self.results.failed[key] = RemoteProtocolError(
                    f"{self.name}: the broker's response says nothing about {key!r}"
                )
        self._finish()

    def _explained(self, key: K, error: KafkaError) -> KafkaError:
        """Return the error of a key; if a permission is missing, with whose it is and how to grant it."""
        if not isinstance(error, AuthorizationError):
            return error
        call = (
            self.name if key is None else f"{self.name} of {key!r}" if isinstance(key, str) else f"{self.name} of {key}"
        )
        name = key if isinstance(key, str) else getattr(key, "topic", getattr(key, "name", None))
        return call_denied(self._policy.principal, call, error, name)

    def _retry(self, key: K, item: _Item, error: KafkaError, now_ms: int, backoffs: dict[int, int]) -> None:
        item.last_error = error
        most = self._policy.retries
        if isinstance(error, UnknownTopicOrPartitionError):
            most = min(most, self._handler.max_unknown_topic_attempts - 1)
        if item.attempts >= most:
            self.results.failed[key] = error
            return
        if item.attempts not in backoffs:
            backoffs[item.attempts] = self._policy.backoff.backoff(item.attempts)
        item.not_before_ms = now_ms + backoffs[item.attempts]
        item.attempts += 1
        self._waiting[key] = item

    def _finish(self) -> None:
        if self.is_done or self._waiting or self._in_flight:
            return
        self.is_done = True
        if self.on_done is not None:
            self.on_done()

    # --- ending ------------------------------------------------------------------------------------------------------

    def fail(self, error: KafkaError) -> None:
        """Fail all keys without a result with ``error``."""
        for key in self._unfinished():
            self.results.failed[key] = error
        self._end()

    def time_out(self, connection_report: str, uses_controllers: bool = False) -> None:
        """Fail all keys without a result with KafkaTimeoutError.

        ``connection_report`` tells which nodes cannot be reached. They are controllers with ``uses_controllers``.
        """
        remedy = BOOTSTRAP_ADVICE if connection_report else _TIME_ADVICE
        report = f"; {connection_report.removesuffix(f'. {BOOTSTRAP_ADVICE}')}" if connection_report else ""
        if uses_controllers:
            remedy, report = _of_controllers(remedy), _of_controllers(report)
        self._note_uncertain()
        asked = {key for attempt in self._attempts if attempt.is_sent for key in attempt.request.keys}
        for key, item in self._unfinished().items():
            self.results.failed[key] = self._timeout_error(key, item, key in asked, report, remedy)
        self._end()

    def _timeout_error(self, key: K, item: _Item, is_asked: bool, report: str, remedy: str) -> KafkaTimeoutError:
        about = "" if key is None else f" for {key!r}"
        if item.last_error is not None:
            attempts = "1 attempt" if item.attempts == 1 else f"{item.attempts} attempts"
            told = str(item.last_error).removesuffix(".")
            last = f"{attempts} failed, the last one with {type(item.last_error).__name__}: {told}"
        elif is_asked:
            last = "the broker has not answered"
        else:
            last = "no broker could be asked"
            if item.destination is not None and item.destination >= 0 and not report:
                last = f"there is no connection to broker {item.destination}, which the cluster may not have"
        uncertain = ". The request may have been carried out all the same" if key in self._handler.uncertain else ""
        error = KafkaTimeoutError(
            f"{self.name}{about} was not done within {self.deadline.timeout_ms} ms: {last}{report}{uncertain}. {remedy}"
        )
        error.__cause__ = item.last_error
        return error

    def _note_uncertain(self) -> None:
        for attempt in self._attempts:
            if attempt.is_sent and not attempt.is_lookup:
                self._handler.uncertain.update(attempt.request.keys)

    def _unfinished(self) -> dict[K, _Item]:
        return {**self._waiting, **self._in_flight}

    def _end(self) -> None:
        self._waiting = {}
        self._in_flight = {}
        self._attempts = set()
        self._finish()

    def recover(self) -> None:
        """Make all requests in flight due again, after an exception ended the driver's round."""
        self._note_uncertain()
        self._attempts = set()
        done = self.results
        unfinished = self._unfinished()
        self._in_flight = {}
        self._waiting = {key: item for key, item in unfinished.items() if key not in done}
        self._finish()


class AdminCalls:
    """Decides what to send for the calls in progress. It never waits.

    A driver alternates between ``step`` and polls of the network client. The calls complete in both.

    Thread: one at a time, the driver's; ``submit`` and ``initiate_close``: any.
    """

    def __init__(
        self, client: KafkaClient, metadata: AdminMetadata, clock: Clock, retry_backoff_ms: int, log_context: LogContext
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._clock = clock
        self._retry_backoff_ms = retry_backoff_ms
        self._log = log_context.logger(__name__)
        self._submitted: deque[AdminCall[Any, Any]] = deque()  # any thread
        self._abandoned: deque[AdminCall[Any, Any]] = deque()  # any thread
        self._calls: list[AdminCall[Any, Any]] = []
        self._unsent: list[Attempt] = []
        self._closing: KafkaError | None = None  # the error of calls that are not done
        self.is_closed = False

    def submit(self, call: AdminCall[Any, Any]) -> None:
        """Begin a call with the next step."""
        self._submitted.append(call)

    def abandon(self, call: AdminCall[Any, Any]) -> None:
        """End a call that nobody waits for any more, in the next step."""
        self._abandoned.append(call)

    @property
    def is_closing(self) -> bool:
        return self._closing is not None

    # --- deciding ----------------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> int:
        """Send the requests that are due. Return the milliseconds until the next step if nothing arrives."""
        while self._submitted:
            self._calls.append(self._submitted.popleft())
        while self._abandoned:
            self._abandoned.popleft().fail(KafkaError("the call was interrupted"))
        if self._closing is not None:
            self._close(self._closing)
            return 0
        self._raise_fatal_error()
        wait_ms = self._retry_backoff_ms if self._unsent else FOREVER_MS
        for call in self._calls:
            left_ms = call.deadline.at_ms - now_ms
            if left_ms <= 0:
                self._log.debug("%s has timed out", call.name)
                call.time_out(self._client.connection_report(), self._metadata.uses_controllers)
                continue
            if call.wants_metadata:
                call.wants_metadata = False
                self._metadata.request_update(False)
            attempts, next_ms = call.poll(now_ms)
            self._unsent += attempts
            wait_ms = min(wait_ms, next_ms, left_ms)
        wait_ms = min(wait_ms, self._send(now_ms))
        self._calls = [call for call in self._calls if not call.is_done]
        return wait_ms

    def _raise_fatal_error(self) -> None:
        """Fail all calls if metadata cannot be had at all: authentication has failed, or no version is shared."""
        try:
            self._metadata.maybe_throw_fatal_exception()
        except KafkaError as error:
            for call in self._calls:
                call.fail(error)

    def _send(self, now_ms: int) -> int:
        """Send requests to nodes that are ready. Return how long to wait for the others at most."""
        wait_ms = FOREVER_MS
        unsent, self._unsent = self._unsent, []
        for attempt in unsent:
            if not attempt.is_current:
                continue
            node = self._node(attempt, now_ms)
            if node is not None and self._client.ready(node, now_ms):
                self._send_to(node, attempt, now_ms)
                continue
            if node is None:
                wait_ms = min(wait_ms, self._retry_backoff_ms)
            else:
                wait_ms = min(wait_ms, self._client.poll_delay_ms(node, now_ms))
                error = self._client.authentication_error(node)
                if error is not None:
                    attempt.fail(error, now_ms)
                    continue
                if attempt.request.destination != ANY_BROKER and self._client.connection_failed(node):
                    self._metadata.request_update(False)
                    attempt.fail(DisconnectError(f"{node} cannot be reached"), now_ms)
                    wait_ms = 0  # its call knows when it is due again
                    continue
            self._unsent.append(attempt)
        return wait_ms

    def _node(self, attempt: Attempt, now_ms: int) -> Node | None:
        """Return the node for a request, or None if it is not known (yet)."""
        cluster = self._metadata.fetch()
        if cluster.is_bootstrap_configured or not cluster.nodes:
            self._request_metadata(now_ms)
            return None
        destination = attempt.request.destination
        is_for_any = destination == ANY_BROKER
        if is_for_any and not self._metadata.uses_controllers:
            return self._client.least_loaded_node(now_ms).node
        # Of the controllers, only the active one serves requests.
        is_for_controller = is_for_any or destination == CONTROLLER
        node = cluster.controller if is_for_controller else cluster.node_by_id(destination)
        if node is None:
            self._request_metadata(now_ms)
        return node

    def _request_metadata(self, now_ms: int) -> None:
        """Have the network client ask for metadata, unless it is about to."""
        if not self._metadata.update_requested and self._metadata.time_to_next_update(now_ms) > 0:
            self._metadata.request_update(False)

    def _send_to(self, node: Node, attempt: Attempt, now_ms: int) -> None:
        request = self._client.new_client_request(
            node.id_string, attempt.request.builder, now_ms, True, None, attempt.on_complete
        )
        attempt.is_sent = True
        self._client.send(request, now_ms)

    # --- ending ------------------------------------------------------------------------------------------------------

    def initiate_close(self, error: KafkaError | None = None) -> None:
        """Fail all calls in the next step, and close the connections. Later calls raise an error."""
        self._closing = error or IllegalStateError("the admin client was closed during the call")

    def _close(self, error: KafkaError) -> None:
        for call in self._calls:
            call.fail(error)
        self._calls = []
        self._unsent = []
        if not self.is_closed:
            self.is_closed = True
            self._client.close()

    def fail(self, error: BaseException) -> None:
        """Fail all calls and close, after an exception that must end the client."""
        failure = KafkaError(f"the admin client failed: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self._close(failure)

    def round_failed(self, error: Exception, now_ms: int) -> int:
        """Fail all calls because of an unexpected exception in a step or poll; return the backoff in ms."""
        self._log.error("An unexpected error ended all calls in progress", exc_info=error)
        failure = KafkaError(f"an unexpected error ended the call: {type(error).__name__}: {error}")
        failure.__cause__ = error
        for call in self._calls:
            call.fail(failure)
        self.recover()
        return self._retry_backoff_ms

    def recover(self) -> None:
        """Start again with new connections, after an exception ended a step or a poll."""
        self._client.drop_connections()
        self._unsent = []
        for call in self._calls:
            call.recover()
        self._calls = [call for call in self._calls if not call.is_done]


#: A broker handles the requests of one connection one after another; more than a few in flight gain nothing.
_MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION = 5
_numbers = count(1)


class AdminComponents:
    """The parts of one admin client. Tests may pass ``client`` and ``metadata``. Thread: any."""

    def __init__(
        self,
        config: AdminClientConfig,
        environment: Environment = SYSTEM_ENVIRONMENT,
        client: KafkaClient | None = None,
        metadata: AdminMetadata | None = None,
    ) -> None:
        self.config = config
        self.environment = environment
        self.clock = clock = environment.clock
        rng = environment.new_rng()
        self.client_id: str = config["client.id"] or f"adminclient-{next(_numbers)}"
        self.log_context = LogContext(f"[AdminClient client_id={self.client_id}] ", principal_of(config))
        self._default_timeout_ms: int = config["default.api.timeout.ms"]
        self._pid = os.getpid()
        self._are_plugins_closed = False
        addresses: list[tuple[str, int]] = []
        if metadata is None:  # wrong addresses are found before there is anything to close
            addresses = parse_and_validate_addresses(
                config[config.bootstrap_key],
                config["client.dns.lookup"],
                resolver_for(config, environment.host_resolver),
                self.log_context,
                clock,
                config.bootstrap_key,
            )
        self.metrics = Metrics(
            MetricConfig.of(config, self.client_id, config.metrics_context("kafka.admin.client")),
            config.configured_instances("metric.reporters", method="init"),
            clock,
        )
        register_app_info(self.metrics)
        try:
            if metadata is None:
                listeners = ClusterResourceListeners([*self.metrics.reporters])
                metadata = AdminMetadata(config, self.log_context, listeners, rng)
                metadata.bootstrap(addresses)
            self.metadata = metadata
            self.api_versions = ApiVersions()
            self.client = client or create_network_client(
                config,
                self.client_id,
                self.metrics,
                "admin-client",
                self.log_context,
                self.api_versions,
                metadata,
                _MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION,
                environment=environment,
                rng=rng,
            )
        except BaseException:
            self.metrics.close()  # nobody else gets this object
            raise
        backoff = ExponentialBackoff(config["retry.backoff.ms"], config["retry.backoff.max.ms"], rng)
        self._policy = RetryPolicy(backoff, config["retries"], config["request.timeout.ms"], self.log_context.principal)
        self.calls = AdminCalls(self.client, metadata, clock, config["retry.backoff.ms"], self.log_context)

    @property
    def telemetry(self) -> IdentifiedTelemetry | None:
        """The telemetry of the client; None if ``enable.metrics.push`` is off."""
        return self.client.telemetry

    def deadline(self, timeout_ms: int | None) -> Deadline:
        """Return the deadline of a call that begins now; None means ``default.api.timeout.ms``."""
        timeout_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        return Deadline(timeout_ms, self.clock.now_ms() + timeout_ms)

    def begin(self, call: AdminCall[Any, Any], deadline: Deadline) -> None:
        """Prepare a call, which a driver then completes.

        Raises:
            UnsupportedEndpointTypeError: the client is connected to controllers, and they do not serve the call.
        """
        call.begin(deadline, self._policy, self.metadata.uses_controllers)

    def ensure_usable(self) -> None:
        """Check that the client is open, and belongs to this process.

        Raises:
            UseAfterForkError: the client was made before a fork.
            IllegalStateError: the client is closed.
        """
        if os.getpid() != self._pid:
            raise UseAfterForkError(
                f"this admin client was made in process {self._pid} and is used in its child {os.getpid()}: its "
                "connections belong to the parent; make a client in each process, after the fork"
            )
        if self.calls.is_closed or self.calls.is_closing:
            raise IllegalStateError("the admin client is closed; create another one")

    @property
    def is_forked(self) -> bool:
        return os.getpid() != self._pid

    def close_plugins(self) -> None:
        """Close the metrics and their reporters. Idempotent."""
        if not self._are_plugins_closed:
            self._are_plugins_closed = True
            self.metrics.close()


T = TypeVar("T")
#: The steps of an application's call, as those of a consumer: they yield what they wait for, and the driver, a thread
#: or an event loop, continues them once that is done. Here this is a call, or None for nothing. The yield returns the
#: client's parts.
Steps = Generator[AdminCall[Any, Any] | None, AdminComponents, T]


def run(handler: AdminApiHandler[K, V], keys: Collection[K]) -> Steps[Results[K, V]]:
    """Make a call for ``keys`` and return its results; without keys, nothing is sent."""
    call = AdminCall(handler, keys)
    if keys:
        yield call
    return call.results


def ask(
    name: str,
    lookup: LookupStrategy[None],
    request: Request | RequestBuilder | Callable[[Sequence[None], int], Request | RequestBuilder],
    read: Callable[[Any], V] = whole,
) -> Steps[V]:
    """Make a call with a single answer, and return what ``read`` makes of the response, by default all of it.

    Raises:
        KafkaError: the call has failed.
    """
    handler: AdminApiHandler[None, V] = AdminApiHandler(name, lookup, request, for_all(read))
    return (yield from run(handler, (None,)))[None]
