"""Ranges of offsets: splitting, distribution and limits. Numbers in tables are results of Spark's own classes."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, strategies as st

from pykclient.spark.ranges import OffsetRange, new_records, rate_limit, share_tasks, split_ranges
from pykclient.types import TopicPartition


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def ranges_of(sizes: list[int]) -> list[OffsetRange]:
    return [OffsetRange(tp(partition), 10 * partition, 10 * partition + size) for partition, size in enumerate(sizes)]


def test_range_has_size_text_and_pickles() -> None:
    some = OffsetRange(tp(3), 5, 9)
    assert some.size == 4
    assert str(some) == "t-3 [5, 9)"
    assert pickle.loads(pickle.dumps(some)) == some


class TestSplitting:
    # Sizes of partitions, minPartitions, maxRecordsPerPartition; sizes of the pieces of each partition.
    SPARKS: tuple[tuple[list[int], int | None, int | None, list[list[int]]], ...] = (
        ([100, 1000], None, None, [[100], [1000]]),
        ([100, 995], 7, None, [[100], [165, 166, 166, 166, 166, 166]]),
        ([100, 900], 4, None, [[100], [300, 300, 300]]),
        ([1000], 3, None, [[333, 333, 334]]),
        ([10], 3, None, [[3, 3, 4]]),
        ([2], 5, None, [[1, 1]]),
        ([1, 1, 1000], 4, None, [[1], [1], [500, 500]]),
        ([0, 0, 50], 2, None, [[], [], [25, 25]]),
        ([500, 500, 500], 4, None, [[500], [500], [500]]),
        ([5000, 2500, 2500], 6, None, [[1666, 1667, 1667], [1250, 1250], [1250, 1250]]),
        ([100, 1000], None, 300, [[100], [250, 250, 250, 250]]),
        ([100, 1000], 9, 600, [[100], [125] * 8]),
        ([10, 10], 2, 5, [[5, 5], [5, 5]]),
        ([7], None, 7, [[7]]),
        ([8], None, 7, [[4, 4]]),
        ([3, 997], 10, 400, [[3], [110, 111, 111, 110, 111, 111, 111, 111, 111]]),
        ([1 << 40, 1 << 39], 5, None, [[366503875925, 366503875925, 366503875926], [274877906944, 274877906944]]),
        ([1, 2, 3, 4], 20, None, [[1], [1, 1], [1, 1, 1], [1, 1, 1, 1]]),
        ([150, 50], 3, None, [[75, 75], [50]]),
    )

    @pytest.mark.parametrize(("sizes", "min_partitions", "max_records", "expected"), SPARKS)
    def test_result_equals_sparks(
        self, sizes: list[int], min_partitions: int | None, max_records: int | None, expected: list[list[int]]
    ) -> None:
        pieces = split_ranges(ranges_of(sizes), min_partitions, max_records)
        found = [[each.size for each in pieces if each.topic_partition == tp(n)] for n in range(len(sizes))]
        assert found == expected

    @given(
        st.lists(st.integers(0, 1 << 45) | st.integers(0, 30), max_size=8),
        st.none() | st.integers(1, 100),
        st.none() | st.integers(1, 200),
    )
    def test_pieces_cover_exactly_the_ranges(
        self, sizes: list[int], min_partitions: int | None, parts_of_largest: int | None
    ) -> None:
        max_records = None if parts_of_largest is None else max(sizes, default=0) // parts_of_largest + 1
        whole = ranges_of(sizes)
        pieces = split_ranges(whole, min_partitions, max_records)
        assert all(each.size > 0 for each in pieces)
        left = iter(pieces)
        for each in whole:
            at = each.start
            while at < each.end:
                piece = next(left)
                assert (piece.topic_partition, piece.start) == (each.topic_partition, at)
                at = piece.end
            assert at == each.end
        assert next(left, None) is None
        if max_records is not None:
            assert all(each.size <= max_records for each in pieces)

    @given(st.lists(st.integers(100, 10_000), min_size=1, max_size=8), st.integers(1, 60))
    def test_number_of_pieces_is_close_to_the_requested(self, sizes: list[int], min_partitions: int) -> None:
        """Rounding changes the number by less than one per partition."""
        pieces = split_ranges(ranges_of(sizes), min_partitions)
        assert len(pieces) >= len(sizes)
        if min_partitions <= len(sizes):
            assert len(pieces) == len(sizes)
        else:
            assert abs(len(pieces) - min_partitions) <= len(sizes)


class TestSharingTasks:
    @pytest.mark.parametrize(
        ("sizes", "records_per_task", "expected"),
        [
            ([], 100, []),
            ([5], 100, [[5]]),
            ([5, 500], 100, [[5], [500]]),
            ([500, 400], 100, [[500], [400]]),
            ([5, 6], 0, [[5], [6]]),
            ([5, 6, 7], 100, [[5, 6, 7]]),
            ([500, 500, 500, 500], 1000, [[500, 500], [500, 500]]),
            ([90, 1000, 90, 90, 90], 100, [[1000], [90], [90], [90, 90]]),
            ([1, 1, 99, 1], 100, [[1, 1, 99, 1]]),
            ([99, 99, 99], 100, [[99], [99, 99]]),
        ],
    )
    def test_small_ranges_share_one(self, sizes: list[int], records_per_task: int, expected: list[list[int]]) -> None:
        tasks = share_tasks(ranges_of(sizes), records_per_task)
        assert [[each.size for each in task] for task in tasks] == expected

    @given(st.lists(st.integers(1, 300), max_size=30), st.integers(0, 200))
    def test_each_range_is_read_once_and_large_ones_alone(self, sizes: list[int], records_per_task: int) -> None:
        ranges = ranges_of(sizes)
        tasks = share_tasks(ranges, records_per_task)
        assert sorted(each for task in tasks for each in task) == sorted(ranges)
        assert all(task for task in tasks)
        shared = [task for task in tasks if len(task) > 1]
        assert all(each.size < records_per_task for task in shared for each in task)
        small = sum(size for size in sizes if size < records_per_task)
        assert sum(1 for task in tasks if task[0].size < records_per_task) <= max(1, small // max(records_per_task, 1))

    def test_ranges_share_tasks_whatever_their_sizes(self) -> None:
        """Ranges stay together when their sizes change, because a worker's consumer has read its partitions before."""
        one = share_tasks(ranges_of([500, 480, 510, 620]), 1000)
        other = share_tasks(ranges_of([530, 610, 420, 470]), 1000)
        assert [[each.topic_partition for each in task] for task in one] == [
            [each.topic_partition for each in task] for task in other
        ]


