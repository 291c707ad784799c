"""Buffers are reused only when no view of them is left."""

from __future__ import annotations

from pykclient.spare_buffers import SpareBuffers


def test_viewed_buffer_is_not_reused() -> None:
    spares = SpareBuffers(2, 1000)
    buffer = bytearray(100)
    view = memoryview(buffer)[:50]
    spares.keep(buffer)
    assert spares.take(10) is None
    view.release()
    assert spares.take(101) is None
    assert spares.take(10, 99) is None
    assert spares.take(100) is buffer
    assert spares.take(1) is None
    assert len(buffer) == 100


def test_spare_buffers_limit_count_and_bytes() -> None:
    spares = SpareBuffers(2, 1000)
    buffers = [bytearray(100) for _ in range(3)]
    for buffer in buffers:
        spares.keep(buffer)
    assert [spares.take(), spares.take(), spares.take()] == [*buffers[1:], None]
    spares.keep(buffers[0])
    spares.keep(bytearray(950))
    assert spares.take(100) is not None
    assert spares.take() is None
    spares.keep(bytearray(1001))
    assert spares.take() is None
