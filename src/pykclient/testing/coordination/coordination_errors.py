"""What the coordination service refuses (ZooKeeper: KeeperException)."""

from __future__ import annotations

from pykclient.errors import KafkaError


class CoordinationError(KafkaError):
    """Root of what the service, or the way to it, fails with."""


class NoNodeError(CoordinationError):
    """There is no node at the path."""


class NodeExistsError(CoordinationError):
    """There is a node at the path already."""


class BadVersionError(CoordinationError):
    """The node was changed since its version was read."""


class NotEmptyError(CoordinationError):
    """A node with children cannot be deleted."""


class NoChildrenForEphemeralsError(CoordinationError):
    """An ephemeral node has no children."""


class ConnectionLossError(CoordinationError):
    """The service cannot be reached at present; the session may still be alive."""


class SessionExpiredError(CoordinationError):
    """The service has given the session up, with its ephemeral nodes."""
