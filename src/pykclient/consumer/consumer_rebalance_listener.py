"""The application's callbacks for partitions that are assigned and revoked (Java: ConsumerRebalanceListener)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.types import TopicPartition


class ConsumerRebalanceListener(ABC):
    """Callbacks for changes of the assignment; pass one to ``subscribe``.

    They are called inside ``poll``, ``close`` and ``unsubscribe``, on the thread that calls these. They may use the
    consumer: commit in ``on_partitions_revoked``, seek in ``on_partitions_assigned``.

    If a callback raises an error, the call that it runs in raises this error once the rebalance is complete, wrapped in
    a KafkaError if it is not one. Thread: application.
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Handle partitions that are about to be revoked. Their positions can still be committed."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Handle newly assigned partitions, possibly none, before the consumer fetches from them."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Handle partitions that other members may own already, because the group removed this member.

        Their positions can no longer be committed. By default this calls ``on_partitions_revoked``.
        """
        self.on_partitions_revoked(lost)
