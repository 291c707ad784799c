"""Access: the names of clients with certificates, ACLs, and the decisions that follow.

Java: SslPrincipalMapper, AclControlManager, StandardAuthorizer, AuthHelper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from pykclient import errors
from pykclient.testing import acls
from pykclient.testing.config import ClusterConfig
from pykclient.testing.coordination import znodes
from pykclient.testing.coordination.coordination_client import CoordinationClient
from pykclient.testing.coordination.coordination_service import CoordinationService
from pykclient.testing.request_channel import ANONYMOUS, Request

_DEFAULT: Final = "DEFAULT"

_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")

_SPLITTER: Final = re.compile(r"\s*(DEFAULT|RULE:(?:\\.|[^\\/])*/(?:\\.|[^\\/])*/[LU]?)\s*(?:,\s*|$)")

#: An escaped character or a reference to a group in the replacement of a rule.
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d)")

_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


class SslPrincipalMapper:
    """Maps the distinguished names of certificates to names of users, by Kafka's rules. Thread: any."""

    def __init__(self, rules: str) -> None:
        """Parse rules such as ``RULE:^CN=(.*?),.*$/$1/L, DEFAULT``.

        Raises:
            ConfigError: a rule is not valid.
        """
        self._rules: list[tuple[re.Pattern[str], str, str] | None] = []  # None: the name as it is
        rest = rules.strip()
        while rest:
            found = _SPLITTER.match(rest)
            if found is None:
                raise errors.ConfigError(f"ssl.principal.mapping.rules: {rest!r} is no rule, nor DEFAULT")
            self._rules.append(None if found[1] == _DEFAULT else _parsed(found[1]))
            rest = rest[found.end() :]

    def name_of(self, distinguished_name: str) -> str | None:
        """Return the name by the first rule that applies, or None, which rejects the client."""
        for rule in self._rules:
            if rule is None:
                return distinguished_name
            pattern, replacement, case = rule
            if pattern.fullmatch(distinguished_name):
                return _CASES[case](pattern.sub(partial(_expanded, replacement), distinguished_name))
        return None


def _parsed(rule: str) -> tuple[re.Pattern[str], str, str]:
    found = _RULE.fullmatch(rule)
    assert found is not None, "the splitter has the same form"
    try:
        return re.compile(found[1]), found[2], found[3]
    except re.error as error:
        raise errors.ConfigError(
            f"ssl.principal.mapping.rules: {found[1]!r} is no regular expression: {error}"
        ) from error


def _expanded(replacement: str, match: re.Match[str]) -> str:
    """Return the replacement with the match's groups. A reference to a group that does not exist stays as it is."""

    def expand(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1]
        number = int(found[2])
        return (match[number] or "") if number <= match.re.groups else found[0]

    return _REFERENCE.sub(expand, replacement)


@dataclass(eq=False, repr=False)
class SslSession:
    """The session of a client that authenticated with a certificate, or with none. Thread: loop."""

    #: Returns the client's certificate, once the handshake is complete.
    _certificate: Callable[[], bytes | None]
    _mapper: SslPrincipalMapper
    _user: str | None = None
    expiry_ms: int | None = None
    uses_token: bool = False

    @property
    def user(self) -> str | None:
        """The name of the client; None if no rule applies to its certificate."""
        if self._user is None:
            der = self._certificate()
            if der is None:
                self._user = ANONYMOUS.partition(":")[2]
            else:
                from cryptography import x509

                self._user = self._mapper.name_of(x509.load_der_x509_certificate(der).subject.rfc4514_string())
        return self._user


#: The operations of ACLs that also allow another operation. ACLs that deny have no such effect.
_IMPLIED_BY: Final = {
    acls.DESCRIBE: frozenset((acls.DESCRIBE, acls.READ, acls.WRITE, acls.DELETE, acls.ALTER)),
    acls.DESCRIBE_CONFIGS: frozenset((acls.DESCRIBE_CONFIGS, acls.ALTER_CONFIGS)),
}

#: A resource that nobody has named, for which only the rules for super users and for all resources count.
_UNNAMED: Final = "hardcode"


