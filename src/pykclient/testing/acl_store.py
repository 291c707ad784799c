"""The ACLs of an embedded cluster in its coordination service, and each broker's copy (Java: AclControlManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.testing.acls import AclBinding, bindings_of
from pykclient.testing.coordination import znodes
from pykclient.testing.server.auth_helper import AuthHelper
from pykclient.testing.server.standard_authorizer import StandardAuthorizer

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.config import ClusterConfig
    from pykclient.testing.coordination.coordination_service import CoordinationService


class AclStore:
    """All ACLs of a cluster, each in a node of its own. They outlive every broker and controller. Thread: loop."""

    def __init__(self, service: CoordinationService, config: ClusterConfig) -> None:
        """Store the ACLs that the cluster begins with, as the only ones."""
        self._service = service
        for acl in dict.fromkeys(bindings_of(config.acls or ())):
            self._create(acl)

    def _nodes(self) -> dict[AclBinding, str]:
        """Return the paths of all ACLs, the oldest first."""
        paths = [f"{znodes.ACLS}/{name}" for name in self._service.get_children(znodes.ACLS)]
        return {decode_acl(self._service.get_data(path)[0]): path for path in paths}

    def add(self, acl: AclBinding) -> None:
        """Add an ACL; one that exists already has no effect."""
        if acl not in self._nodes():
            self._create(acl)

    def _create(self, acl: AclBinding) -> None:
        self._service.create(znodes.ACL_PREFIX, encode_acl(acl), sequential=True)

    def remove(self, acl: AclBinding) -> None:
        """Remove an ACL, if it exists."""
        path = self._nodes().get(acl)
        if path is not None:
            self._service.delete(path)


class AclCache:
    """A broker's copy of the ACLs, which its authorizer decides by.

    The coordination service reports each change. A broker without contact to it keeps its copy, and reads everything
    again when contact returns. Thread: loop.
    """

    def __init__(self, broker: Broker) -> None:
        config = broker.cluster.config
        self._coordination = broker.coordination
        self._authorizer: StandardAuthorizer | None = None
        self._known: dict[str, AclBinding] = {}  # by the name of the node
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
                self._known[name] = acl = decode_acl(self._coordination.get_data(f"{znodes.ACLS}/{name}")[0])
                authorizer.add(acl)


def encode_acl(acl: AclBinding) -> bytes:
    """Encode an ACL with the names of Kafka's AccessControlEntryRecord."""
    return znodes.encode(
        {
            "resourceType": acl.resource_type,
            "resourceName": acl.resource_name,
            "patternType": acl.pattern_type,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permissionType": acl.permission,
        }
    )


def decode_acl(data: bytes) -> AclBinding:
    """Decode what ``encode_acl`` has encoded."""
    record = znodes.decode(data)
    return AclBinding(
        record["resourceType"],
        record["resourceName"],
        record["patternType"],
        record["principal"],
        record["host"],
        record["operation"],
        record["permissionType"],
    )
