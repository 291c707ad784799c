"""A client's knowledge of each node: its API versions, the state of its connection, and why an address fails.

Java: ApiVersions, NodeApiVersions, ClusterConnectionStates.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, cast

from pykclient.clock import FOREVER_MS
from pykclient.errors import (
    AuthenticationError,
    IllegalStateError,
    RemoteProtocolError,
    UnsupportedVersionError,
    check_move,
)
from pykclient.explanation import counted, shown_duration
from pykclient.log_context import LogContext
from pykclient.network.client_request import InFlightRequests, RequestBuilder
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import BOOTSTRAP_ADVICE, REMINDER_INTERVAL_MS, shown_address, shown_node
from pykclient.network.frames import Frame
from pykclient.network.host_resolver import Lookup
from pykclient.network.metadata import Cluster
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import parse_response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.wire import BytesLike, Reader
from pykclient.types import Node
from pykclient.version import __version__


class ApiVersionRange(NamedTuple):
    """An inclusive range of versions."""

    min_version: int
    max_version: int


class NodeApiVersions(NamedTuple):
    """A node's ApiVersions response: version ranges by API key, and the cluster's features (KIP-584). Thread: any."""

    versions: Mapping[int, ApiVersionRange]
    supported_features: Mapping[str, ApiVersionRange] = MappingProxyType({})
    finalized_features: Mapping[str, int] = MappingProxyType({})
    finalized_features_epoch: int = -1

    @classmethod
    def create(cls, overrides: Iterable[tuple[int, int, int]] = ()) -> NodeApiVersions:
        """Return a node with all our versions, except for ``overrides`` (api key, min, max).

        For tests and simulations.
        """
        versions = {
            key: ApiVersionRange(ApiKeys.oldest_version(key), ApiKeys.latest_version(key))
            for key in ApiKeys.client_apis()
        }
        versions.update({key: ApiVersionRange(oldest, latest) for key, oldest, latest in overrides})
        return cls(versions)

    def api_version(self, api_key: int) -> ApiVersionRange | None:
        return self.versions.get(api_key)

    def latest_usable_version(
        self, api_key: int, oldest_allowed: int | None = None, latest_allowed: int | None = None
    ) -> int:
        """Return the newest version that the node supports and the caller allows.

        Raises:
            UnsupportedVersionError: there is none.
        """
        supported = self.versions.get(api_key)
        if supported is None:
            raise UnsupportedVersionError(f"the node does not support {ApiKeys.name_of(api_key)}")
        oldest = ApiKeys.oldest_version(api_key) if oldest_allowed is None else oldest_allowed
        latest = ApiKeys.latest_version(api_key) if latest_allowed is None else latest_allowed
        lowest, highest = supported
        version = latest if latest < highest else highest
        if version < oldest or version < lowest:
            raise UnsupportedVersionError(
                f"the node does not support {ApiKeys.name_of(api_key)} in versions {oldest} to {latest}, "
                f"only {supported.min_version} to {supported.max_version}"
            )
        return version

    def __repr__(self) -> str:
        known = ", ".join(
            f"{ApiKeys.name_of(key)}({key}): {oldest} to {latest}"
            for key, (oldest, latest) in sorted(self.versions.items())
        )
        return f"NodeApiVersions({known})"


#: Record batch format by the oldest Produce version that carries it (Java: RecordBatch.MAGIC_VALUE_*).
_MAGIC_V2, _MAGIC_V1, _MAGIC_V0 = 2, 1, 0


class FinalizedFeaturesInfo(NamedTuple):
    """The finalized features of the cluster, as of the newest epoch that any node reported."""

    finalized_features_epoch: int
    finalized_features: Mapping[str, int]


class ApiVersions:
    """The API versions of each connected node, shared by the network client and request builders. Thread: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards: all below, but single lookups in _nodes
        self._nodes: dict[str, NodeApiVersions] = {}
        #: Returns the versions of a node by its id, or None. Each request asks for them, so no Python code runs.
        self.get: Callable[[str], NodeApiVersions | None] = self._nodes.get
        self._finalized_features_epoch = -1
        self._finalized_features: Mapping[str, int] = {}

    def update(self, node_id: str, versions: NodeApiVersions) -> None:
        with self._lock:
            self._nodes[node_id] = versions
            if versions.finalized_features_epoch > self._finalized_features_epoch:
                self._finalized_features_epoch = versions.finalized_features_epoch
                self._finalized_features = versions.finalized_features

    def remove(self, node_id: str) -> None:
        with self._lock:
            self._nodes.pop(node_id, None)

    @property
    def finalized_features_epoch(self) -> int:
        """The epoch of the newest finalized features; -1 until a broker has reported some."""
        return self._finalized_features_epoch

    @property
    def finalized_features_info(self) -> FinalizedFeaturesInfo:
        with self._lock:
            return FinalizedFeaturesInfo(self._finalized_features_epoch, self._finalized_features)

    @property
    def max_usable_produce_magic(self) -> int:
        """Return the newest batch format that every connected node accepts: 2 from Produce v3 on, 1 from v2, else 0."""
        with self._lock:
            magic = _MAGIC_V2
            for versions in self._nodes.values():
                produce = versions.api_version(ApiKeys.PRODUCE)
                if produce is not None:
                    latest = produce.max_version
                    magic = min(magic, _MAGIC_V2 if latest >= 3 else _MAGIC_V1 if latest == 2 else _MAGIC_V0)
            return magic


