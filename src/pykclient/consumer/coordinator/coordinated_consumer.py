"""The components of a consumer that its coordinator uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pykclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.assignors.consumer_partition_assignor import ConsumerPartitionAssignor
    from pykclient.consumer.consumer_interceptors import ConsumerInterceptors
    from pykclient.consumer.consumer_metadata import ConsumerMetadata
    from pykclient.consumer.subscription_state import SubscriptionState

Offsets = dict[TopicPartition, OffsetAndMetadata]


class CoordinatedConsumer:
    """The components of a consumer that its coordinator uses.

    ``consumed`` returns the positions that may be committed: those after the records returned to the application, which
    may be before the fetcher's positions. Thread: application.
    """

    __slots__ = (
        "assignors",
        "auto_commit_enabled",
        "auto_commit_interval_ms",
        "consumed",
        "interceptors",
        "metadata",
        "subscriptions",
    )

    def __init__(
        self,
        metadata: ConsumerMetadata,
        subscriptions: SubscriptionState,
        assignors: Sequence[ConsumerPartitionAssignor],
        interceptors: ConsumerInterceptors | None = None,
        *,
        consumed: Callable[[], Offsets] | None = None,
        auto_commit_interval_ms: int | None = None,
    ) -> None:
        self.metadata = metadata
        self.subscriptions = subscriptions
        self.assignors = list(assignors)
        self.interceptors = interceptors
        self.consumed: Callable[[], Offsets] = consumed or subscriptions.all_consumed
        self.auto_commit_enabled = auto_commit_interval_ms is not None
        self.auto_commit_interval_ms = auto_commit_interval_ms or 0
