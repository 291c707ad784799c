"""Request and response headers, and whole messages with them.

A request is int32 size, header, body. Its header has version 2 if the body's version is flexible, else 1. A response is
int32 size, header, body, with header version 1 if the body is flexible, else 0. There are two exceptions. The header of
an ApiVersions response always has version 0, so that a client can read it before it knows the broker's versions
(KIP-511). And version 0 of ControlledShutdown has a header of version 0, which lacks the client id.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from pykclient.errors import RemoteProtocolError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.wire import Reader, Writer

if TYPE_CHECKING:
    from pykclient.protocol.message import Request, Response
    from pykclient.protocol.wire import BytesLike

SIZE_PREFIX_BYTES = 4


class RequestHeader:
    """The header before the body of every request.

    Thread: any
    """

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __repr__(self) -> str:
        name = ApiKeys.name_of(self.api_key)
        return f"RequestHeader({name} v{self.api_version}, {self.correlation_id}, client_id={self.client_id!r})"


@lru_cache(maxsize=512)
def request_header_version(api_key: int, api_version: int) -> int:
    """Return the version of the header of this version of a request."""
    if api_version == 0 and api_key == ApiKeys.CONTROLLED_SHUTDOWN:
        return 0
    return 2 if ApiKeys.is_flexible(api_key, api_version) else 1


@lru_cache(maxsize=512)
def response_header_version(api_key: int, api_version: int) -> int:
    """Return the version of the header of this version of a response."""
    return 1 if api_key != ApiKeys.API_VERSIONS and ApiKeys.is_flexible(api_key, api_version) else 0


@lru_cache(maxsize=256)
def _request_head(api_key: int, version: int, client_id: str | None) -> tuple[struct.Struct, bytes]:
    """Return the layout of a request's size and header, and the part of the header behind the correlation id."""
    w = Writer()
    header_version = request_header_version(api_key, version)
    if header_version >= 1:
        w.nullable_string(client_id, False)
    if header_version >= 2:
        w.tags(None)
    rest = w.getvalue()
    return struct.Struct(f">ihhi{len(rest)}s"), rest


def encode_request(request: Request, version: int, correlation_id: int, client_id: str | None) -> Writer:
    """Encode a request for the connection, including its size and header.

    Raises:
        UnsupportedVersionError, LocalProtocolError: see ``Message.write``.
    """
    w = Writer()
    api_key = request.API_KEY
    layout, rest = _request_head(api_key, version, client_id)
    w.pack(layout, 0, api_key, version, correlation_id, rest)
    request.write(w, version)
    w.patch_int32(0, w.size - SIZE_PREFIX_BYTES)
    return w


def parse_response(buffer: BytesLike, api_key: int, version: int) -> tuple[int, Response]:
    """Decode a response from ``buffer``, which does not include the size; return its correlation id and the response.

    A broker that does not know the version of an ApiVersions request responds with version 0, so that is tried next
    (KIP-511). Records in the response are views of ``buffer``.

    Raises:
        RemoteProtocolError: the bytes are not such a response.
    """
    r = Reader(buffer)
    correlation_id = r.int32()
    if response_header_version(api_key, version) >= 1:
        r.tags()
    response_class = ApiKeys.message_class(api_key, request=False)
    body = r.pos
    try:
        return correlation_id, response_class.read(r, version)
    except RemoteProtocolError:
        if api_key != ApiKeys.API_VERSIONS or version == 0:
            raise
        r.pos = body
        return correlation_id, response_class.read(r, 0)


def parse_request_header(r: Reader) -> RequestHeader:
    """Decode the header of a request; ``r`` is then at the start of the body. For servers.

    An ApiVersions request of an unknown, newer version still has a header of version 2; the response to it lists the
    supported versions.

    Raises:
        RemoteProtocolError: the bytes are not a header.
    """
    api_key, api_version, correlation_id = r.int16(), r.int16(), r.int32()
    if not ApiKeys.is_known(api_key):
        raise RemoteProtocolError(f"a request has the unknown API key {api_key}")
    header_version = request_header_version(api_key, api_version)
    client_id = r.nullable_string(False) if header_version >= 1 else None
    if header_version >= 2:
        r.tags()
    return RequestHeader(api_key, api_version, correlation_id, client_id)


def parse_request(buffer: BytesLike) -> tuple[RequestHeader, Request]:
    """Decode a request from ``buffer``, which does not include the size; return its header and the request.

    For servers.

    Raises:
        RemoteProtocolError: the bytes are not a request.
        UnsupportedVersionError: the request's version is unknown.
    """
    r = Reader(buffer)
    header = parse_request_header(r)
    return header, ApiKeys.message_class(header.api_key).read(r, header.api_version)


def encode_response(response: Response, version: int, correlation_id: int) -> Writer:
    """Encode a response for the connection, including its size and header. For servers."""
    w = Writer()
    w.int32(0)
    w.int32(correlation_id)
    if response_header_version(response.API_KEY, version) >= 1:
        w.tags(None)
    response.write(w, version)
    w.patch_int32(0, w.size - SIZE_PREFIX_BYTES)
    return w
