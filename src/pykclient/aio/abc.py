"""aiokafka's module of this name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykclient.types import TopicPartition


class ConsumerRebalanceListener(ABC):
    """Functions or coroutines to call when the assignment changes; pass one to ``AIOKafkaConsumer.subscribe``.

    They may use the consumer, except for calls that wait for records: commit in ``on_partitions_revoked``, seek in
    ``on_partitions_assigned``. The rebalance waits for them. An error that one raises is raised by the next call for
    records, once the rebalance is complete. Thread: the loop's.
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Any:
        """Handle partitions that are about to be revoked. Their positions can still be committed."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Any:
        """Handle newly assigned partitions, possibly none, before the consumer fetches from them."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> Any:
        """Handle partitions that other members may own already, because the group removed this member.

        Their positions can no longer be committed. By default this calls ``on_partitions_revoked``.
        """
        return self.on_partitions_revoked(lost)
