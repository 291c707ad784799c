"""Errors of connections and of permissions that say what to do, and exceptions of signal handlers among them.

CPython runs signal handlers on the main thread, between any two instructions. The usual way to limit the time of a call
is an alarm whose handler raises TimeoutError, which is an OSError. So code that takes an OSError for the end of a
connection, or that continues after any exception, would lose it now and then, and the call would never end.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykclient.config.config_def import Password
from pykclient.errors import (
    AuthorizationError,
    ClusterAuthorizationError,
    ConfigError,
    GroupAuthorizationError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from pykclient.explanation import counted, shown_duration
from pykclient.network import channel_state
from pykclient.network.channel_state import ChannelState
from pykclient.network.cluster import Cluster
from pykclient.protocol.api_keys import ApiKeys
from pykclient.types import Node

if TYPE_CHECKING:
    from pykclient.network.client_request import InFlightRequests
    from pykclient.network.cluster_connection_states import ClusterConnectionStates


def raise_if_of_signal_handler(error: BaseException) -> None:
    """Raise the exception of a Python signal handler if ``error`` is it or was raised from it."""
    if threading.current_thread() is not threading.main_thread():
        return
    handlers = _handlers()
    cause: BaseException | None = error
    while handlers and cause is not None:
        traceback = cause.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code in handlers:
                raise cause
            traceback = traceback.tb_next
        cause = cause.__cause__


def _handlers() -> set[CodeType]:
    """Return the code of all signal handlers of this process."""
    import signal  # only where an error has occurred

    return {
        code
        for number in signal.valid_signals()
        if callable(handler := signal.getsignal(number)) and (code := _code_of(handler)) is not None
    }


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    for function in (handler, vars(type(handler)).get("__call__")):
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


class SuppressOSErrors(contextlib.AbstractContextManager[None]):
    """Suppresses OSErrors of the block, except those raised by a signal handler."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, OSError):
            return False
        raise_if_of_signal_handler(error)
        return True


_ANONYMOUS: Final = "User:ANONYMOUS"
#: The options of kafka-acls for each kind of resource.
_OPTIONS: Final = {"topic": "--topic", "group": "--group", "transactional id": "--transactional-id"}
_KINDS: Final = {
    TopicAuthorizationError: "topic",
    GroupAuthorizationError: "group",
    TransactionalIdAuthorizationError: "transactional id",
}


def principal_of(config: Mapping[str, Any]) -> str | None:
    """Return the client's principal on the brokers, or None if the configuration does not determine it.

    Brokers may map names to other principals, but do not do so by default.
    """
    protocol: str = config["security.protocol"]
    if not protocol.startswith("SASL_"):
        # The principal of a client with a certificate depends on the brokers' ssl.principal.mapping.rules.
        return _ANONYMOUS if protocol == "PLAINTEXT" else None
    if config["sasl.mechanism"] not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        return None
    name = config["sasl.username"]
    jaas = config["sasl.jaas.config"]
    if isinstance(jaas, Password):
        from pykclient.config.jaas_config import parse_jaas_config

        try:
            options = parse_jaas_config(jaas).options
        except ConfigError:
            return None  # the login reports it
        # The principal of a delegation token is its owner, whom the client does not know.
        name = None if options.get("tokenauth", "").lower() == "true" else options.get("username")
    return f"User:{name}" if name else None


def topics_denied(
    principal: str | None, topics: Iterable[str], operation: str, doing: str = ""
) -> TopicAuthorizationError:
    """Return the error for topics without permission for ``operation``, which ``doing`` needs."""
    return TopicAuthorizationError(_text(principal, "topic", sorted(topics), operation, doing))


def group_denied(principal: str | None, group_id: str, operation: str = "READ") -> GroupAuthorizationError:
    """Return the error for a group without permission for ``operation``."""
    return GroupAuthorizationError(_text(principal, "group", [group_id], operation))


def transactional_id_denied(
    principal: str | None, transactional_id: str, doing: str = ""
) -> TransactionalIdAuthorizationError:
    """Return the error of a transactional id that the client may not use."""
    return TransactionalIdAuthorizationError(_text(principal, "transactional id", [transactional_id], "WRITE", doing))


