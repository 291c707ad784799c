"""The TLS engine, whatever way its bytes arrive."""

from __future__ import annotations

import itertools
import random
import ssl

import pytest
from hypothesis import given, settings, strategies as st

from pykclient.network.tls.ssl_transport_layer import SslEngine
from tests.network.tls.engines import connected, pair

SIZES = st.lists(st.integers(1, 40_000), min_size=1, max_size=20).filter(lambda sizes: max(sizes) > 500)


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    """Return ``data`` cut into pieces of these sizes, over and over."""
    found: list[bytes] = []
    start = 0
    for size in itertools.cycle(sizes):
        if start >= len(data):
            return found
        found.append(data[start : start + size])
        start += size
    raise AssertionError


def read_all(engine: SslEngine, sizes: list[int]) -> bytes:
    """Read what there is into targets of these sizes."""
    read = bytearray()
    for size in itertools.cycle(sizes):
        target = bytearray(size)
        count = engine.read_into(memoryview(target))
        if count is None:
            assert not engine.may_have_more
            return bytes(read)
        assert 0 < count <= size
        read += target[:count]
    raise AssertionError


FRAMES = st.lists(st.lists(st.integers(0, 12_000) | st.integers(60_000, 80_000), min_size=1, max_size=4), max_size=3)


@given(FRAMES, SIZES, SIZES, st.integers(0, 1 << 32))
@settings(max_examples=50)
def test_decrypted_stream_does_not_depend_on_cuts(
    frames: list[list[int]], arriving: list[int], taken: list[int], seed: int
) -> None:
    rng = random.Random(seed)  # hypothesis cannot draw this many bytes
    client, server = connected()
    sent, encrypted = b"", b""
    for frame in frames:
        buffers = [rng.randbytes(size) for size in frame]
        sent += b"".join(buffers)
        encrypted += client.encrypt(buffers)
    received = b""
    for piece in pieces(encrypted, arriving):
        server.feed(piece)
        received += read_all(server, taken)
    assert received == sent


@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=20))
def test_handshake_does_not_depend_on_cuts(sizes: list[int]) -> None:
    client, server = pair()
    to_server: list[bytes] = []
    to_client: list[bytes] = []
    for _ in range(100_000):
        done = client.handshake(), server.handshake()
        to_server += pieces(client.output(), sizes)
        to_client += pieces(server.output(), sizes)
        if all(done) and not to_server and not to_client:
            break
        if to_server:
            server.feed(to_server.pop(0))
        if to_client:
            client.feed(to_client.pop(0))
    server.feed(client.encrypt([b"hello"]))
    target = bytearray(10)
    assert server.read_into(memoryview(target)) == 5


@given(st.integers(0, 2), st.integers(0, 10_000), st.integers(1, 255))
def test_changed_handshake_byte_is_detected_or_harmless(flight: int, position: int, change: int) -> None:
    client, server = pair()
    receivers = [server, client, server]
    try:
        client.handshake()
        for index, receiver in enumerate(receivers):
            sender = client if receiver is server else server
            data = bytearray(sender.output())
            if index == flight and data:
                data[position % len(data)] ^= change
            receiver.feed(data)
            receiver.handshake()
            server.read_into(memoryview(bytearray(10))) if server.is_complete else None
    except ssl.SSLError:
        return
    # A changed record version is ignored, for example. Then the connection must be whole, or still wait.
    if client.is_complete and server.is_complete:
        server.feed(client.encrypt([b"x"]))


@given(st.binary(min_size=1, max_size=5_000))
def test_garbage_raises_or_waits_for_more(garbage: bytes) -> None:
    for engine in pair():
        try:
            engine.handshake()
            engine.feed(garbage)
            assert engine.handshake() is False
        except ssl.SSLError:
            pass


@given(st.integers(5, 10_000), st.integers(1, 255))
def test_a_changed_byte_of_data_is_an_error(position: int, change: int) -> None:
    client, server = connected()
    data = bytearray(client.encrypt([b"x" * 10_000]))
    data[position % (len(data) - 5) + 5] ^= change
    server.feed(data)
    with pytest.raises(ssl.SSLError):
        server.read_into(memoryview(bytearray(20_000)))


def test_bytes_before_error_are_delivered_first() -> None:
    client, server = connected()
    good = client.encrypt([b"good"])
    server.feed(good + b"\x17\x03\x03\x00\x20" + bytes(32))
    target = bytearray(100)
    assert server.read_into(memoryview(target)) == 4
    with pytest.raises(ssl.SSLError):
        server.read_into(memoryview(target))


def test_end_of_stream_is_recognized() -> None:
    client, server = connected()
    server.feed(client.encrypt([b"last"]) + client.close_notify())
    target = bytearray(100)
    assert server.read_into(memoryview(target)) == 4
    assert server.read_into(memoryview(target)) == 0
    assert server.read_into(memoryview(target)) == 0


def test_close_before_handshake_sends_nothing() -> None:
    client, _ = pair()
    assert client.close_notify() == b""


def test_small_buffers_share_one_tls_record() -> None:
    """Small buffers share a record, so that a request of many small pieces costs no more than one."""
    client, _ = connected()
    record_overhead = 22
    one = len(client.encrypt([b"x" * 8_000]))
    many = len(client.encrypt([b"x" * 80] * 100))
    assert many == one == 8_000 + record_overhead


def test_engine_without_data_needs_no_poll() -> None:
    client, server = connected()
    encrypted = client.encrypt([b"x" * 100])
    server.feed(encrypted[:50])
    assert server.may_have_more  # nobody knows yet
    assert server.read_into(memoryview(bytearray(1000))) is None
    assert not server.may_have_more
    server.feed(encrypted[50:])
    assert server.read_into(memoryview(bytearray(40))) == 40
    assert server.may_have_more
    assert server.read_into(memoryview(bytearray(1000))) == 60
    assert not server.may_have_more


def test_both_sides_report_same_cipher_suite() -> None:
    client, server = pair()
    assert client.cipher is None
    client, server = connected()
    assert client.cipher == server.cipher is not None
