"""Ranges of offsets, split, distributed over tasks and limited as Spark's own Kafka source does it.

This module is arithmetic only, independent of Spark and of any cluster. It uses floating-point numbers where Spark
does, so that the same topics give the same ranges (KafkaOffsetRangeCalculator, KafkaMicroBatchStream.rateLimit).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, NamedTuple

from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID


class OffsetRange(NamedTuple):
    """The records of one partition with offsets from ``start`` up to, but not including, ``end``. A log may have gaps.

    ``topic_id`` tells the topic from an earlier or later one of the same name. None where brokers have no topic ids
    (before Kafka 2.8).
    """

    topic_partition: TopicPartition
    start: int
    end: int
    topic_id: UUID | None = None

    @property
    def size(self) -> int:
        """The number of offsets. In a log with gaps there are fewer records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.end})"


def split_ranges(
    ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Split large ranges, so that each piece can be a task. Empty ranges are dropped, the order is kept.

    First ranges are split into pieces of at most ``max_records`` offsets. If that gives fewer than ``min_partitions``
    pieces, large ones are split further in proportion to their sizes, into about ``min_partitions`` in total: rounding
    may give a few more or fewer.
    """
    pieces = [piece for piece in ranges if piece.size > 0]
    if max_records is not None:
        pieces = [part for piece in pieces for part in _divide(piece, math.ceil(float(piece.size) / max_records))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(piece.size for piece in pieces)
    # Pieces that stay whole do not count in the proportions by which the others are split.
    whole = [piece for piece in pieces if _part_count(piece.size, total, min_partitions) == 1]
    left = total - sum(piece.size for piece in whole)
    parts_left = min_partitions - len(whole)  # at least 2 if anything is left
    stays = {piece.topic_partition for piece in whole}
    split: list[OffsetRange] = []
    for piece in pieces:
        parts = 1 if piece.topic_partition in stays else _part_count(piece.size, left, parts_left)
        split += _divide(piece, parts)
    return split


def _part_count(size: int, total: int, parts: int) -> int:
    # Java's Math.round, which rounds halves up.
    return max(math.floor(float(size) / total * parts + 0.5), 1)


def _divide(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Return ``whole`` in ``parts`` non-empty pieces of nearly equal size, the larger ones last."""
    if parts <= 1:
        return [whole]
    pieces: list[OffsetRange] = []
    start = whole.start
    for part in range(parts):
        end = start + (whole.end - start) // (parts - part)
        if end > start:
            pieces.append(whole._replace(start=start, end=end))
        start = end
    return pieces


def share_tasks(ranges: Sequence[OffsetRange], records_per_task: int) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task. Ranges smaller than ``records_per_task`` share tasks, in the given order.

    A task costs Spark and its Python worker milliseconds, whatever it reads, and many partitions may have few new
    records each. Small ranges are distributed over as many tasks as they would fill, with the same number of ranges in
    each. The ranges of a task then change little from one micro-batch to the next, so that a worker often gets the
    partitions that its consumer has read before. (Spark's own source has one task per range.)
    """
    small = [single for single in ranges if single.size < records_per_task]
    if len(small) < 2:
        return [(single,) for single in ranges]
    count = min(max(sum(single.size for single in small) // records_per_task, 1), len(small))
    bounds = [len(small) * part // count for part in range(count + 1)]
    tasks = [(single,) for single in ranges if single.size >= records_per_task]
    return [*tasks, *(tuple(small[start:end]) for start, end in pairwise(bounds))]


def rate_limit(
    limit: int,
    start: Mapping[TopicPartition, int],
    until: Mapping[TopicPartition, int],
    earliest_of_new: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the end offsets of a micro-batch of about ``limit`` offsets (Spark: KafkaMicroBatchStream.rateLimit).

    Each partition gets a share of ``limit`` in proportion to its backlog, rounded down, but at least one offset, so
    that small partitions do not starve. The sum may therefore be slightly above or below the limit.
    ``earliest_of_new`` has the first offsets of partitions that are not in ``start``. A partition in neither ends as
    ``until`` says.
    """
    begins = {**earliest_of_new, **start}
    sizes = {tp: end - begins[tp] for tp, end in until.items() if tp in begins and end > begins[tp]}
    total = float(sum(sizes.values()))

    def limited(tp: TopicPartition, end: int) -> tuple[TopicPartition, int]:
        if tp not in sizes:
            return tp, end
        share = limit * (sizes[tp] / total)
        return tp, min(end, begins[tp] + (math.ceil(share) if share < 1 else math.floor(share)))

    return dict(starmap(limited, until.items()))


def new_records(start: Mapping[TopicPartition, int], until: Mapping[TopicPartition, int]) -> int:
    """Return the number of new offsets, for ``minOffsetsPerTrigger`` (KafkaMicroBatchStream.delayBatch).

    A partition that is not in ``start`` counts from 0, as in Spark.
    """
    return sum(end - start.get(tp, 0) for tp, end in until.items())
