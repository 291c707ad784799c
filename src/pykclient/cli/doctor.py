"""``pykclient doctor``: each step of a connection to a cluster, and what to do about the first that fails.

The steps of a connection, one by one, as ``pykclient doctor`` tries them.

This module opens sockets of its own: a client would retry, and would not tell where it failed.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from pykclient import implementation
from pykclient.admin.kafka_admin_client import KafkaAdminClient
from pykclient.cli import settings
from pykclient.cli.console import emit
from pykclient.cli.options import Command, pass_session
from pykclient.cli.session import Session
from pykclient.errors import AuthenticationError, ConfigError, IllegalSaslStateError, KafkaError, SslAuthenticationError
from pykclient.network.failures import reason_of, shown_address
from pykclient.network.host_resolver import DefaultHostResolver
from pykclient.network.tls.ssl_factory import checks_host_names, client_ssl_factory
from pykclient.network.tls.ssl_failures import handshake_failure, without_tls
from pykclient.network.tls.ssl_transport_layer import REQUEST, Answer

if TYPE_CHECKING:
    from pykclient.admin.admin import Admin
    from pykclient.config.admin_config import AdminClientConfig
    from pykclient.types import Node

#: The longest wait of each step.
_MOST_MS: Final = 5_000


class Check(NamedTuple):
    """The result of one step. ``advice`` says what to do if it failed."""

    step: str
    target: str
    is_ok: bool
    detail: str
    advice: str = ""


class Listener(NamedTuple):
    """An address to check. ``broker`` is the broker that advertises it; None for an address from the configuration."""

    host: str
    port: int
    broker: int | None = None

    @property
    def shown(self) -> str:
        return shown_address(self.host, self.port)


def connection_checks(listener: Listener, config: Mapping[str, Any], timeout_ms: int) -> Iterator[Check]:
    """Try name resolution, TCP and, if it is configured, TLS; stop at the first step that fails.

    Raises:
        ConfigError: the settings for TLS cannot be used.
    """
    timeout_ms = min(timeout_ms, _MOST_MS)
    found = _resolved(listener, timeout_ms)
    yield found[0]
    for address in found[1]:
        check, family = _connected(listener, address, timeout_ms)
        yield check
        if family is None:
            continue
        if config["security.protocol"].upper().endswith("SSL"):
            yield _tls(listener, family, address, config, timeout_ms)
        return


def _resolved(listener: Listener, timeout_ms: int) -> tuple[Check, list[str]]:
    done = threading.Event()
    lookup = DefaultHostResolver().look_up(listener.host, done.set)
    if not lookup.done:
        done.wait(timeout_ms / 1000)
    if listener.broker is None:
        advice = "Check the name in bootstrap.servers, and this machine's DNS or /etc/hosts"
    else:
        advice = (
            f"Broker {listener.broker} tells clients to use this name: change its advertised.listeners to a name that "
            "resolves here, or make it resolve in DNS or /etc/hosts"
        )
    if not lookup.done:
        return Check("DNS", listener.host, False, f"no answer within {timeout_ms / 1000:g} s", advice), []
    try:
        addresses = lookup.result()
    except OSError as error:
        return Check("DNS", listener.host, False, reason_of(error), advice), []
    return Check("DNS", listener.host, True, ", ".join(addresses)), addresses


def _connected(listener: Listener, address: str, timeout_ms: int) -> tuple[Check, int | None]:
    """Return the check of TCP, and the address family if the connection succeeded."""
    target = shown_address(address, listener.port)
    try:
        connection = socket.create_connection((address, listener.port), timeout_ms / 1000)
    except TimeoutError:
        advice = "A firewall drops the packets, or the address is of another network: check both"
        return Check("TCP", target, False, f"no answer within {timeout_ms / 1000:g} s", advice), None
    except OSError as error:
        return Check("TCP", target, False, reason_of(error), _tcp_advice(listener)), None
    with connection:
        local = connection.getsockname()[0]
        return Check("TCP", target, True, f"connected from {local}"), connection.family


def _tcp_advice(listener: Listener) -> str:
    if listener.broker is None:
        return "Check that the broker runs, and that the port in bootstrap.servers is the one of its listener"
    return (
        f"Broker {listener.broker} tells clients to use this address: check that it can be reached from here, or "
        "change its advertised.listeners"
    )


def _tls(listener: Listener, family: int, address: str, config: Mapping[str, Any], timeout_ms: int) -> Check:
    """Try a TLS handshake on a connection of its own.

    The socket is wrapped before it connects: ``wrap_socket`` leaves a connection open that the peer has reset already.
    """
    context = client_ssl_factory(config).current().context
    host = listener.host if checks_host_names(config) or context.check_hostname else None
    try:
        with (
            socket.socket(family) as plain,
            context.wrap_socket(plain, server_hostname=host or listener.host) as wrapped,
        ):
            wrapped.settimeout(timeout_ms / 1000)
            wrapped.connect((address, listener.port))
            cipher = wrapped.cipher()
            detail = f"{wrapped.version()}, {cipher[0] if cipher else 'no cipher'}"
            certificate = wrapped.getpeercert() or {}
            if until := certificate.get("notAfter"):
                detail += f", certificate valid until {until}"
            return Check("TLS", listener.shown, True, detail)
    except OSError as error:
        found: Exception = error
        if isinstance(error, ssl.SSLError):
            found = handshake_failure(error, listener.shown, listener.host, is_first_answer=True)
        if not isinstance(found, SslAuthenticationError) and _answers_in_plaintext(address, listener.port, timeout_ms):
            found = without_tls(listener.shown)
        return tls_failure(listener.shown, reason_of(found) if found is error else str(found))


def tls_failure(target: str, text: str) -> Check:
    """Return the check for a client's TLS error, whose text may end with advice."""
    cause, _, advice = text.partition(". To mend it: ")
    return Check("TLS", target, False, cause, advice[:1].upper() + advice[1:] or _TLS_ADVICE)


