"""Frames and messages."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from pykclient.errors import ProtocolError, RemoteProtocolError, UnsupportedVersionError
from pykclient.implementation import python_form
from pykclient.network.frames import Frame, FrameReader
from pykclient.network.transport_layer import FrameStream, PlaintextTransportLayer, TransportFrameStream
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_request, parse_request_header, parse_response, response_header_version
from pykclient.protocol.message import Message
from pykclient.protocol.wire import Reader
from tests.fuzz.target import Input, Target, number, pieces
from tests.protocol.messages import AnyMessage, all_versions, random_message, written
from tests.support.twins import compiled_form

_BUFFER_BYTES = 64
_COMPILED_STREAM = compiled_form("pykclient.network.transport_layer").SocketFrameStream


READERS: tuple[Any, ...] = (python_form(Reader), compiled_form("pykclient.protocol.wire").Reader)


def outcome(work: Callable[[], Any], *expected: type[BaseException]) -> Any:
    """Return the result, or the error if it is one of those expected."""
    try:
        return work()
    except expected as error:
        return type(error), str(error)


# --- frames ----------------------------------------------------------------------------------------------------------


def _frames_of(stream: FrameStream, far: socket.socket, parts: list[bytes], *, one: bool) -> list[object]:
    """Return all that a stream tells while its parts arrive, one after the other."""
    log: list[object] = []
    for part in parts:
        if part:
            far.sendall(part)
        for _ in range(3):
            frames: list[Frame] = []
            try:
                log.append(stream.read(frames, one))
            except ProtocolError as error:
                return [*log, type(error), str(error)]
            finally:
                log.append([bytes(frame) for frame in frames])
    stream.close()
    return log


def run_frames(data: bytes) -> None:
    given = Input(data)
    flags = given.byte()
    max_size = given.number(2) if flags & 1 else -1
    first_limit = given.number(2) if flags & 2 else None
    parts = [part[start : start + 4096] for part in given.pieces() for start in range(0, len(part) or 1, 4096)]
    logs = []
    for is_compiled in (False, True):
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            stream: Any
            if is_compiled:
                stream = _COMPILED_STREAM(near.fileno(), max_size, first_limit, _BUFFER_BYTES)
            else:
                reader = FrameReader(max_size, first_limit=first_limit, buffer_size=_BUFFER_BYTES)
                stream = TransportFrameStream(PlaintextTransportLayer(near, is_connected=True), reader)
            logs.append(_frames_of(stream, far, parts, one=bool(flags & 4)))
    assert logs[0] == logs[1]


def frame_seeds(rng: Random) -> Iterator[bytes]:
    for flags in range(8):
        options = number(flags) + number(200, 2) * ((flags & 1) + (flags >> 1 & 1))
        payloads = [rng.randbytes(size) for size in (0, 1, 59, 60, 61, 200)]
        stream = b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)
        yield options + pieces(stream)
        yield options + pieces(*(stream[start : start + 7] for start in range(0, len(stream), 7)))
    for start in (b"HTTP/1.1 400 Bad Request\r\n", b"\x15\x03\x03\x00\x02\x02\x50", b"\x7f\xff\xff\xff", b"\xff" * 8):
        yield b"\2\x40\0" + pieces(start)


# --- messages --------------------------------------------------------------------------------------------------------

VERSIONS: list[tuple[AnyMessage, int]] = sorted(all_versions(), key=lambda each: (each[0].__name__, each[1]))
_INDEX = {each: index for index, each in enumerate(VERSIONS)}


def run_messages(data: bytes) -> None:
    """Read a message in one of its versions with both readers, write it, and read that again."""
    given = Input(data)
    cls, version = VERSIONS[given.number(2) % len(VERSIONS)]
    body = given.rest()
    results = []
    for reader_class in READERS:
        reader = reader_class(body)
        message = outcome(lambda r=reader: cls.read(r, version), RemoteProtocolError)  # type: ignore[misc]
        results.append((message, reader.pos if isinstance(message, Message) else None))
    if isinstance(results[0][0], Message):
        message = results[0][0]
        repr(message)
        encoded = written(message, version)
        assert encoded == written(results[1][0], version)
        assert results[0][1] == results[1][1]
        again = cls.read(READERS[0](encoded), version)
        assert written(again, version) == encoded
    else:
        assert results[0] == results[1]


def message_seeds(rng: Random) -> Iterator[bytes]:
    for each in VERSIONS:
        cls, version = each
        yield number(_INDEX[each], 2) + written(random_message(cls, cls, version, rng), version)


def run_requests(data: bytes) -> None:
    """Read a request with its header, as a broker does."""
    results = []
    for reader_class in READERS:
        reader = reader_class(data)

        def read(r: Any = reader) -> Any:
            header = parse_request_header(r)
            repr(header)
            return ApiKeys.message_class(header.api_key).read(r, header.api_version)

        found = outcome(read, RemoteProtocolError, UnsupportedVersionError)
        results.append((repr(found) if isinstance(found, Message) else found, reader.pos))
    if isinstance(results[0][0], str):
        assert results[0] == results[1]
    else:
        assert results[0][0] == results[1][0]


def request_seeds(rng: Random) -> Iterator[bytes]:
    for key in ApiKeys.all():
        cls = ApiKeys.message_class(key)
        for version in {ApiKeys.oldest_served_version(key), ApiKeys.latest_version(key, enable_unstable=True)}:
            request: Any = random_message(cls, cls, version, rng)
            yield encode_request(request, version, 7, "fuzz").getvalue()[4:]


def run_responses(data: bytes) -> None:
    """Read a response with its header, as a client does."""
    given = Input(data)
    keys = ApiKeys.client_apis()
    key = keys[given.byte() % len(keys)]
    oldest, newest = ApiKeys.versions(key)
    version = oldest + given.byte() % (newest - oldest + 1)
    found = outcome(lambda: parse_response(given.rest(), key, version), RemoteProtocolError)
    repr(found)


def response_seeds(rng: Random) -> Iterator[bytes]:
    for index, key in enumerate(ApiKeys.client_apis()):
        cls = ApiKeys.message_class(key, request=False)
        oldest, newest = ApiKeys.versions(key)
        for version in {oldest, newest}:
            header = number(7, 4) + b"\0" * response_header_version(key, version)
            yield (
                number(index)
                + number(version - oldest)
                + header
                + written(random_message(cls, cls, version, rng), version)
            )


#: Arrays of the smallest structs: three bytes become an object.
_OBJECTS = 80

TARGETS = [
    Target("frames", run_frames, frame_seeds),
    Target("messages", run_messages, message_seeds, _OBJECTS),
    Target("requests", run_requests, request_seeds, _OBJECTS),
    Target("responses", run_responses, response_seeds, _OBJECTS),
]