class TestRateLimit:
    @pytest.mark.parametrize(
        ("sizes", "limit", "expected"),
        [
            ([100, 100], 10, [5, 5]),
            ([99, 1], 10, [9, 1]),
            ([5, 5, 5], 10, [3, 3, 3]),
            ([15000, 15000, 15000], 10000, [3333, 3333, 3333]),
            ([1000000, 1], 1000, [999, 1]),
            ([1, 1, 1], 2, [1, 1, 1]),
            ([10, 0], 100, [10, 0]),
            ([7, 11, 13], 1, [1, 1, 1]),
            ([3, 3, 3], 100, [3, 3, 3]),
            ([0, 0], 5, [0, 0]),
            ([50], 7, [7]),
            ([4, 4, 4], (1 << 63) - 1, [4, 4, 4]),
            ([123, 456, 789], 1000, [89, 333, 576]),
            ([10, -5], 6, [6, -5]),
        ],
    )
    def test_result_equals_sparks(self, sizes: list[int], limit: int, expected: list[int]) -> None:
        start = {tp(n): 10 * n + 7 for n in range(len(sizes))}
        until = {tp(n): 10 * n + 7 + size for n, size in enumerate(sizes)}
        end = rate_limit(limit, start, until, {})
        assert [end[tp(n)] - start[tp(n)] for n in range(len(sizes))] == expected

    def test_new_partitions_count_from_their_beginning(self) -> None:
        assert rate_limit(10, {tp(0): 0}, {tp(0): 50, tp(1): 150}, {tp(1): 100}) == {tp(0): 5, tp(1): 105}
        # Planning the micro-batch detects a partition with an unknown first offset.
        assert rate_limit(10, {tp(0): 0}, {tp(0): 50, tp(1): 150}, {}) == {tp(0): 10, tp(1): 150}

    def test_removed_partitions_are_left_out(self) -> None:
        assert rate_limit(10, {tp(0): 0, tp(9): 5}, {tp(0): 50}, {}) == {tp(0): 10}

    @given(
        st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40) | st.integers(0, 20)), max_size=8),
        st.integers(1, 1 << 50) | st.integers(1, 100),
    )
    def test_every_partition_advances_within_its_limit(self, logs: list[tuple[int, int]], limit: int) -> None:
        start = {tp(n): begin for n, (begin, _) in enumerate(logs)}
        until = {tp(n): begin + size for n, (begin, size) in enumerate(logs)}
        end = rate_limit(limit, start, until, {})
        assert list(end) == list(until)
        for partition, offset in end.items():
            assert start[partition] <= offset <= until[partition]
            assert offset > start[partition] or until[partition] == start[partition]
        taken = sum(end[partition] - start[partition] for partition in end)
        assert taken <= limit * (1 + 1e-9) + len(logs)


def test_new_records_sums_offset_differences() -> None:
    assert new_records({}, {}) == 0
    assert new_records({tp(0): 3, tp(5): 9}, {tp(0): 10, tp(1): 4}) == 11
    assert new_records({tp(0): 3}, {tp(0): 2}) == -1