def _answers_in_plaintext(address: str, port: int, timeout_ms: int) -> bool:
    """Ask, as clients do, whether a peer that ended a connection without an answer to TLS is a Kafka listener."""
    answer = Answer()
    try:
        with socket.create_connection((address, port), timeout_ms / 1000) as connection:
            connection.sendall(REQUEST)
            while not answer.is_complete and (received := connection.recv(64)):
                answer.feed(memoryview(received))
    except OSError:
        return False
    return answer.is_of_kafka


_TLS_ADVICE: Final = "Check that the port is that of a listener with TLS, else set security.protocol without SSL"


_MOST_NAMED: Final = 5
_CREDENTIALS_ADVICE: Final = (
    "Check sasl.mechanism, sasl.username and sasl.password; on the broker, whether the user exists for this mechanism"
)


@click.command(cls=Command)
@pass_session
def doctor(session: Session, /) -> int:
    """Check a connection step by step: DNS, TCP, TLS, SASL, API versions, metadata, each advertised listener.

    The exit code is 0 if all steps succeed. Otherwise the command says which step fails, and what to do about it.
    """
    if not session.is_debug:
        session.on_level(logging.ERROR)  # the checks tell what the client would warn of
    checks = []
    for check in _checks(session):
        checks.append(check)
        if not session.is_json:
            _print(check)
    failed = [check for check in checks if not check.is_ok]
    if session.is_json:
        emit(session, [check._asdict() for check in checks], ())
    elif failed:
        click.echo(f"\n{len(failed)} of {len(checks)} checks failed. Begin with the first: {failed[0].step}.")
    else:
        click.echo(f"\nAll {len(checks)} checks succeeded.")
    return 1 if failed else 0


def _print(check: Check) -> None:
    mark = click.style("ok    ", fg="green") if check.is_ok else click.style("FAILED", fg="red", bold=True)
    click.echo(f"{mark}  {check.step:<13} {check.target}: {check.detail}")
    if check.advice:
        click.echo(f"        -> {check.advice}")


def _checks(session: Session) -> Iterator[Check]:
    from pykclient.config.admin_config import AdminClientConfig
    from pykclient.network.client_utils import parse_addresses

    timeout_ms = min(session.timeout_ms, _MOST_MS)
    waits = {"default.api.timeout.ms": timeout_ms, "request.timeout.ms": timeout_ms}
    chosen = settings.for_client(AdminClientConfig, session.settings(), {}, waits)
    config = AdminClientConfig(chosen)
    yield Check("configuration", "settings", True, _summary(config))
    yield _implementation()
    brokers: tuple[Node, ...] = ()
    for host, port in parse_addresses(config["bootstrap.servers"]):
        listener = Listener(host, port)
        last: Check | None = None
        for check in _guarded(listener, config, timeout_ms):
            yield check
            last = check
        if last is None or not last.is_ok:
            continue
        with _Client({**chosen, "bootstrap.servers": listener.shown}) as admin:
            for check, found in _protocol_checks(admin, listener.shown, config):
                brokers = found or brokers
                yield check
    if brokers:
        yield from _broker_checks(chosen, brokers, config, timeout_ms)


def _implementation() -> Check:
    """Tell whether the compiled code runs. Without it a client works, so this does not fail."""
    if implementation.NAME == "c":
        return Check("code", "pykclient", True, "compiled")
    advice = f"It is several times slower: {implementation.REASON}"
    return Check("code", "pykclient", True, "pure Python, without the compiled modules", advice)


