"""Merging of the batches of a share partition's state (Java: PersisterStateBatchCombiner)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import pairwise

from pykclient.testing.share.share_types import StateBatch


def combine_state_batches(
    so_far: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int
) -> list[StateBatch]:
    """Return batches without overlaps, from ``start_offset`` on (-1: all), in the order of their offsets.

    Where batches overlap, the one with more deliveries counts or, after as many deliveries, the one with the later
    state.
    """
    waiting = sorted(
        batch._replace(first_offset=max(batch.first_offset, start_offset))
        for batch in (*so_far, *new)
        if batch.last_offset >= start_offset
    )
    combined: list[StateBatch] = []
    #: The batches that cover ``offset``, the strongest first.
    covering: list[tuple[int, int, int]] = []
    bounds = sorted({bound for batch in waiting for bound in (batch.first_offset, batch.last_offset + 1)})
    index = 0
    for offset, end in pairwise(bounds):
        while index < len(waiting) and waiting[index].first_offset <= offset:
            batch = waiting[index]
            heapq.heappush(covering, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            index += 1
        while covering and covering[0][2] < offset:
            heapq.heappop(covering)
        if not covering:
            continue
        part = StateBatch(offset, end - 1, -covering[0][1], -covering[0][0])
        last = combined[-1] if combined else None
        if last is not None and last.last_offset + 1 == offset and last[2:] == part[2:]:
            combined[-1] = last._replace(last_offset=part.last_offset)
        else:
            combined.append(part)
    return combined
