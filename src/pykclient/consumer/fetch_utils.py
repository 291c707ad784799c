"""Functions that several parts of fetching share (Java: FetchUtils)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.consumer.subscription_state import SubscriptionState
    from pykclient.network.metadata import Metadata
    from pykclient.types import TopicPartition


def request_metadata_update(metadata: Metadata, subscriptions: SubscriptionState, tp: TopicPartition) -> None:
    """Request the current leader, and fetch from it instead of the preferred read replica."""
    metadata.request_update(False)
    subscriptions.clear_preferred_read_replica(tp)
