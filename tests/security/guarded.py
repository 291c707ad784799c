"""Clusters with an authorizer: the embedded one and real Kafka, used in the same way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

from pykclient.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    Admin,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from pykclient.testing import EmbeddedCluster, Security
from tests.kafka.cluster import KafkaCluster
from tests.support.wait import eventually

USERS = {"admin": "admin-secret", "bob": "bob-secret"}

_PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" user_bob="bob-secret";'
)
#: The listener with PLAINTEXT is the broker's own, hence ANONYMOUS is a super user.
KAFKA_PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "delegation.token.secret.key": "secret-key",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": _PLAIN,
}


class HasConfig(Protocol):
    """Connects users."""

    def client_config(self, user: str) -> dict[str, Any]:
        """Return the settings of a user's clients."""


class Guarded:
    """A cluster with the super user admin, and bob, who may do what ACLs allow. Thread: owner."""

    def __init__(self, cluster: HasConfig) -> None:
        self._cluster = cluster
        self.admin = Admin(**self.config("admin"))

    def config(self, user: str) -> dict[str, Any]:
        return self._cluster.client_config(user)

    def allow(self, operation: str, kind: str, name: str, *, prefixed: bool = False) -> None:
        """Let bob do something with a resource, and wait until the brokers know."""
        pattern_type = ACLResourcePatternType.PREFIXED if prefixed else ACLResourcePatternType.LITERAL
        acl = ACL(
            "User:bob",
            "*",
            ACLOperation[operation],
            ACLPermissionType.ALLOW,
            ResourcePattern(ResourceType[kind], name, pattern_type),
        )
        self.admin.create_acls([acl]).all()
        eventually(lambda: acl in self.admin.describe_acls(_exactly(acl)), 20.0, "the brokers know the ACL")

    def disallow_all(self) -> None:
        """Remove all ACLs of bob."""
        everything = ACLFilter(
            "User:bob",
            None,
            ACLOperation.ANY,
            ACLPermissionType.ANY,
            ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
        )
        self.admin.delete_acls([everything]).all()
        eventually(lambda: not self.admin.describe_acls(everything), 20.0, "the ACLs are gone")


def _exactly(acl: ACL) -> ACLFilter:
    pattern = acl.resource_pattern
    wanted = ResourcePatternFilter(pattern.resource_type, pattern.resource_name, pattern.pattern_type)
    return ACLFilter(acl.principal, acl.host, acl.operation, acl.permission_type, wanted)


class _Embedded:
    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    def client_config(self, user: str) -> dict[str, Any]:
        return self._cluster.client_config(user=user)


class _Real:
    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def client_config(self, user: str) -> dict[str, Any]:
        broker = self._cluster.brokers[1]
        return {
            "bootstrap.servers": f"{broker.host}:{broker.ports['SASL_PLAINTEXT']}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user],
        }


@contextlib.contextmanager
def embedded() -> Iterator[Guarded]:
    """Start an embedded cluster with an authorizer."""
    security = Security("SASL_PLAINTEXT", mechanisms=["PLAIN"], users=USERS)
    with EmbeddedCluster(security=security, acls=[], super_users="User:admin") as cluster:
        guarded = Guarded(_Embedded(cluster))
        with guarded.admin:
            yield guarded


@contextlib.contextmanager
def real() -> Iterator[Guarded]:
    """Start real Kafka with an authorizer."""
    with KafkaCluster(1, KAFKA_PROPERTIES, listeners={"SASL_PLAINTEXT": "SASL_PLAINTEXT"}) as cluster:
        guarded = Guarded(_Real(cluster))
        with guarded.admin:
            yield guarded
