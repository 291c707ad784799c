"""Acknowledgements of the records of one partition (Java: Acknowledgements, AcknowledgementBatch)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient.consumer.share.acknowledge_type import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pykclient.errors import KafkaError
    from pykclient.types import TopicIdPartition

#: The protocol's type of an offset without a record.
GAP = 0
#: From this number on, neighbouring offsets with the same type become a batch of their own, which has the type once.
MIN_UNIFORM_BATCH = 11


class AcknowledgementBatch(NamedTuple):
    """The types of a range of offsets. A single type stands for all offsets of the range."""

    first_offset: int
    last_offset: int
    types: list[int]


class Acknowledgements:
    """The acknowledgement types of a partition's records by offset, and the broker's answer once ``is_done``.

    Thread: the holder of the I/O lease once they are on their way, the application before that.
    """

    __slots__ = ("error", "is_done", "types")

    def __init__(self, types: Mapping[int, int] | None = None) -> None:
        self.types: dict[int, int] = dict(types or {})
        self.is_done = False
        self.error: KafkaError | None = None

    def __len__(self) -> int:
        return len(self.types)

    @property
    def has_renewals(self) -> bool:
        """True if a lock is to be renewed."""
        return AcknowledgeType.RENEW in self.types.values()

    def merge(self, other: Acknowledgements) -> None:
        """Add the acknowledgements of ``other``, which replace those of the same offsets."""
        self.types.update(other.types)

    def complete(self, error: KafkaError | None) -> None:
        """Store the broker's answer: None means success."""
        self.error = error
        self.is_done = True

    def batches(self) -> list[AcknowledgementBatch]:
        """Return the ranges to send, in the order of their offsets."""
        batches: list[AcknowledgementBatch] = []
        mixed: AcknowledgementBatch | None = None  # collects runs that are too short for a batch of their own
        for first, last, kind in self._runs():
            count = last - first + 1
            if count >= MIN_UNIFORM_BATCH:
                batches.append(AcknowledgementBatch(first, last, [kind]))
                mixed = None
            elif mixed is not None and mixed.last_offset == first - 1:
                mixed = mixed._replace(last_offset=last)
                mixed.types.extend([kind] * count)
                batches[-1] = mixed
            else:
                mixed = AcknowledgementBatch(first, last, [kind] * count)
                batches.append(mixed)
        return [batch._replace(types=batch.types[:1]) if len(set(batch.types)) == 1 else batch for batch in batches]

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield ranges of adjacent offsets with the same type."""
        run: tuple[int, int, int] | None = None
        for offset, kind in sorted(self.types.items()):
            if run is not None and offset == run[1] + 1 and kind == run[2]:
                run = (run[0], offset, kind)
                continue
            if run is not None:
                yield run
            run = (offset, offset, kind)
        if run is not None:
            yield run


class NodeAcknowledgements(NamedTuple):
    """Acknowledgements of a partition for the broker that has delivered its records."""

    node_id: int
    partition: TopicIdPartition
    acknowledgements: Acknowledgements
