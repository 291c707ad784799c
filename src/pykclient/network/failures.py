"""Errors of connections and of permissions that say what to do, and exceptions of signal handlers among them.

CPython runs signal handlers on the main thread, between any two instructions. The usual way to limit the time of a call
is an alarm whose handler raises TimeoutError, which is an OSError. So code that takes an OSError for the end of a
connection, or that continues after any exception, would lose it now and then, and the call would never end.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import threading
from collections.abc import Iterable, Mapping
from types import CodeType, TracebackType
from typing import Any, Final

from pykclient.config.config_def import Password
from pykclient.errors import (
    AuthorizationError,
    ClusterAuthorizationError,
    ConfigError,
    GroupAuthorizationError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from pykclient.network import channel_state
from pykclient.network.channel_state import ChannelState
from pykclient.types import Node


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


#: Connections to coordinators are separate. Their node ids count down from 2^31 - 1.
COORDINATOR_ID_BASE: Final = (1 << 31) - 1
#: A broker's second connection for fetches has a node id that counts down from here.
SPARE_ID_BASE: Final = 1 << 32
_LOWEST_COORDINATOR_ID: Final = 1 << 30
#: The next step if no bootstrap server can be reached.
BOOTSTRAP_ADVICE: Final = "Check that the brokers are up and that bootstrap.servers names them"
#: The interval of the log's reminders of a problem that persists.
REMINDER_INTERVAL_MS: Final = 60_000


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