#: This client's name in brokers' logs and metrics.
CLIENT_SOFTWARE_NAME = "pykclient"

_UNSUPPORTED_VERSION = UnsupportedVersionError.code

_CORRELATION_ID_BYTES = 4

#: The size from which a response is not kept: no broker's list of versions is as large.
_LARGEST_KEPT = 8_192


class ApiVersionsRequestBuilder(RequestBuilder):
    """Builds a request for the versions of a node, whose response may be in another version. Thread: owner."""

    __slots__ = ()

    def parse_response(self, frame: BytesLike, version: int) -> ApiVersionsResponse:
        return parse_api_versions_response(frame, version)[1]


def api_versions_request(max_version: int | None = None) -> RequestBuilder:
    """Return a request in the newest version, or in ``max_version`` if the node asked for that."""
    request = ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=__version__)
    return ApiVersionsRequestBuilder(request, 0, max_version)


def parse_api_versions_response(frame: Frame, version: int) -> tuple[int, ApiVersionsResponse]:
    """Return the correlation id and the response to a request of ``version``.

    A node that does not know the version returns UNSUPPORTED_VERSION in version 0. Since Kafka 2.4, that response lists
    the versions of ApiVersions itself. Some other brokers write a body that fits no version, so the part after the
    error code is decoded if possible, and ignored otherwise.
    """
    reader = Reader(frame)
    correlation_id, error_code = reader.int32(), reader.int16()
    if error_code != _UNSUPPORTED_VERSION:
        body = bytes(frame[_CORRELATION_ID_BYTES:])
        read = _read if len(body) <= _LARGEST_KEPT else _read.__wrapped__
        return correlation_id, read(body, version)
    try:
        return correlation_id, ApiVersionsResponse.read(Reader(frame, 4), 0)
    except RemoteProtocolError:
        return correlation_id, ApiVersionsResponse(error_code=error_code)


@lru_cache(maxsize=32)
def _read(body: bytes, version: int) -> ApiVersionsResponse:
    """Decode a response, which nobody changes. The nodes of a cluster send equal ones, on each connection again."""
    frame = bytes(_CORRELATION_ID_BYTES) + body
    return cast(ApiVersionsResponse, parse_response(frame, ApiKeys.API_VERSIONS, version)[1])


def fallback_version(response: ApiVersionsResponse) -> int:
    """Return the version to use after UNSUPPORTED_VERSION: the node's newest if it is known, else 0."""
    for api in response.api_keys:
        if api.api_key == ApiKeys.API_VERSIONS:
            return max(0, min(api.max_version, ApiKeys.latest_version(ApiKeys.API_VERSIONS)))
    return 0


def node_api_versions(response: ApiVersionsResponse) -> NodeApiVersions:
    return NodeApiVersions(
        {api.api_key: ApiVersionRange(api.min_version, api.max_version) for api in response.api_keys},
        {
            feature.name: ApiVersionRange(feature.min_version, feature.max_version)
            for feature in response.supported_features
        },
        {feature.name: feature.max_version_level for feature in response.finalized_features},
        response.finalized_features_epoch,
    )


# --- connections ------------------------------------------------------------------------------------------------------