def idempotence_denied(principal: str | None) -> ClusterAuthorizationError:
    """Return the error for an idempotent producer without permission to write to any topic."""
    return ClusterAuthorizationError(
        f"{_who(principal)} is not authorized to write with idempotence: that needs WRITE on at least one topic, or, "
        "on brokers before Kafka 2.8, IDEMPOTENT_WRITE on the cluster. To mend it: "
        f"{_command(principal, 'topic', ['<topic>'], 'WRITE')}, or set enable.idempotence=false"
    )


def call_denied(
    principal: str | None, call: str, error: AuthorizationError, name: str | None = None
) -> AuthorizationError:
    """Return the error for an admin call, naming the principal that lacks a permission.

    ``name`` is that of the topic, group or transactional id that the call was about.
    """
    kind = "cluster" if isinstance(error, ClusterAuthorizationError) else _KINDS.get(type(error), "resource")
    option = _OPTIONS.get(kind, "--cluster" if kind == "cluster" else "<resource>")
    if kind in _OPTIONS:
        option += f" {_quoted(name, '<name>')}"
    explained = type(error)(
        f"{_who(principal)} is not authorized for {call}: {str(error).rstrip('.')}. To mend it: add an ACL that allows "
        f"the operation on the {kind}, as in kafka-acls --add --allow-principal {_quoted(principal, '<principal>')} "
        f"--operation <operation> {option}"
    )
    explained.__cause__ = error
    return explained


def _text(principal: str | None, kind: str, names: list[str], operation: str, doing: str = "") -> str:
    shown = ", ".join(map(repr, names))
    purpose = f" {doing}" if doing else ""
    return (
        f"{_who(principal)} is not authorized for {operation} on {kind}{'s' * (len(names) > 1)} {shown}{purpose}. "
        f"To mend it: {_command(principal, kind, names, operation)}"
    )


def _who(principal: str | None) -> str:
    return principal or "the principal of this client"


def _command(principal: str | None, kind: str, names: list[str], operation: str) -> str:
    resources = " ".join(f"{_OPTIONS[kind]} {_quoted(name)}" for name in names)
    return f"kafka-acls --add --allow-principal {_quoted(principal, '<principal>')} --operation {operation} {resources}"


def _quoted(word: str | None, unknown: str = "") -> str:
    """Return a word for a shell; ``unknown`` is a placeholder."""
    if not word or word == "<topic>":
        return word or unknown
    import shlex

    return shlex.quote(word)


_ADVICE = {
    errno.ECONNREFUSED: "nothing listens there",
    errno.EHOSTUNREACH: "check the address and the route",
    errno.ENETUNREACH: "check the address and the route",
}


class ConnectionFailure(NamedTuple):
    """The last failure of an address, and when the address stopped working."""

    address: str
    reason: str
    since_ms: int = 0

    def described(self, now_ms: int) -> str:
        """Return the address, the reason, and the duration of the outage if it is a second or more."""
        lasted_ms = now_ms - self.since_ms
        return f"{self.address}: {self.reason}" + (f", for {_seconds(lasted_ms)}" if lasted_ms >= 1000 else "")


