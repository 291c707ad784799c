"""The errors of the coordination service (ZooKeeper: KeeperException)."""

from __future__ import annotations

from pykclient.errors import KafkaError


class CoordinationError(KafkaError):
    """The base class of errors of the service and of the connection to it."""


class NoNodeError(CoordinationError):
    """No node exists at the path."""


class NodeExistsError(CoordinationError):
    """A node exists at the path already."""


class BadVersionError(CoordinationError):
    """The node was changed since its version was read."""


class NotEmptyError(CoordinationError):
    """A node with children cannot be deleted."""


class NoChildrenForEphemeralsError(CoordinationError):
    """An ephemeral node has no children."""


class ConnectionLossError(CoordinationError):
    """The service is not reachable; the session may still be alive."""


class SessionExpiredError(CoordinationError):
    """The service has expired the session and removed its ephemeral nodes."""