DISCONNECTED: Final = "DISCONNECTED"
CONNECTING: Final = "CONNECTING"
CHECKING_API_VERSIONS: Final = "CHECKING_API_VERSIONS"
READY: Final = "READY"
AUTHENTICATION_FAILED: Final = "AUTHENTICATION_FAILED"

#: The states that may follow each state.
MOVES: Final[dict[str, frozenset[str]]] = {
    DISCONNECTED: frozenset((CONNECTING, DISCONNECTED, AUTHENTICATION_FAILED)),
    CONNECTING: frozenset((CHECKING_API_VERSIONS, READY, DISCONNECTED)),
    # It follows itself when the node asks for an older version of the request.
    CHECKING_API_VERSIONS: frozenset((CHECKING_API_VERSIONS, READY, DISCONNECTED)),
    READY: frozenset((DISCONNECTED,)),
    AUTHENTICATION_FAILED: frozenset((CONNECTING, DISCONNECTED)),
}

_DISCONNECTED_STATES: Final = frozenset((DISCONNECTED, AUTHENTICATION_FAILED))
_CONNECTED_STATES: Final = frozenset((CHECKING_API_VERSIONS, READY))
_PREPARING_STATES: Final = frozenset((CONNECTING, CHECKING_API_VERSIONS))

#: A lookup that takes longer than this no longer keeps a client from trying other nodes.
SLOW_LOOKUP_MS: Final = 1_000


class BackoffConfig(NamedTuple):
    """The backoffs between connection attempts and the timeouts of an attempt, in milliseconds."""

    reconnect_ms: int
    reconnect_max_ms: int
    connection_setup_timeout_ms: int
    connection_setup_timeout_max_ms: int


