"""Partitions for which there is no offset to start from."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pykclient.errors import NoOffsetForPartitionError

if TYPE_CHECKING:
    from pykclient.consumer.partition_index import PartitionIndex
    from pykclient.types import TopicPartition


class MissingOffsets:
    """The assigned partitions without a position, a committed offset and a reset policy.

    A KafkaConsumer raises an error as soon as there is one. With ``are_kept``, an error is kept until a call asks for
    the partition: the tasks of an event loop read different partitions of one consumer. Until then, no committed offset
    is looked up again. Thread: application.
    """

    __slots__ = ("_index", "are_kept")

    def __init__(self, index: PartitionIndex) -> None:
        self._index = index
        self.are_kept = False

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Note that these assigned partitions have no offset to start from.

        Raises:
            NoOffsetForPartitionError: errors are not kept.
        """
        if partitions and not self.are_kept:
            raise _error(partitions)
        for tp in partitions:
            self._index.assignment[tp].lacks_offset = True

    def among(self, partitions: Collection[TopicPartition] | None) -> list[TopicPartition]:
        """Return those of ``partitions`` (None: all) that have no offset to start from."""
        return [
            tp
            for tp, state in self._index.without_position.items()
            if state.lacks_offset and (partitions is None or tp in partitions)
        ]

    def raise_for(self, partitions: Collection[TopicPartition] | None) -> None:
        """Raise the error of ``partitions`` (None: all), if there is one, and then look for their offsets again.

        Raises:
            NoOffsetForPartitionError: one of them has no offset to start from.
        """
        missing = self.among(partitions)
        if missing:
            for tp in missing:
                self._index.assignment[tp].lacks_offset = False
            raise _error(missing)


def _error(partitions: Collection[TopicPartition]) -> NoOffsetForPartitionError:
    names = ", ".join(map(str, sorted(partitions)))
    return NoOffsetForPartitionError(
        f"no committed offset and auto.offset.reset is 'none' for: {names}; seek() there, or set a policy",
        frozenset(partitions),
    )