def _summary(config: AdminClientConfig) -> str:
    text = f"security.protocol {config['security.protocol']}"
    return f"{text}, sasl.mechanism {config['sasl.mechanism']}" if _uses_sasl(config) else text


def _uses_sasl(config: AdminClientConfig) -> bool:
    return bool(config["security.protocol"].upper().startswith("SASL_"))


def _guarded(listener: Listener, config: AdminClientConfig, timeout_ms: int) -> Iterator[Check]:
    try:
        yield from connection_checks(listener, config, timeout_ms)
    except ConfigError as error:
        yield Check("TLS", listener.shown, False, str(error), "Correct the settings that begin with ssl.")


def _refused(error: AuthenticationError, target: str) -> Check:
    """Return the check of a connection that TLS or SASL has ended.

    With TLS 1.3 a broker refuses the client's certificate after the client has completed the handshake.
    """
    if isinstance(error, SslAuthenticationError):
        return tls_failure(target, str(error))
    # If the listener does not use SASL, the error's text has better advice.
    advice = "" if isinstance(error, IllegalSaslStateError) else _CREDENTIALS_ADVICE
    return Check("SASL", target, False, str(error), advice)


class _Client(KafkaAdminClient):
    """An admin client that tells which brokers it has heard of."""

    def brokers(self) -> tuple[Node, ...]:
        """Return the brokers of the metadata; none before the first metadata."""
        cluster = self._components.metadata.fetch()
        return () if cluster.is_bootstrap_configured else tuple(cluster.nodes)


def _protocol_checks(
    client: _Client, target: str, config: AdminClientConfig
) -> Iterator[tuple[Check, tuple[Node, ...]]]:
    """Authenticate, ask for API versions and for metadata."""
    detail = "the broker answers"
    try:
        detail = f"the broker supports {len(client.api_versions())} APIs"
    except AuthenticationError as error:
        yield _refused(error, target), ()
        return
    except KafkaError as error:
        if not client.brokers():  # else the broker has answered, and those that it named cannot be reached
            advice = (
                "What answers there is no Kafka listener with this security.protocol: check the port, and whether the "
                "listener expects TLS or SASL"
            )
            yield Check("API versions", target, False, str(error), advice), ()
            return
    if _uses_sasl(config):
        yield Check("SASL", target, True, f"authenticated by {config['sasl.mechanism']}"), ()
    yield Check("API versions", target, True, detail), ()
    brokers = client.brokers()
    names = ", ".join(f"{node.id} at {node.host}:{node.port}" for node in brokers[:_MOST_NAMED])
    more = f" and {len(brokers) - _MOST_NAMED} more" if len(brokers) > _MOST_NAMED else ""
    yield Check("metadata", target, True, f"{_counted(len(brokers), 'broker')}: {names}{more}"), brokers


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _broker_checks(
    chosen: dict[str, Any], brokers: Sequence[Node], config: AdminClientConfig, timeout_ms: int
) -> Iterator[Check]:
    """Check the listener that each broker advertises, and the partitions."""
    reached = []
    for node in brokers:
        listener = Listener(node.host, node.port, node.id)
        last: Check | None = None
        for check in _guarded(listener, config, timeout_ms):
            yield check._replace(target=f"broker {node.id}, {check.target}")
            last = check
        if last is not None and last.is_ok:
            reached.append(node.id)
    with _Client(chosen) as client:
        for node_id in reached:
            yield _broker_answer(client, node_id)
        if reached:
            yield _partitions(client.typed)


def _broker_answer(client: _Client, node_id: int) -> Check:
    target = f"broker {node_id}"
    try:
        client.get_broker_version_data(node_id)
    except AuthenticationError as error:
        return _refused(error, target)
    except KafkaError as error:
        advice = "Check that the listener of this broker has the same security.protocol as the others"
        return Check("request", target, False, str(error), advice)
    return Check("request", target, True, "the broker answers")


def _partitions(admin: Admin) -> Check:
    """Check that partitions have leaders, and all of their replicas in sync."""
    try:
        names = [topic.name for topic in admin.list_topics(list_internal=True)]
        topics = admin.describe_topics(names).succeeded if names else {}
    except KafkaError as error:
        return Check("partitions", "topics", False, str(error), "Ask for the operation DESCRIBE on topics")
    parts = [part for topic in topics.values() for part in topic.partitions]
    leaderless = sum(part.leader is None for part in parts)
    behind = sum(len(part.in_sync_replicas) < len(part.replicas) for part in parts)
    detail = f"{len(parts)} of {len(topics)} topics: {leaderless} without a leader, {behind} under-replicated"
    advice = "Start the brokers that are down; `pykclient topics list` shows the topics" if leaderless or behind else ""
    return Check("partitions", "topics", not leaderless and not behind, detail, advice)