class StandardAuthorizer:
    """Authorizes operations by the ACLs of a cluster. Thread: loop."""

    def __init__(
        self,
        bindings: Iterable[acls.AclBinding] = (),
        *,
        super_users: Collection[str] = (),
        allow_without_acls: bool = False,
    ) -> None:
        """Load the ACLs. ``allow_without_acls`` is the decision about resources without any ACL."""
        self._super_users = frozenset(super_users)
        self._without_acls = allow_without_acls
        self._acls: dict[acls.AclBinding, None] = {}
        # By type and name of the resource.
        self._literal: dict[tuple[int, str], list[acls.AclBinding]] = {}
        self._prefixed: dict[tuple[int, str], list[acls.AclBinding]] = {}
        for acl in bindings:
            self.add(acl)

    # --- the ACLs ----------------------------------------------------------------------------------------------------

    def add(self, acl: acls.AclBinding) -> None:
        """Add an ACL; one that exists already has no effect."""
        if acl not in self._acls:
            self._acls[acl] = None
            self._index(acl).setdefault((acl.resource_type, acl.resource_name), []).append(acl)

    def remove(self, acl: acls.AclBinding) -> bool:
        """Remove an ACL; return whether there was one."""
        if acl not in self._acls:
            return False
        del self._acls[acl]
        index, key = self._index(acl), (acl.resource_type, acl.resource_name)
        index[key].remove(acl)
        if not index[key]:
            del index[key]
        return True

    def matching(self, wanted: acls.AclBindingFilter) -> list[acls.AclBinding]:
        """Return the ACLs that match a filter."""
        return [acl for acl in self._acls if wanted.matches(acl)]

    def _index(self, acl: acls.AclBinding) -> dict[tuple[int, str], list[acls.AclBinding]]:
        return self._literal if acl.pattern_type == acls.LITERAL else self._prefixed

    # --- decisions ---------------------------------------------------------------------------------------------------

    def authorize(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Return whether a principal at an address is allowed an operation on a resource."""
        if principal in self._super_users:
            return True
        allowed = False
        has_acls = False
        for acl in self._acls_of(resource_type, name):
            has_acls = True
            if _applies(acl, principal, host, operation):
                if acl.permission_type == acls.DENY:
                    return False
                allowed = True
        return allowed if has_acls else self._without_acls

    def _acls_of(self, resource_type: int, name: str) -> Iterable[acls.AclBinding]:
        yield from self._literal.get((resource_type, name), ())
        if name != acls.WILDCARD:
            yield from self._literal.get((resource_type, acls.WILDCARD), ())
        if self._prefixed:
            for size in range(1, len(name) + 1):
                yield from self._prefixed.get((resource_type, name[:size]), ())

    def authorize_by_resource_type(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Return whether a principal is allowed an operation on at least one resource of a type."""
        if self.authorize(principal, host, operation, resource_type, _UNNAMED):
            return True
        denied: tuple[set[str], set[str]] = (set(), set())  # names, and beginnings of names
        allowed: tuple[set[str], set[str]] = (set(), set())
        for acl in self._acls:
            if (
                acl.resource_type == resource_type
                and acl.host in (acls.WILDCARD, host)
                and acl.principal in (acls.ALL_USERS, principal)
                and acl.operation in (acls.ALL, operation)
            ):
                names = denied if acl.permission_type == acls.DENY else allowed
                names[acl.pattern_type != acls.LITERAL].add(acl.resource_name)
        if acls.WILDCARD in denied[False]:
            return False
        if acls.WILDCARD in allowed[False]:
            return True
        return any(
            not (is_prefix is False and name in denied[False])
            and not any(name[:size] in denied[True] for size in range(1, len(name) + 1))
            for is_prefix in (False, True)
            for name in allowed[is_prefix]
        )


def _applies(acl: acls.AclBinding, principal: str, host: str, operation: int) -> bool:
    if acl.principal not in (acls.ALL_USERS, principal) or acl.host not in (acls.WILDCARD, host):
        return False
    if acl.operation in (acls.ALL, operation):
        return True
    return acl.permission_type == acls.ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())


# Kafka's texts.
TOPIC_DENIED = "Topic authorization failed."

GROUP_DENIED = "Group authorization failed."

CLUSTER_DENIED = "Cluster authorization failed."

TRANSACTIONAL_ID_DENIED = "Transactional Id authorization failed."


