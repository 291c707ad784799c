"""The transactional methods of a producer, which are not supported yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykclient.errors import IllegalStateError
from pykclient.types import TopicPartition

_NO_TRANSACTIONS = (
    "transactions need transactional.id, which this version of pykclient does not support yet; without it the "
    "producer is idempotent: each record is written once and in order"
)


class NoTransactions:
    """The transactional methods of a producer; each raises IllegalStateError. Thread: any."""

    __slots__ = ()

    def init_transactions(self) -> None:
        """Raise IllegalStateError: transactions are not supported yet."""
        raise IllegalStateError(_NO_TRANSACTIONS)

    def begin_transaction(self) -> None:
        """Raise IllegalStateError: transactions are not supported yet."""
        raise IllegalStateError(_NO_TRANSACTIONS)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, Any],  # noqa: ARG002
        group_metadata: Any,  # noqa: ARG002
    ) -> None:
        """Raise IllegalStateError: transactions are not supported yet."""
        raise IllegalStateError(_NO_TRANSACTIONS)

    def commit_transaction(self) -> None:
        """Raise IllegalStateError: transactions are not supported yet."""
        raise IllegalStateError(_NO_TRANSACTIONS)

    def abort_transaction(self) -> None:
        """Raise IllegalStateError: transactions are not supported yet."""
        raise IllegalStateError(_NO_TRANSACTIONS)
