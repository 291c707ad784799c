"""StandardAuthorizer against Java's, on random ACLs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pykclient.testing.acls import (
    ALLOW,
    DENY,
    LITERAL,
    PREFIXED,
    READ,
    SUPPORTED_OPERATIONS,
    TOPIC,
    AclBinding,
    AclBindingFilter,
)
from pykclient.testing.standard_authorizer import StandardAuthorizer
from tests.support.java import run_java

_PRINCIPALS = ("User:alice", "User:bob", "User:*", "Group:alice", "User:CN=a,O=b")
_HOSTS = ("127.0.0.1", "10.0.0.7")
_NAMES = ("a", "ab", "abc", "abd", "b", "*", "a*", "A", "hardcode", "hard", "é", "z-1", "z-2", "z-")


def _random_acl(rng: random.Random) -> AclBinding:
    resource_type = rng.choice((2, 2, 2, 3, 4, 5, 6, 7))
    return AclBinding(
        resource_type,
        rng.choice(_NAMES),
        rng.choice((LITERAL, LITERAL, PREFIXED)),
        rng.choice(_PRINCIPALS),
        rng.choice(("*", "*", *_HOSTS)),
        rng.choice((2, *SUPPORTED_OPERATIONS[resource_type])),
        rng.choice((ALLOW, ALLOW, DENY)),
    )


def _line(*fields: object) -> str:
    return "\t".join("-" if field is None else str(field) for field in fields)


@pytest.mark.java
def test_authorizer_decides_like_java() -> None:
    """Decisions, searches by type of resource, and filters equal Java's for 200 random sets of ACLs."""
    rng = random.Random(1)
    lines: list[str] = []
    ours: list[str] = []
    for _ in range(200):
        acls = list(dict.fromkeys(_random_acl(rng) for _ in range(rng.randint(0, 12))))
        super_users = rng.sample(("User:root", "User:bob"), rng.randint(0, 2))
        allow_without_acls = rng.random() < 0.5
        authorizer = StandardAuthorizer(acls, super_users=super_users, allow_without_acls=allow_without_acls)
        lines.append(_line("new", ";".join(super_users), str(allow_without_acls).lower()))
        lines += [_line("acl", *acl) for acl in acls]
        for _ in range(50):
            resource_type = rng.choice((2, 2, 2, 3, 4, 5, 6, 7))
            who = rng.choice((*_PRINCIPALS[:2], *_PRINCIPALS[3:], "User:root")), rng.choice(_HOSTS)
            operation = rng.choice(SUPPORTED_OPERATIONS[resource_type])
            name = rng.choice((*_NAMES, "abcdef", "z-11", "none"))
            lines.append(_line("ask", *who, operation, resource_type, name))
            ours.append(str(authorizer.authorize(*who, operation, resource_type, name)).lower())
            if resource_type in (2, 3, 5):
                lines.append(_line("any", *who, operation, resource_type))
                ours.append(str(authorizer.authorize_by_resource_type(*who, operation, resource_type)).lower())
        for _ in range(10):
            acl = rng.choice(acls) if acls else _random_acl(rng)
            wanted = AclBindingFilter(
                rng.choice((1, acl.resource_type)),
                rng.choice((None, acl.resource_name, "abcd")),
                rng.choice((1, 2, acl.pattern_type)),
                rng.choice((None, acl.principal)),
                rng.choice((None, acl.host)),
                rng.choice((1, acl.operation)),
                rng.choice((1, acl.permission_type)),
            )
            lines.append(_line("count", *wanted))
            ours.append(str(len(authorizer.matching(wanted))))
    source = Path(__file__).with_name("AuthorizerOracle.java")
    javas = run_java(source, stdin="\n".join(lines).encode()).decode().split()
    asked = [line for line in lines if line.split("\t")[0] in ("ask", "any", "count")]
    different = [row for row in zip(asked, ours, javas, strict=True) if row[1] != row[2]]
    assert different == []
    assert min(ours.count("true"), ours.count("false")) > 1_000  # so the comparison means something


def test_removed_acl_has_no_effect() -> None:
    """A removed ACL allows nothing any more, and removing it again reports that there is none."""
    for pattern_type in (LITERAL, PREFIXED):
        acl = AclBinding(TOPIC, "a", pattern_type, "User:alice", "*", READ, ALLOW)
        authorizer = StandardAuthorizer()
        authorizer.add(acl)
        authorizer.add(acl)
        assert authorizer.authorize("User:alice", "::1", READ, TOPIC, "a")
        assert authorizer.remove(acl)
        assert not authorizer.remove(acl)
        assert not authorizer.authorize("User:alice", "::1", READ, TOPIC, "a")
        assert authorizer.matching(AclBindingFilter(1, None, 1, None, None, 1, 1)) == []