class _NodeConnectionState:
    def __init__(self, host: str, now_ms: int, reconnect_backoff_ms: int, connection_setup_timeout_ms: int) -> None:
        self.state = CONNECTING
        self.host = host
        self.authentication_error: AuthenticationError | None = None
        self.last_connect_attempt_ms = now_ms
        self.failed_attempts = 0
        self.failed_connect_attempts = 0
        self.reconnect_backoff_ms = reconnect_backoff_ms
        self.connection_setup_timeout_ms = connection_setup_timeout_ms
        self.throttle_until_ms = 0
        self.addresses: list[str] = []
        self.address_index = -1
        self.last_attempted_address: str | None = None

    def move_to(self, state: str, id: str) -> None:
        check_move(f"the connection to node {id}", MOVES, self.state, state)
        self.state = state

    def current_address(self) -> str | None:
        """Return the address to try, or None if the host must be looked up. The addresses are tried in turn."""
        if not self.addresses:
            return None
        self.last_attempted_address = self.addresses[self.address_index]
        return self.last_attempted_address

    def set_addresses(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self.address_index = 0
        # The host is also looked up again after a disconnect, so do not start with the address that just failed.
        if len(addresses) > 1 and addresses[0] == self.last_attempted_address:
            self.address_index = 1

    def move_to_next_address(self) -> None:
        if self.addresses:
            self.address_index = (self.address_index + 1) % len(self.addresses)
            if self.address_index == 0:
                self.addresses = []


class ClusterConnectionStates:
    """The state, backoff, timeout, throttle and addresses of the connection to each node, by node id.

    ``MOVES`` is the table of transitions. A node in CONNECTING may still be waiting for the lookup of its host.

    Thread: owner, but for ``explain``.
    """

    def __init__(self, config: BackoffConfig, log_context: LogContext, rng: random.Random | None = None) -> None:
        self._log = log_context.logger(__name__)
        self._reconnect_backoff = ExponentialBackoff(config.reconnect_ms, config.reconnect_max_ms, rng)
        self._connection_setup_timeout = ExponentialBackoff(
            config.connection_setup_timeout_ms, config.connection_setup_timeout_max_ms, rng
        )
        self._nodes: dict[str, _NodeConnectionState] = {}
        #: The lookups of hosts, in the order in which they started, by the nodes in CONNECTING that they are for.
        self.lookups: dict[str, Lookup] = {}

    # --- queries ---------------------------------------------------------------------------------------------------

    def is_known(self, id: str) -> bool:
        """Return True if the client has ever tried to connect to the node."""
        return id in self._nodes

    def can_connect(self, id: str, now_ms: int) -> bool:
        """Return True if there is no connection and the backoff has passed."""
        node = self._nodes.get(id)
        if node is None:
            return True
        waited_ms = now_ms - node.last_connect_attempt_ms
        return node.state in _DISCONNECTED_STATES and waited_ms >= node.reconnect_backoff_ms

    def connection_delay_ms(self, id: str, now_ms: int) -> int:
        """Return how many milliseconds to wait before the next attempt to connect.

        ``FOREVER_MS`` if the node is connected, because an event will end the wait.
        """
        node = self._nodes.get(id)
        if node is None:
            return 0
        if node.state == CONNECTING:
            return node.connection_setup_timeout_ms
        if node.state in _DISCONNECTED_STATES:
            return max(node.reconnect_backoff_ms - (now_ms - node.last_connect_attempt_ms), 0)
        return FOREVER_MS

    def throttle_delay_ms(self, id: str, now_ms: int) -> int:
        node = self._nodes.get(id)
        return 0 if node is None else max(node.throttle_until_ms - now_ms, 0)

    def poll_delay_ms(self, id: str, now_ms: int) -> int:
        """Return the rest of the throttle time of a connection in milliseconds, or else ``connection_delay_ms``."""
        throttle_ms = self.throttle_delay_ms(id, now_ms)
        if throttle_ms > 0 and self.is_connected(id):
            return throttle_ms
        return self.connection_delay_ms(id, now_ms)

    @property
    def is_any_connecting(self) -> bool:
        """True while any connection is being made, including the lookup of its host and of its API versions."""
        return any(node.state in _PREPARING_STATES for node in self._nodes.values())

    def state_of(self, id: str) -> str | None:
        """Return the state of the connection; None if the client has never tried to connect to the node."""
        node = self._nodes.get(id)
        return None if node is None else node.state

    def is_connecting(self, id: str) -> bool:
        """Return True while a connection is being made, including the lookup of its host."""
        return self.state_of(id) == CONNECTING

    def is_resolving(self, id: str) -> bool:
        """Return True while the host of a new connection is being looked up."""
        return id in self.lookups

    def is_lookup_slow(self, id: str, now_ms: int) -> bool:
        """Return True if the lookup of the host takes so long that other nodes should be tried meanwhile."""
        return id in self.lookups and now_ms - self._nodes[id].last_connect_attempt_ms > SLOW_LOOKUP_MS

    def finished_lookups(self) -> list[str]:
        """Return the nodes whose lookup has finished, successfully or not."""
        return [id for id, lookup in self.lookups.items() if lookup.done]

    def is_preparing_connection(self, id: str) -> bool:
        return self.state_of(id) in _PREPARING_STATES

    def is_ready(self, id: str, now_ms: int) -> bool:
        """Return True if the connection is ready and not throttled, so that requests can be sent."""
        node = self._nodes.get(id)
        return node is not None and node.state == READY and node.throttle_until_ms <= now_ms

    def has_ready_nodes(self, now_ms: int) -> bool:
        return any(node.state == READY and node.throttle_until_ms <= now_ms for node in self._nodes.values())

    def is_connected(self, id: str) -> bool:
        return self.state_of(id) in _CONNECTED_STATES

    def is_disconnected(self, id: str) -> bool:
        """Return True if there was a connection, or an attempt to connect, and there is none now."""
        return self.state_of(id) in _DISCONNECTED_STATES

    def authentication_error(self, id: str) -> AuthenticationError | None:
        node = self._nodes.get(id)
        return None if node is None else node.authentication_error

    def last_connect_attempt_ms(self, id: str) -> int:
        """Return when the last attempt started or the connection was lost.

        In milliseconds of the clock; far in the past for a node that was never tried.
        """
        node = self._nodes.get(id)
        return -FOREVER_MS if node is None else node.last_connect_attempt_ms

    def connection_setup_timeout_ms(self, id: str) -> int:
        return self._node(id).connection_setup_timeout_ms

    def _setup_due_ms(self) -> dict[str, int]:
        """Return the nodes in CONNECTING, and when each attempt exceeds its timeout."""
        return {
            id: node.last_connect_attempt_ms + node.connection_setup_timeout_ms
            for id, node in self._nodes.items()
            if node.state == CONNECTING
        }

    def nodes_with_connection_setup_timeout(self, now_ms: int) -> list[str]:
        return [id for id, due_ms in self._setup_due_ms().items() if now_ms > due_ms]

    @property
    def next_setup_timeout_ms(self) -> int:
        """The time until which no current attempt to connect times out; ``FOREVER_MS`` if there is none."""
        return min(self._setup_due_ms().values(), default=FOREVER_MS)

    def explain(self, id: str, now_ms: int) -> str:
        """Return the state of the connection in words. Thread: any."""
        node = self._nodes.get(id)
        if node is None:
            return "not connected, as nothing has been sent to it"
        state = node.state
        for_ms = now_ms - node.last_connect_attempt_ms
        if state == READY:
            throttle_ms = node.throttle_until_ms - now_ms
            return f"throttled by a quota for {shown_duration(throttle_ms)}" if throttle_ms > 0 else "connected"
        if state == CONNECTING:
            step = "its host is being looked up" if id in self.lookups else "connecting"
            return f"{step} for {shown_duration(for_ms)}"
        if state == CHECKING_API_VERSIONS:
            return "connected, and asked for its API versions"
        what = "authentication failed" if state == AUTHENTICATION_FAILED else "not connected"
        backoff_ms = node.reconnect_backoff_ms - for_ms
        if backoff_ms <= 0:
            return f"{what}, and not needed since" if state == DISCONNECTED else what
        return f"{what}; the next attempt is in {shown_duration(backoff_ms)} at the earliest"

    # --- moves -----------------------------------------------------------------------------------------------------

    def connecting(self, id: str, now_ms: int, host: str) -> None:
        """Start an attempt to connect, to the next address of ``host``."""
        node = self._nodes.get(id)
        if node is not None and node.host == host:
            node.move_to(CONNECTING, id)
            node.last_connect_attempt_ms = now_ms
            node.move_to_next_address()
        else:
            if node is not None:
                node.move_to(CONNECTING, id)
                self._log.info("Node %s moved from host %s to %s", id, node.host, host)
            self._nodes[id] = _NodeConnectionState(
                host, now_ms, self._reconnect_backoff.backoff(0), self._connection_setup_timeout.backoff(0)
            )

    def current_address(self, id: str) -> str | None:
        """Return the numeric address to connect to, or None if the host must be looked up first."""
        return self._node(id).current_address()

    def resolving(self, id: str, lookup: Lookup) -> None:
        """Note that the host is being looked up. The connection setup timeout limits the lookup, too."""
        self.lookups[id] = lookup

    def resolved(self, id: str, now_ms: int) -> None:
        """Take the addresses of a finished lookup. The connection setup timeout starts again.

        Raises:
            OSError: the lookup failed.
        """
        node = self._node(id)
        lookup = self.lookups.pop(id, None)
        if lookup is None:
            raise IllegalStateError(f"the host of node {id} is not being looked up")
        node.set_addresses(lookup.result())
        node.last_connect_attempt_ms = now_ms

    def disconnected(self, id: str, now_ms: int) -> None:
        """Note that the attempt failed or the connection was lost, and raise the backoff."""
        node = self._node(id)
        previous = node.state
        node.move_to(DISCONNECTED, id)
        self._end_lookup(id)
        node.last_connect_attempt_ms = now_ms
        self._raise_reconnect_backoff(node)
        if previous == CONNECTING:
            node.failed_connect_attempts += 1
            timeout_ms = self._connection_setup_timeout.backoff(node.failed_connect_attempts)
            node.connection_setup_timeout_ms = timeout_ms
        else:
            self._reset_connection_setup_timeout(node)
            if previous in _CONNECTED_STATES:
                node.addresses = []  # the addresses may have changed since, so look the host up again

    def checking_api_versions(self, id: str) -> None:
        """Note that the connection is made and the node is being asked for its API versions."""
        node = self._node(id)
        node.move_to(CHECKING_API_VERSIONS, id)
        self._reset_connection_setup_timeout(node)

    def ready(self, id: str) -> None:
        """Note that the connection can carry requests, and reset the backoff."""
        node = self._node(id)
        node.move_to(READY, id)
        node.authentication_error = None
        node.failed_attempts = 0
        node.reconnect_backoff_ms = self._reconnect_backoff.backoff(0)
        self._reset_connection_setup_timeout(node)

    def authentication_failed(self, id: str, now_ms: int, error: AuthenticationError) -> None:
        """Note that authentication failed and the connection was lost, and raise the backoff."""
        node = self._node(id)
        node.move_to(AUTHENTICATION_FAILED, id)
        node.authentication_error = error
        node.last_connect_attempt_ms = now_ms
        self._raise_reconnect_backoff(node)

    def throttle(self, id: str, until_ms: int) -> None:
        """Send nothing to the node before ``until_ms`` (KIP-219). A longer throttle stays in force."""
        node = self._nodes.get(id)
        if node is not None:
            node.throttle_until_ms = max(node.throttle_until_ms, until_ms)

    def remove(self, id: str) -> None:
        """Forget the node."""
        self._nodes.pop(id, None)
        self._end_lookup(id)

    def close(self) -> None:
        """Cancel the lookups in progress."""
        for id in list(self.lookups):
            self._end_lookup(id)

    def _end_lookup(self, id: str) -> None:
        lookup = self.lookups.pop(id, None)
        if lookup is not None:
            lookup.cancel()

    def _node(self, id: str) -> _NodeConnectionState:
        node = self._nodes.get(id)
        if node is None:
            raise IllegalStateError(f"there never was a connection to node {id}")
        return node

    def _raise_reconnect_backoff(self, node: _NodeConnectionState) -> None:
        node.reconnect_backoff_ms = self._reconnect_backoff.backoff(node.failed_attempts)
        node.failed_attempts += 1

    def _reset_connection_setup_timeout(self, node: _NodeConnectionState) -> None:
        node.failed_connect_attempts = 0
        node.connection_setup_timeout_ms = self._connection_setup_timeout.backoff(0)


# --- failures ---------------------------------------------------------------------------------------------------------

#: A new reason for the same outage is logged at most this often.
_NEW_REASON_INTERVAL_MS: Final = 10_000
#: The most addresses that a log line names.
_MOST_NAMED: Final = 5
_DIGITS = re.compile(r"\d+")
#: The most brokers that are listed.
_MOST_BROKERS = 50


class ConnectionFailure(NamedTuple):
    """The last failure of an address, and when the address stopped working."""

    address: str
    reason: str
    since_ms: int = 0

    def described(self, now_ms: int) -> str:
        """Return the address, the reason, and the duration of the outage if it is a second or more."""
        lasted_ms = now_ms - self.since_ms
        return f"{self.address}: {self.reason}" + (f", for {_seconds(lasted_ms)}" if lasted_ms >= 1000 else "")


class _Outage:
    """An address that does not work now: when it stopped working, and what has been logged."""

    def __init__(self, now_ms: int) -> None:
        self.since_ms = self.last_failure_ms = now_ms
        self.told = ""  # the last reason that was logged, without its digits
        self.told_ms = now_ms


class ConnectionFailures:
    """The addresses that do not work now, for error messages and for the log.

    A line is logged when an address stops working and when it works again. In between, a reminder of all such addresses
    is logged once a minute. The dict of failures is replaced, never changed, so that other threads can read it.

    Thread: owner writes, any reads.
    """

    def __init__(self) -> None:
        self._failures: dict[tuple[str, int], ConnectionFailure] = {}
        self._outages: dict[tuple[str, int], _Outage] = {}
        self._lost: set[tuple[str, int]] = set()
        self._reminder_ms = 0

    def lost(self, node: Node) -> bool:
        """Record that a connection broke. Return True for the first one to this address since a connection was made."""
        address = node.host, node.port
        is_first = address not in self._lost
        self._lost.add(address)
        return is_first

    def record(self, node: Node, reason: str, now_ms: int, ip: str | None = None) -> bool:
        """Record a failure. Return True if it is to be logged: a new outage, or a new reason for it."""
        where = shown_address(node.host, node.port)
        if ip is not None and ip != node.host:
            where += f" ({ip})"
        key = node.host, node.port
        outage = self._outages.get(key)
        if outage is None:
            if not self._outages:
                self._reminder_ms = now_ms + REMINDER_INTERVAL_MS
            outage = self._outages[key] = _Outage(now_ms)
        self._failures = {**self._failures, key: ConnectionFailure(where, reason, outage.since_ms)}
        outage.last_failure_ms = now_ms
        kind = _DIGITS.sub("", reason)
        is_first = not outage.told
        if is_first or (kind != outage.told and now_ms - outage.told_ms >= _NEW_REASON_INTERVAL_MS):
            outage.told, outage.told_ms = kind, now_ms
            return True
        return False

    def reminder(self, now_ms: int) -> str:
        """Return the text of a reminder for the log, or an empty string if none is due."""
        if not self._outages or now_ms < self._reminder_ms:
            return ""
        self._reminder_ms = now_ms + REMINDER_INTERVAL_MS
        lasting: list[str] = []
        for address, outage in self._outages.items():
            # After an interval without a failure, the client no longer tries to connect there.
            if now_ms - outage.last_failure_ms < REMINDER_INTERVAL_MS:
                failure = self._failures[address]
                lasting.append(f"{failure.address} for {_seconds(now_ms - outage.since_ms)} ({failure.reason})")
        return _listed(lasting)

    def clear(self, node: Node, now_ms: int) -> int | None:
        """Record that an address works.

        Return the duration of its outage in milliseconds, or None if there was none.
        """
        key = node.host, node.port
        self._lost.discard(key)
        if key in self._failures:
            self._failures = {address: failure for address, failure in self._failures.items() if address != key}
        outage = self._outages.pop(key, None)
        return None if outage is None else now_ms - outage.since_ms

    def cover(self, nodes: Sequence[Node]) -> bool:
        """Return True if none of the addresses of ``nodes`` works now."""
        return all((node.host, node.port) in self._failures for node in nodes)

    def unreachable(self) -> list[ConnectionFailure]:
        """Return the last failure of each address that does not work now."""
        return list(self._failures.values())

    def of_node(self, node: Node) -> ConnectionFailure | None:
        """Return the last failure of the node's address, or None if it works or was not tried."""
        return self._failures.get((node.host, node.port))

    def report(self, cluster: Cluster, bootstrap: Sequence[tuple[str, int]], now_ms: int) -> str:
        """Return a sentence for an error message, such as ``2 of 3 bootstrap servers could not be reached (...)``.

        Empty if every known node can be reached or was not tried.
        """
        failures = self._failures
        addresses = {(node.host, node.port) for node in cluster.nodes}
        failed = {address: failure for address, failure in failures.items() if address in addresses}
        kind = "bootstrap servers" if cluster.is_bootstrap_configured else "brokers"
        if not failed:
            addresses, kind = set(bootstrap), "bootstrap servers"
            failed = {address: failure for address, failure in failures.items() if address in addresses}
        if not failed:
            return self._report_of_lost(addresses) if cluster.is_bootstrap_configured else ""
        details = _listed([failure.described(now_ms) for failure in failed.values()])
        report = f"{len(failed)} of {len(addresses)} {kind} could not be reached ({details})"
        if kind == "bootstrap servers" and len(failed) == len(addresses):
            report += f". {BOOTSTRAP_ADVICE}"
        if kind == "brokers" and not failed.keys() & set(bootstrap):
            report += (
                ". The bootstrap servers gave these addresses: "
                "check that the brokers' advertised.listeners can be reached from here"
            )
        return report

    def _report_of_lost(self, addresses: set[tuple[str, int]]) -> str:
        """Return a sentence about the addresses that accept connections, and close them before they give metadata."""
        lost = [shown_address(*address) for address in sorted(addresses & self._lost)]
        if not lost:
            return ""
        return (
            f"{len(lost)} of {len(addresses)} bootstrap servers closed the connection before they answered a request "
            f"for metadata ({_listed(lost)}). Does the listener expect TLS or SASL? Check security.protocol"
        )


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms // 1000} s"


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_NAMED
    return "; ".join(texts[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def explain_connections(
    nodes: Mapping[str, Node],
    states: ClusterConnectionStates,
    in_flight: InFlightRequests,
    failures: ConnectionFailures,
    now_ms: int,
) -> list[str]:
    """Return a line for each node: the state of its connection, its requests in flight, and its last failure."""
    lines: list[str] = []
    for id, node in list(nodes.items())[:_MOST_BROKERS]:
        line = f"{shown_node(node)}: {states.explain(id, now_ms)}"
        requests = in_flight.of_node(id)
        if requests:
            oldest = requests[0]
            name = ApiKeys.name_of(oldest.request.api_key)
            since = shown_duration(now_ms - oldest.send_ms)
            line += f"; {counted(len(requests), 'request')} in flight, the oldest ({name}) for {since}"
        failure = failures.of_node(node)
        if failure is not None:
            line += f"; failing for {shown_duration(now_ms - failure.since_ms)}: {failure.reason}"
        lines.append(line)
    if len(nodes) > _MOST_BROKERS:
        lines.append(f"and {len(nodes) - _MOST_BROKERS} more")
    return lines or ["none: no connection has been needed yet"]
