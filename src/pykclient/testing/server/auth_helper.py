"""Checks of requests against the cluster's ACLs (Java: AuthHelper)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pykclient.errors import (
    ClusterAuthorizationError,
    GroupAuthorizationError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
    UnsupportedByAuthenticationError,
)
from pykclient.testing.acls import CLUSTER, CLUSTER_NAME, GROUP, SUPPORTED_OPERATIONS, TOPIC, TRANSACTIONAL_ID
from pykclient.testing.server.request_channel import ANONYMOUS

if TYPE_CHECKING:
    from pykclient.testing.server.request_channel import Request
    from pykclient.testing.server.standard_authorizer import StandardAuthorizer

# Kafka's texts.
TOPIC_DENIED = "Topic authorization failed."
GROUP_DENIED = "Group authorization failed."
CLUSTER_DENIED = "Cluster authorization failed."
TRANSACTIONAL_ID_DENIED = "Transactional Id authorization failed."


class AuthHelper:
    """Decides about requests. Without an authorizer, and to other brokers and the application, all is allowed.

    Thread: loop.
    """

    __slots__ = ("authorizer",)

    def __init__(self, authorizer: StandardAuthorizer | None) -> None:
        self.authorizer = authorizer

    def authorize(self, request: Request, operation: int, resource_type: int, name: str) -> bool:
        """Return whether the sender of a request may do something with a resource."""
        authorizer = self.authorizer
        return (
            authorizer is None
            or request.is_privileged
            or authorizer.authorize(request.principal, request.client_host, operation, resource_type, name)
        )

    def filter(self, request: Request, operation: int, resource_type: int, names: Iterable[str]) -> set[str]:
        """Return those of ``names`` with which the sender of a request may do something."""
        return {name for name in names if self.authorize(request, operation, resource_type, name)}

    def check_cluster(self, request: Request, operation: int) -> None:
        """Check an operation on the cluster.

        Raises:
            ClusterAuthorizationError: it is not allowed.
        """
        if not self.authorize(request, operation, CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError(CLUSTER_DENIED)

    def check_topic(self, request: Request, operation: int, topic: str) -> None:
        """Check an operation on a topic.

        Raises:
            TopicAuthorizationError: it is not allowed.
        """
        if not self.authorize(request, operation, TOPIC, topic):
            raise TopicAuthorizationError(TOPIC_DENIED)

    def check_group(self, request: Request, operation: int, group_id: str) -> None:
        """Check an operation on a group.

        Raises:
            GroupAuthorizationError: it is not allowed.
        """
        if not self.authorize(request, operation, GROUP, group_id):
            raise GroupAuthorizationError(GROUP_DENIED)

    def check_transactional_id(self, request: Request, operation: int, transactional_id: str) -> None:
        """Check an operation on a transactional id.

        Raises:
            TransactionalIdAuthorizationError: it is not allowed.
        """
        if not self.authorize(request, operation, TRANSACTIONAL_ID, transactional_id):
            raise TransactionalIdAuthorizationError(TRANSACTIONAL_ID_DENIED)

    @staticmethod
    def check_token_request(request: Request) -> None:
        """Check that the sender of a request may manage delegation tokens at all (KIP-48).

        Raises:
            UnsupportedByAuthenticationError: it has not authenticated, or by a delegation token.
        """
        if request.uses_token or request.principal == ANONYMOUS:
            raise UnsupportedByAuthenticationError(
                "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
                "authenticated channels."
            )

    def authorize_by_resource_type(self, request: Request, operation: int, resource_type: int) -> bool:
        """Return whether the sender of a request may do something with at least one resource of a type."""
        authorizer = self.authorizer
        return (
            authorizer is None
            or request.is_privileged
            or authorizer.authorize_by_resource_type(request.principal, request.client_host, operation, resource_type)
        )

    def authorized_operations(self, request: Request, resource_type: int, name: str = CLUSTER_NAME) -> int:
        """Return the operations with a resource that are allowed, as a bit field (KIP-430)."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.authorize(request, operation, resource_type, name)
        )
