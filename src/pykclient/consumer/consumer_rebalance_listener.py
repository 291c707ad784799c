"""How an application hears of partitions that come and go (Java: ConsumerRebalanceListener)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.types import TopicPartition


class ConsumerRebalanceListener(ABC):
    """Pass one to ``subscribe``.

    It is called inside ``poll``, ``close`` and ``unsubscribe``, on the thread that calls these, and may use the
    consumer: commit in ``on_partitions_revoked``, seek in ``on_partitions_assigned``.

    An error that a method raises comes out of the call that it was made in, after the rebalance has gone its way.
    Thread: application.
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """These are about to be given to others, positions can still be committed."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """These came new, they may be none; reading has not begun."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Others may be reading these already, as this member was thrown out: committing is no use.

        By default the same as revoked.
        """
        self.on_partitions_revoked(lost)
