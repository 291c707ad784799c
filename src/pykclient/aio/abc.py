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
    records, once the rebalance is complete. ``stop`` and ``unsubscribe`` call no listener. Thread: the loop's.
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


class AbstractTokenProvider(ABC):
    """A source of tokens for SASL/OAUTHBEARER; pass one as ``sasl_oauth_token_provider``.

    ``token`` is called on the event loop for the first connection, and before the last token expires, if it is a JWT
    that says when. Any object with such a method will do, and so does a plain method; the client calls it on a thread.
    """

    @abstractmethod
    async def token(self) -> str:
        """Return a token that has not expired."""

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions to send with the token. It is called on a thread."""
        return {}
