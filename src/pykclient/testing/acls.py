"""Access control lists of an embedded cluster: bindings, filters, and their description by applications."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from pykclient.argument_values import elements, shown
from pykclient.errors import ConfigError

# Java: ResourceType.
TOPIC: Final = 2
GROUP: Final = 3
CLUSTER: Final = 4
TRANSACTIONAL_ID: Final = 5
DELEGATION_TOKEN: Final = 6
USER: Final = 7

#: The name of the only resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"

# Java: AclOperation.
READ: Final = 3
WRITE: Final = 4
CREATE: Final = 5
DELETE: Final = 6
ALTER: Final = 7
DESCRIBE: Final = 8
CLUSTER_ACTION: Final = 9
DESCRIBE_CONFIGS: Final = 10
ALTER_CONFIGS: Final = 11
IDEMPOTENT_WRITE: Final = 12
CREATE_TOKENS: Final = 13
DESCRIBE_TOKENS: Final = 14
TWO_PHASE_COMMIT: Final = 15
ALL: Final = 2

# Java: AclPermissionType and PatternType. ANY and MATCH are for filters.
ANY: Final = 1
DENY: Final = 2
ALLOW: Final = 3
MATCH: Final = 2
LITERAL: Final = 3
PREFIXED: Final = 4

#: The name of a literal pattern that matches all resources of its type, and the host of all addresses.
WILDCARD: Final = "*"

#: The principal of ACLs for all users.
ALL_USERS: Final = "User:*"

OPERATIONS: Final = {
    "ALL": ALL,
    "READ": READ,
    "WRITE": WRITE,
    "CREATE": CREATE,
    "DELETE": DELETE,
    "ALTER": ALTER,
    "DESCRIBE": DESCRIBE,
    "CLUSTER_ACTION": CLUSTER_ACTION,
    "DESCRIBE_CONFIGS": DESCRIBE_CONFIGS,
    "ALTER_CONFIGS": ALTER_CONFIGS,
    "IDEMPOTENT_WRITE": IDEMPOTENT_WRITE,
    "CREATE_TOKENS": CREATE_TOKENS,
    "DESCRIBE_TOKENS": DESCRIBE_TOKENS,
    "TWO_PHASE_COMMIT": TWO_PHASE_COMMIT,
}

#: The operations that make sense for a type of resource (Java: AclEntry.supportedOperations).
SUPPORTED_OPERATIONS: Final = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
    TRANSACTIONAL_ID: (WRITE, DESCRIBE, TWO_PHASE_COMMIT),
    DELEGATION_TOKEN: (DESCRIBE,),
    USER: (CREATE_TOKENS, DESCRIBE_TOKENS),
}


class AclBinding(NamedTuple):
    """One ACL with the numbers of the protocol (Java: AclBinding)."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclBindingFilter(NamedTuple):
    """A filter for ACLs; None matches any name, principal or host (Java: AclBindingFilter)."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, acl: AclBinding) -> bool:
        """Return whether the filter matches an ACL."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission_type in (ANY, acl.permission_type)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        name = self.resource_name
        if self.pattern_type not in (ANY, MATCH, acl.pattern_type):
            return False
        if name is None:
            return True
        if self.pattern_type != MATCH:
            return name == acl.resource_name
        if acl.pattern_type == LITERAL:
            return acl.resource_name in (name, WILDCARD)
        return name.startswith(acl.resource_name)


class Acl:
    """ACLs for one principal and one resource.

        Acl("User:alice", "READ", topic="orders")
        Acl("User:bob", ["WRITE", "CREATE"], topic="orders-", prefixed=True)
        Acl("User:*", "ALL", topic="salaries", allow=False)
        Acl("User:carol", "DESCRIBE", cluster=True)

    ``operations`` is the name of one of Kafka's operations, or several. The resource is given by exactly one of
    ``topic``, ``group``, ``transactional_id``, ``cluster``, ``delegation_token`` and ``user``; the name "*" stands for
    all of its type. With ``prefixed``, the ACL is for all names that begin with the given one. ``allow=False`` denies.
    ``host`` is a client's IP address, or "*" for all.

    Immutable. Thread: any.
    """

    def __init__(
        self,
        principal: str,
        operations: str | Collection[str] = "ALL",
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        cluster: bool = False,
        delegation_token: str | None = None,
        user: str | None = None,
        prefixed: bool = False,
        allow: bool = True,
        host: str = WILDCARD,
    ) -> None:
        """Check the arguments.

        Raises:
            ConfigError: the principal, an operation or the resource is not valid.
        """
        given = [
            (resource_type, name)
            for resource_type, name in (
                (TOPIC, topic),
                (GROUP, group),
                (TRANSACTIONAL_ID, transactional_id),
                (CLUSTER, CLUSTER_NAME if cluster else None),
                (DELEGATION_TOKEN, delegation_token),
                (USER, user),
            )
            if name is not None
        ]
        if len(given) != 1 or not given[0][1]:
            raise ConfigError(
                "an Acl is for exactly one of topic, group, transactional_id, cluster, delegation_token and user"
            )
        check_principal(principal)
        names = [operations] if isinstance(operations, str) else list(operations)
        unknown = [name for name in names if name.upper() not in OPERATIONS]
        if unknown or not names:
            raise ConfigError(f"an Acl's operations are among {', '.join(OPERATIONS)}; unknown here: {unknown}")
        ((resource_type, resource_name),) = given
        #: The ACLs by their numbers in the protocol.
        self.bindings: tuple[AclBinding, ...] = tuple(
            AclBinding(
                resource_type,
                resource_name,
                PREFIXED if prefixed else LITERAL,
                principal,
                host,
                OPERATIONS[name.upper()],
                ALLOW if allow else DENY,
            )
            for name in names
        )

    def __repr__(self) -> str:
        return f"Acl({', '.join(map(str, self.bindings))})"


def bindings_of(acls: Iterable[Acl]) -> list[AclBinding]:
    """Return the bindings of several ACLs.

    Raises:
        ConfigError: one of them is not an Acl.
    """
    return [binding for acl in checked_acls(acls) for binding in acl.bindings]


def checked_acls(acls: Any) -> tuple[Acl, ...]:
    """Return several ACLs.

    Raises:
        ConfigError: ``acls`` is not a collection, or one of them is not an Acl.
    """
    found = elements(acls)
    if found is None:
        raise ConfigError(f"acls is {shown(acls)}; it must be a list of Acl")
    for acl in found:
        if not isinstance(acl, Acl):
            raise ConfigError(f"one of the acls is {shown(acl)}; it must be an Acl")
    return tuple(found)


def check_principal(principal: str) -> None:
    """Check the form of a principal, such as ``User:alice``.

    Raises:
        ConfigError: it has no type, or no name.
    """
    kind, colon, name = principal.partition(":")
    if not kind or not colon or not name:
        raise ConfigError(f"a principal has a type and a name, as in 'User:alice'; {principal!r} does not")
