"""Errors about missing permissions that say whose they are, what is missing, and how to grant it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

_ANONYMOUS: Final = "User:ANONYMOUS"

#: The options of kafka-acls for each kind of resource.
_OPTIONS: Final = {"topic": "--topic", "group": "--group", "transactional id": "--transactional-id"}

_KINDS: Final = {
    TopicAuthorizationError: "topic",
    GroupAuthorizationError: "group",
    TransactionalIdAuthorizationError: "transactional id",
}


def principal_of(config: Mapping[str, Any]) -> str | None:
    """Return the principal that brokers give a client, or None if the configuration does not tell it.

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
    """Return the error of topics for which ``operation`` is missing; ``doing`` is what needed it."""
    return TopicAuthorizationError(_text(principal, "topic", sorted(topics), operation, doing))


def group_denied(principal: str | None, group_id: str, operation: str = "READ") -> GroupAuthorizationError:
    """Return the error of a group for which ``operation`` is missing."""
    return GroupAuthorizationError(_text(principal, "group", [group_id], operation))


def transactional_id_denied(
    principal: str | None, transactional_id: str, doing: str = ""
) -> TransactionalIdAuthorizationError:
    """Return the error of a transactional id that the client may not use."""
    return TransactionalIdAuthorizationError(_text(principal, "transactional id", [transactional_id], "WRITE", doing))


def idempotence_denied(principal: str | None) -> ClusterAuthorizationError:
    """Return the error of an idempotent producer that may not write anywhere."""
    return ClusterAuthorizationError(
        f"{_who(principal)} is not authorized to write with idempotence: that needs WRITE on at least one topic, or, "
        "on brokers before Kafka 2.8, IDEMPOTENT_WRITE on the cluster. To mend it: "
        f"{_command(principal, 'topic', ['<topic>'], 'WRITE')}, or set enable.idempotence=false"
    )


def call_denied(
    principal: str | None, call: str, error: AuthorizationError, name: str | None = None
) -> AuthorizationError:
    """Return the error of an admin call, which also says whose permission is missing.

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