class AuthHelper:
    """Authorizes requests. Without an authorizer, and for brokers and the application itself, all are allowed.

    Thread: loop.
    """

    def __init__(self, authorizer: StandardAuthorizer | None) -> None:
        self.authorizer = authorizer

    def authorize(self, request: Request, operation: int, resource_type: int, name: str) -> bool:
        """Return whether the sender of a request is allowed an operation on a resource."""
        authorizer = self.authorizer
        return (
            authorizer is None
            or request.is_privileged
            or authorizer.authorize(request.principal, request.client_host, operation, resource_type, name)
        )

    def filter(self, request: Request, operation: int, resource_type: int, names: Iterable[str]) -> set[str]:
        """Return those of ``names`` on which the sender of a request is allowed an operation."""
        return {name for name in names if self.authorize(request, operation, resource_type, name)}

    def check_cluster(self, request: Request, operation: int) -> None:
        """Check an operation on the cluster.

        Raises:
            ClusterAuthorizationError: it is not allowed.
        """
        if not self.authorize(request, operation, acls.CLUSTER, acls.CLUSTER_NAME):
            raise errors.ClusterAuthorizationError(CLUSTER_DENIED)

    def check_topic(self, request: Request, operation: int, topic: str) -> None:
        """Check an operation on a topic.

        Raises:
            TopicAuthorizationError: it is not allowed.
        """
        if not self.authorize(request, operation, acls.TOPIC, topic):
            raise errors.TopicAuthorizationError(TOPIC_DENIED)

    def check_group(self, request: Request, operation: int, group_id: str) -> None:
        """Check an operation on a group.

        Raises:
            GroupAuthorizationError: it is not allowed.
        """
        if not self.authorize(request, operation, acls.GROUP, group_id):
            raise errors.GroupAuthorizationError(GROUP_DENIED)

    def check_transactional_id(self, request: Request, operation: int, transactional_id: str) -> None:
        """Check an operation on a transactional id.

        Raises:
            TransactionalIdAuthorizationError: it is not allowed.
        """
        if not self.authorize(request, operation, acls.TRANSACTIONAL_ID, transactional_id):
            raise errors.TransactionalIdAuthorizationError(TRANSACTIONAL_ID_DENIED)

    @staticmethod
    def check_token_request(request: Request) -> None:
        """Check that the sender of a request may manage delegation tokens at all (KIP-48).

        Raises:
            UnsupportedByAuthenticationError: it has not authenticated, or by a delegation token.
        """
        if request.uses_token or request.principal == ANONYMOUS:
            raise errors.UnsupportedByAuthenticationError(
                "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
                "authenticated channels."
            )

    def authorize_by_resource_type(self, request: Request, operation: int, resource_type: int) -> bool:
        """Return whether the sender of a request is allowed an operation on at least one resource of a type."""
        authorizer = self.authorizer
        return (
            authorizer is None
            or request.is_privileged
            or authorizer.authorize_by_resource_type(request.principal, request.client_host, operation, resource_type)
        )

    def authorized_operations(self, request: Request, resource_type: int, name: str = acls.CLUSTER_NAME) -> int:
        """Return the operations with a resource that are allowed, as a bit field (KIP-430)."""
        return sum(
            1 << operation
            for operation in acls.SUPPORTED_OPERATIONS[resource_type]
            if self.authorize(request, operation, resource_type, name)
        )


class AclStore:
    """All ACLs of a cluster, each in a node of its own. They outlive every broker and controller. Thread: loop."""

    def __init__(self, service: CoordinationService, config: ClusterConfig) -> None:
        """Store the ACLs that the cluster begins with, as the only ones."""
        self._service = service
        for acl in dict.fromkeys(acls.bindings_of(config.acls or ())):
            self._create(acl)

    def _nodes(self) -> dict[acls.AclBinding, str]:
        """Return the paths of all ACLs, the oldest first."""
        paths = [f"{znodes.ACLS}/{name}" for name in self._service.get_children(znodes.ACLS)]
        return {self._service.get_data(path)[0]: path for path in paths}

    def add(self, acl: acls.AclBinding) -> None:
        """Add an ACL; one that exists already has no effect."""
        if acl not in self._nodes():
            self._create(acl)

    def _create(self, acl: acls.AclBinding) -> None:
        self._service.create(znodes.ACL_PREFIX, acl, sequential=True)

    def remove(self, acl: acls.AclBinding) -> None:
        """Remove an ACL, if it exists."""
        path = self._nodes().get(acl)
        if path is not None:
            self._service.delete(path)


class AclCache:
    """A broker's copy of the ACLs, for its authorizer.

    The coordination service reports each change. A broker without contact to it keeps its copy, and reads everything
    again when contact returns. Thread: loop.
    """

    def __init__(self, coordination: CoordinationClient, config: ClusterConfig) -> None:
        self._coordination = coordination
        self._authorizer: StandardAuthorizer | None = None
        self._known: dict[str, acls.AclBinding] = {}  # by the name of the node
        if config.acls is not None:
            self._authorizer = StandardAuthorizer(
                super_users=config.super_users,
                allow_without_acls=config.broker_config.get_bool("allow.everyone.if.no.acl.found"),
            )
        self.auth = AuthHelper(self._authorizer)

    def startup(self) -> None:
        """Read the ACLs, and watch them. Without an authorizer, do nothing."""
        if self._authorizer is not None:
            self._coordination.register_child_change_handler(znodes.ACLS, self._load)
            self._coordination.register_reconnect_listener(self._load)
            self._load()

    def _load(self) -> None:
        authorizer = self._authorizer
        if authorizer is None or not self._coordination.connected:
            return
        names = self._coordination.get_children(znodes.ACLS)
        for name in self._known.keys() - set(names):
            authorizer.remove(self._known.pop(name))
        for name in names:
            if name not in self._known:
                self._known[name] = acl = self._coordination.get_data(f"{znodes.ACLS}/{name}")[0]
                authorizer.add(acl)
