"""The decisions about access (Java: StandardAuthorizer)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from pykclient.testing.acls import (
    ALL,
    ALL_USERS,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    LITERAL,
    READ,
    WILDCARD,
    WRITE,
    AclBinding,
    AclBindingFilter,
)

#: The operations of ACLs that also allow another operation. ACLs that deny have no such effect.
_IMPLIED_BY: Final = {
    DESCRIBE: frozenset((DESCRIBE, READ, WRITE, DELETE, ALTER)),
    DESCRIBE_CONFIGS: frozenset((DESCRIBE_CONFIGS, ALTER_CONFIGS)),
}

#: A resource that nobody has named, for which only the rules for super users and for all resources count.
_UNNAMED: Final = "hardcode"


class StandardAuthorizer:
    """The ACLs of a cluster, and what they allow. Thread: loop."""

    __slots__ = ("_acls", "_literal", "_prefixed", "_super_users", "_without_acls")

    def __init__(
        self, acls: Iterable[AclBinding] = (), *, super_users: Collection[str] = (), allow_without_acls: bool = False
    ) -> None:
        """Load the ACLs. ``allow_without_acls`` is the decision about resources without any ACL."""
        self._super_users = frozenset(super_users)
        self._without_acls = allow_without_acls
        self._acls: dict[AclBinding, None] = {}
        # By type and name of the resource.
        self._literal: dict[tuple[int, str], list[AclBinding]] = {}
        self._prefixed: dict[tuple[int, str], list[AclBinding]] = {}
        for acl in acls:
            self.add(acl)

    # --- the ACLs ----------------------------------------------------------------------------------------------------

    def add(self, acl: AclBinding) -> None:
        """Add an ACL; one that exists already has no effect."""
        if acl not in self._acls:
            self._acls[acl] = None
            self._index(acl).setdefault((acl.resource_type, acl.resource_name), []).append(acl)

    def remove(self, acl: AclBinding) -> bool:
        """Remove an ACL; return whether there was one."""
        if acl not in self._acls:
            return False
        del self._acls[acl]
        index, key = self._index(acl), (acl.resource_type, acl.resource_name)
        index[key].remove(acl)
        if not index[key]:
            del index[key]
        return True

    def acls(self, wanted: AclBindingFilter) -> list[AclBinding]:
        """Return the ACLs that match a filter."""
        return [acl for acl in self._acls if wanted.matches(acl)]

    def _index(self, acl: AclBinding) -> dict[tuple[int, str], list[AclBinding]]:
        return self._literal if acl.pattern_type == LITERAL else self._prefixed

    # --- decisions ---------------------------------------------------------------------------------------------------

    def authorize(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Return whether a principal at an address may do something with a resource."""
        if principal in self._super_users:
            return True
        allowed = False
        has_acls = False
        for acl in self._acls_of(resource_type, name):
            has_acls = True
            if _applies(acl, principal, host, operation):
                if acl.permission == DENY:
                    return False
                allowed = True
        return allowed if has_acls else self._without_acls

    def _acls_of(self, resource_type: int, name: str) -> Iterable[AclBinding]:
        yield from self._literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), ())
        if self._prefixed:
            for size in range(1, len(name) + 1):
                yield from self._prefixed.get((resource_type, name[:size]), ())

    def authorize_by_resource_type(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Return whether a principal may do something with at least one resource of a type."""
        if self.authorize(principal, host, operation, resource_type, _UNNAMED):
            return True
        denied: tuple[set[str], set[str]] = (set(), set())  # names, and beginnings of names
        allowed: tuple[set[str], set[str]] = (set(), set())
        for acl in self._acls:
            if (
                acl.resource_type == resource_type
                and acl.host in (WILDCARD, host)
                and acl.principal in (ALL_USERS, principal)
                and acl.operation in (ALL, operation)
            ):
                names = denied if acl.permission == DENY else allowed
                names[acl.pattern_type != LITERAL].add(acl.resource_name)
        if WILDCARD in denied[False]:
            return False
        if WILDCARD in allowed[False]:
            return True
        return any(
            not (is_prefix is False and name in denied[False])
            and not any(name[:size] in denied[True] for size in range(1, len(name) + 1))
            for is_prefix in (False, True)
            for name in allowed[is_prefix]
        )


def _applies(acl: AclBinding, principal: str, host: str, operation: int) -> bool:
    if acl.principal not in (ALL_USERS, principal) or acl.host not in (WILDCARD, host):
        return False
    if acl.operation in (ALL, operation):
        return True
    return acl.permission == ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())
