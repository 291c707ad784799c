"""The objects that all parts of fetching share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.clock import Clock
    from pykclient.consumer.consumer_metadata import ConsumerMetadata
    from pykclient.consumer.network_client_delegate import NetworkClientDelegate
    from pykclient.consumer.subscription_state import SubscriptionState
    from pykclient.log_context import LogContext
    from pykclient.network.api_versions import ApiVersions


class FetchContext:
    """The shared objects, passed to each constructor together. Thread: application."""

    __slots__ = ("api_versions", "client", "clock", "log_context", "metadata", "subscriptions")

    def __init__(
        self,
        log_context: LogContext,
        client: NetworkClientDelegate,
        metadata: ConsumerMetadata,
        subscriptions: SubscriptionState,
        clock: Clock,
        api_versions: ApiVersions,
    ) -> None:
        self.log_context = log_context
        self.client = client
        self.metadata = metadata
        self.subscriptions = subscriptions
        self.clock = clock
        self.api_versions = api_versions