def shown_address(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reason_of(error: BaseException) -> str:
    """Return the text of an error of the system or of the protocol, with advice for some of them."""
    if isinstance(error, OSError) and error.strerror:
        advice = _ADVICE.get(error.errno or 0)
        return f"{error.strerror}, {advice}" if advice else error.strerror
    return str(error) or type(error).__name__


def shown_text(text: str, limit: int) -> str:
    """Return a peer's text in a form that is safe to log: printable, on one line, of ``limit`` characters at most."""
    printable = "".join(character if character.isprintable() else "?" for character in text[:limit])
    return printable if len(text) <= limit else f"{printable}..."


def cause_of(state: ChannelState) -> str:
    """Return the reason why a connection ended."""
    return reason_of(state.cause) if state.cause is not None else "connection lost"


def setup_failure(state: ChannelState) -> str:
    """Return the reason why a connection never became ready."""
    cause = cause_of(state)
    if state.state == channel_state.AUTHENTICATE:
        return f"{cause} during authentication (wrong security.protocol, or a firewall that blocks Kafka)"
    if state.state == channel_state.READY and isinstance(state.cause, ConnectionResetError):
        return f"{cause} before its first response (does the listener expect TLS or SASL? see security.protocol)"
    return cause


class _Outage:
    """An address that does not work now: when it stopped working, and what has been logged."""

    __slots__ = ("last_failure_ms", "since_ms", "told", "told_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = self.last_failure_ms = now_ms
        self.told = ""  # the last reason that was logged, without its digits
        self.told_ms = now_ms


#: Connections to coordinators are separate. Their node ids count down from 2^31 - 1.
COORDINATOR_ID_BASE: Final = (1 << 31) - 1
#: A broker's second connection for fetches has a node id that counts down from here.
SPARE_ID_BASE: Final = 1 << 32
_LOWEST_COORDINATOR_ID: Final = 1 << 30
#: The next step if no bootstrap server can be reached.
BOOTSTRAP_ADVICE: Final = "Check that the brokers are up and that bootstrap.servers names them"
#: The interval of the log's reminders of a problem that persists.
REMINDER_INTERVAL_MS: Final = 60_000
#: A new reason for the same outage is logged at most this often.
_NEW_REASON_INTERVAL_MS: Final = 10_000
#: The most addresses that a log line names.
_MOST_NAMED: Final = 5
_DIGITS = re.compile(r"\d+")


def shown_node(node: Node) -> str:
    """Return the name of a node for messages: its role, its id and its address."""
    address = shown_address(node.host, node.port) if node.host else "no address"
    if node.id < 0:
        return f"bootstrap server {address}"
    if node.id > COORDINATOR_ID_BASE:
        return f"broker {SPARE_ID_BASE - node.id} ({address})"
    if node.id >= _LOWEST_COORDINATOR_ID:
        return f"group coordinator (broker {COORDINATOR_ID_BASE - node.id}, {address})"
    return f"broker {node.id} ({address})"


def shown_node_id(node_id: str) -> str:
    """Return the name of a node for messages, if only the id of its connection is known."""
    id = int(node_id)
    if id < 0:
        return "a bootstrap server"
    if id > COORDINATOR_ID_BASE:
        return f"broker {SPARE_ID_BASE - id}"
    return (
        f"broker {id}" if id < _LOWEST_COORDINATOR_ID else f"the group coordinator (broker {COORDINATOR_ID_BASE - id})"
    )


class ConnectionFailures:
    """The addresses that do not work now, for error messages and for the log.

    A line is logged when an address stops working and when it works again. In between, a reminder of all such addresses
    is logged once a minute. The dict of failures is replaced, never changed, so that other threads can read it.

    Thread: owner writes, any reads.
    """

    __slots__ = ("_failures", "_lost", "_outages", "_reminder_ms")

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


#: The most brokers that are listed.
_MOST_BROKERS = 50
#: Older than any metadata of a client.
_NEVER_MS = 1 << 61


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


def explain_metadata(
    cluster: Cluster, bootstrap: Sequence[tuple[str, int]], age_ms: int, *, is_update_requested: bool
) -> str:
    """Return a line about the age and content of the metadata."""
    wanted = "; an update is requested" if is_update_requested else ""
    if cluster.is_bootstrap_configured or age_ms > _NEVER_MS:
        servers = ", ".join(shown_address(host, port) for host, port in bootstrap)
        return f"none received; the bootstrap servers are {servers or 'unknown'}{wanted}"
    leaderless = sum(
        partition.leader is None for topic in cluster.topics for partition in cluster.partitions_for_topic(topic)
    )
    return (
        f"{counted(len(cluster.nodes), 'broker')}, {counted(len(cluster.topics), 'topic')}, "
        f"{counted(leaderless, 'partition')} without a leader, {shown_duration(age_ms)} old{wanted}"
    )
