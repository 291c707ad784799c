"""The bounded memory pool."""

from __future__ import annotations

import pytest

from pykclient.errors import IllegalArgumentError
from pykclient.network.frames import UNLIMITED, SimpleMemoryPool


def test_a_strict_pool_never_exceeds_its_size() -> None:
    pool = SimpleMemoryPool(100, 60, strict=True)
    first = pool.try_allocate(60)
    assert first is not None
    assert len(first) == 60
    assert pool.try_allocate(41) is None
    assert pool.try_allocate(40) is not None
    assert pool.is_out_of_memory
    assert pool.available_memory == 0
    pool.release(60)
    assert pool.available_memory == 60
    assert pool.size == 100


def test_lenient_pool_exceeds_size_by_one_buffer() -> None:
    pool = SimpleMemoryPool(100, 60, strict=False)
    for _ in range(2):
        assert pool.try_allocate(60) is not None
    assert pool.available_memory == -20
    assert pool.try_allocate(1) is None


@pytest.mark.parametrize(("size", "largest"), [(0, 0), (10, 11), (10, 0), (-1, -1)])
def test_invalid_pool_sizes_are_refused(size: int, largest: int) -> None:
    with pytest.raises(IllegalArgumentError):
        SimpleMemoryPool(size, largest, strict=True)


@pytest.mark.parametrize("size", [0, -1, 61])
def test_impossible_buffer_sizes_are_refused(size: int) -> None:
    with pytest.raises(IllegalArgumentError):
        SimpleMemoryPool(100, 60, strict=True).try_allocate(size)


def test_unlimited_pool_has_no_bound() -> None:
    assert UNLIMITED.size is None
    assert len(UNLIMITED.try_allocate(5) or b"") == 5
    assert not UNLIMITED.is_out_of_memory
    UNLIMITED.release(5)
    assert UNLIMITED.available_memory > 1 << 60
