"""Frames read from a stream are the same however the stream is split."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st

from pykclient.network.frames import (
    FIRST_RESPONSE_LIMIT,
    UNLIMITED,
    Frame,
    FrameReader,
    InvalidReceiveError,
    SimpleMemoryPool,
)

BUFFER_SIZE = 64


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def feed(reader: FrameReader, stream: bytes, pieces: list[int]) -> list[Frame]:
    """Feed the stream in pieces of these sizes, repeated as needed, and return its frames."""
    frames: list[Frame] = []
    position = turn = 0
    while position < len(stream):
        room = reader.writable()
        assert len(room) > 0
        count = min(len(room), pieces[turn % len(pieces)], len(stream) - position)
        room[:count] = stream[position : position + count]
        reader.advance(count)
        position += count
        turn += 1
        while True:
            had_frame = reader.has_frame
            frame = reader.next_frame()
            assert had_frame == (frame is not None)
            if frame is None:
                break
            frames.append(frame)
    return frames


payloads = st.lists(st.binary(max_size=3 * BUFFER_SIZE), max_size=12)
pieces = st.lists(st.integers(min_value=1, max_value=2 * BUFFER_SIZE), min_size=1, max_size=8)


@given(payloads=payloads, pieces=pieces)
def test_frames_do_not_depend_on_how_stream_is_cut(payloads: list[bytes], pieces: list[int]) -> None:
    reader = FrameReader(buffer_size=BUFFER_SIZE)
    assert feed(reader, framed(*payloads), pieces) == payloads
    assert not reader.mid_frame
    assert not reader.buffered


@given(payloads=payloads, pieces=pieces)
def test_pooled_frames_do_not_depend_on_cuts(payloads: list[bytes], pieces: list[int]) -> None:
    pool = SimpleMemoryPool(1 << 20, 1 << 16, strict=True)
    reader = FrameReader(memory_pool=pool)
    frames = feed_pooled(reader, framed(*payloads), pieces)
    assert frames == payloads
    for frame in frames:
        if frame:
            pool.release(len(frame))
    assert pool.available_memory == 1 << 20


def feed_pooled(reader: FrameReader, stream: bytes, pieces: list[int]) -> list[Frame]:
    frames: list[Frame] = []
    position = turn = 0
    while position < len(stream):
        room = reader.writable()
        count = min(len(room), pieces[turn % len(pieces)], len(stream) - position)
        room[:count] = stream[position : position + count]
        reader.advance(count)
        position += count
        turn += 1
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
    return frames


@given(payloads=st.lists(st.binary(min_size=1, max_size=200), min_size=1), data=st.data())
def test_later_frames_do_not_change_earlier_ones(payloads: list[bytes], data: st.DataObject) -> None:
    reader = FrameReader(buffer_size=BUFFER_SIZE)
    stream = framed(*payloads)
    cut = data.draw(st.integers(min_value=0, max_value=len(stream)))
    frames = feed(reader, stream[:cut], [7])
    copies = [bytes(frame) for frame in frames]
    frames += feed(reader, stream[cut:], [50])
    assert [bytes(frame) for frame in frames[: len(copies)]] == copies
    assert [bytes(frame) for frame in frames] == payloads


def test_a_large_frame_is_received_into_its_own_buffer() -> None:
    reader = FrameReader(buffer_size=BUFFER_SIZE)
    payload = bytes(range(256)) * 4
    stream = framed(payload)
    reader.writable()[:BUFFER_SIZE] = stream[:BUFFER_SIZE]
    reader.advance(BUFFER_SIZE)
    assert reader.next_frame() is None
    room = reader.writable()
    assert len(room) == len(stream) - BUFFER_SIZE  # one read takes the rest, but none of the next frame
    room[:] = stream[BUFFER_SIZE:]
    reader.advance(len(room))
    frame = reader.next_frame()
    assert isinstance(frame, memoryview)
    assert frame == payload


def test_buffer_is_reused_once_no_view_is_left() -> None:
    reader = FrameReader(buffer_size=BUFFER_SIZE)
    frames: list[memoryview] = []
    parts: list[memoryview] = []
    sizes = (1000, 900, 800, 700, 600, 100)
    for number, size in enumerate(sizes):
        (frame,) = feed(reader, framed(bytes((number,)) * size), [BUFFER_SIZE])
        assert isinstance(frame, memoryview)
        frames.append(frame)
        if number == 0:
            first = frame.obj
            parts.append(frame[10:20])
            frame.release()
        elif number == 1:
            assert frame.obj is not first
            assert parts[0] == bytes(10)
            parts[0].release()
        elif number == 2:
            assert frame.obj is first
    assert frames[3].obj is not first
    assert all(frame == bytes((number,)) * sizes[number] for number, frame in enumerate(frames) if number)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "TLS"),
        (b"\x16\x03\x01\x00\x02", "TLS"),
        (struct.pack(">i", FIRST_RESPONSE_LIMIT + 1), "not that of a Kafka broker"),
        (struct.pack(">i", -1), "the size -1"),
        (b"\x80\0\0\0", "the size -2147483648"),
    ],
)
def test_error_explains_bytes_of_other_protocols(start: bytes, said: str) -> None:
    reader = FrameReader(first_limit=FIRST_RESPONSE_LIMIT)
    with pytest.raises(InvalidReceiveError, match=said):
        feed(reader, start, [100])


def test_only_the_first_frame_has_the_narrow_limit() -> None:
    reader = FrameReader(first_limit=10)
    assert feed(reader, framed(b"x" * 10, b"y" * 11), [3]) == [b"x" * 10, b"y" * 11]


def test_frame_over_size_limit_is_refused() -> None:
    assert feed(FrameReader(max_size=5), framed(b"12345"), [9]) == [b"12345"]
    with pytest.raises(InvalidReceiveError, match="6 bytes exceeds the limit of 5"):
        feed(FrameReader(max_size=5), framed(b"123456"), [9])


@given(stream=st.binary(max_size=300), pieces=pieces)
def test_garbage_gives_frames_or_an_error(stream: bytes, pieces: list[int]) -> None:
    reader = FrameReader(max_size=1000, memory_pool=UNLIMITED, first_limit=500, buffer_size=BUFFER_SIZE)
    try:
        frames = feed(reader, stream, pieces)
    except InvalidReceiveError:
        return
    assert sum(len(frame) + 4 for frame in frames) <= len(stream)


def test_frame_waits_for_memory() -> None:
    pool = SimpleMemoryPool(10, 10, strict=True)
    assert pool.try_allocate(8) is not None
    reader = FrameReader(memory_pool=pool)
    reader.writable()[:] = struct.pack(">i", 5)
    reader.advance(4)
    assert reader.next_frame() is None
    assert reader.waits_for_memory
    assert len(reader.writable()) == 0
    assert not reader.retry_allocation()
    pool.release(8)
    assert reader.retry_allocation()
    assert not reader.waits_for_memory
    reader.writable()[:] = b"12345"
    reader.advance(5)
    assert reader.next_frame() == b"12345"


def test_closing_releases_memory() -> None:
    pool = SimpleMemoryPool(10, 10, strict=True)
    reader = FrameReader(memory_pool=pool)
    reader.writable()[:] = struct.pack(">i", 5)
    reader.advance(4)
    reader.next_frame()
    assert pool.available_memory == 5
    reader.close()
    assert pool.available_memory == 10
