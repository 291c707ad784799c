"""Both implementations read the same frames, sizes and errors from sockets, however the stream is split."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st

from pykclient.errors import ProtocolError
from pykclient.network.frames import (
    FIRST_RESPONSE_LIMIT,
    UNLIMITED_SIZE,
    Frame,
    FrameReader,
    NetworkSend,
)
from pykclient.network.transport_layer import FrameStream, PlaintextTransportLayer, TransportFrameStream
from tests.support.twins import compiled_form

compiled = compiled_form("pykclient.network.transport_layer")

BUFFER_SIZE = 64

Make = Callable[[socket.socket, int, int | None, int], FrameStream]


def in_python(sock: socket.socket, max_size: int, first_limit: int | None, buffer_size: int) -> FrameStream:
    reader = FrameReader(max_size, first_limit=first_limit, buffer_size=buffer_size)
    return TransportFrameStream(PlaintextTransportLayer(sock, is_connected=True), reader)


def in_c(sock: socket.socket, max_size: int, first_limit: int | None, buffer_size: int) -> FrameStream:
    stream: FrameStream = compiled.SocketFrameStream(sock.fileno(), max_size, first_limit, buffer_size)
    return stream


BOTH = pytest.mark.parametrize("make", [in_python, in_c])


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def told(
    make: Make, stream: bytes, pieces: list[int], max_size: int, first_limit: int | None, *, one: bool, ends: bool
) -> list[object]:
    """Return the results of reading after each piece: bytes read and frames, or the error and its message."""
    log: list[object] = []
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        reading = make(near, max_size, first_limit, BUFFER_SIZE)
        position = turn = 0
        while True:
            count = min(pieces[turn % len(pieces)], len(stream) - position)
            if count:
                far.sendall(stream[position : position + count])
            position += count
            turn += 1
            if position == len(stream) and ends:
                far.close()
            for _ in range(3):
                frames: list[Frame] = []
                try:
                    log.append(reading.read(frames, one))
                except (OSError, ProtocolError) as error:
                    log.append((type(error), str(error)))
                    return log
                finally:
                    log.append([bytes(frame) for frame in frames])
                log.append(reading.has_frame)
            if position == len(stream) and log[-3:] == [0, [], False]:  # nothing arrived and nothing is left
                break
        reading.close()
    return log


sizes = st.one_of(
    st.integers(-3, 200), st.sampled_from([60, 61, 64, 0x48545450, 0x15030300, -(1 << 31), (1 << 31) - 1])
)
streams = st.lists(
    st.one_of(st.binary(max_size=3 * BUFFER_SIZE).map(framed), sizes.map(lambda size: struct.pack(">i", size))),
    max_size=12,
).map(b"".join)
pieces = st.lists(st.integers(min_value=1, max_value=4 * BUFFER_SIZE), min_size=1, max_size=8)


@given(
    stream=streams,
    pieces=pieces,
    max_size=st.sampled_from([-1, 0, 1, 61, 150]),
    first_limit=st.sampled_from([None, 10, 100]),
    one=st.booleans(),
    ends=st.booleans(),
)
@example(framed(b"a" * 60, b"b" * 61), [1], -1, None, False, True)
@example(framed(b"", b"", b"c" * 300), [300], -1, None, True, True)
@example(framed(*[b""] * 10), [18], -1, None, True, False)
def test_python_and_c_streams_report_same_frames(
    stream: bytes, pieces: list[int], max_size: int, first_limit: int | None, one: bool, ends: bool
) -> None:
    expected, found = (
        told(make, stream, pieces, max_size, first_limit, one=one, ends=ends) for make in (in_python, in_c)
    )
    assert all_frames(found) == all_frames(expected)
    errors = [entry for entry in expected if isinstance(entry, tuple)]
    assert [entry for entry in found if isinstance(entry, tuple)] == errors
    if not errors:  # an error replaces the count of bytes read
        assert bytes_read(found) == bytes_read(expected) == len(stream)


def bytes_read(log: list[object]) -> int:
    return sum(entry for entry in log if type(entry) is int)


def all_frames(log: list[object]) -> list[object]:
    return [frame for entry in log if isinstance(entry, list) for frame in entry]


@BOTH
def test_large_frame_gets_own_memory(make: Make) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        reading = make(near, -1, FIRST_RESPONSE_LIMIT, BUFFER_SIZE)
        kept: list[Frame] = []
        for number in range(20):
            far.sendall(framed(bytes([number]) * 1000))
            assert reading.read(kept, False) == 1004
        reading.close()
        views = [memoryview(frame)[500:] for frame in kept]
        kept.clear()
        assert [bytes(view) for view in views] == [bytes([number]) * 500 for number in range(20)]


@BOTH
def test_announced_size_allocates_no_memory(make: Make) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        reading = make(near, -1, None, BUFFER_SIZE)
        far.sendall(struct.pack(">i", (1 << 31) - 1) + b"x")
        frames: list[Frame] = []
        assert reading.read(frames, False) == 5
        assert not frames
        far.close()
        with pytest.raises(ConnectionResetError, match="in the middle of a frame"):
            reading.read(frames, False)
        reading.close()


@BOTH
def test_socket_errors_are_raised(make: Make) -> None:
    near, far = socket.socketpair()
    with near:
        near.setblocking(False)
        stream = make(near, -1, None, BUFFER_SIZE)
        far.close()
        with pytest.raises(BrokenPipeError) as raised:
            stream.write(NetworkSend("0", [b"x"]))
        assert raised.value.errno == errno.EPIPE
        with pytest.raises(BrokenPipeError):
            stream.write(NetworkSend("0", [b"x" * 100_000]))
        stream.close()


@BOTH
def test_partial_writes_send_whole_frame(make: Make) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        stream = make(near, -1, None, BUFFER_SIZE)
        parts = [bytes([number % 251]) * (number % 7 * 50) for number in range(3000)]
        send = NetworkSend("0", [bytearray(parts[0]), memoryview(parts[1]), *parts[2:]])
        written, got = 0, b""
        while not send.completed:
            written += stream.write(send)
            assert written == send.size - send.remaining
            got += far.recv(1 << 16)
        while len(got) < send.size:
            got += far.recv(1 << 16)
        assert written == send.size
        assert got == b"".join(parts)
        stream.close()


def test_closed_stream_releases_unwritten_frame() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        stream = in_c(near, -1, None, BUFFER_SIZE)
        buffer = bytearray(4_000_000)
        stream.write(NetworkSend("0", [buffer]))
        stream.close()
        buffer.clear()  # BufferError if a view of it exists


@BOTH
def test_memory_is_reused_once_no_view_is_left(make: Make) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        stream = make(near, UNLIMITED_SIZE, None, BUFFER_SIZE)

        def receive(number: int) -> tuple[memoryview, int]:
            far.sendall(framed(bytes((number,)) * 1000))
            frames: list[Frame] = []
            while not frames:
                stream.read(frames, False)
            (frame,) = frames
            return memoryview(frame), pa.py_buffer(frame).address

        first, first_address = receive(1)
        part = first[10:20]
        del first
        second, second_address = receive(2)
        assert second_address != first_address
        assert part == bytes((1,)) * 10
        del part
        third, third_address = receive(3)
        assert third_address == first_address
        assert second == bytes((2,)) * 1000
        stream.close()
        assert third == bytes((3,)) * 1000
