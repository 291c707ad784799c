"""The steps of a connection, one by one, as ``pykclient doctor`` tries them.

This module opens sockets of its own: a client would retry, and would not tell where it failed.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pykclient.errors import SslAuthenticationError
from pykclient.network.connection_failures import reason_of, shown_address
from pykclient.network.host_resolver import DefaultHostResolver
from pykclient.network.tls.ssl_factory import checks_host_names, client_ssl_factory
from pykclient.network.tls.ssl_failures import handshake_failure, without_tls
from pykclient.network.tls.ssl_transport_layer import REQUEST, Answer

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
    """Return the check for a client's error about TLS, whose text may end with advice."""
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
