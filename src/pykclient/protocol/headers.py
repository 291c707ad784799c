"""Headers of requests and responses, and whole messages with them.

A request is int32 size, header, body. Its header has version 2 if the body's version is flexible, else 1. A response
is int32 size, header, body, with header version 1 if the body is flexible, else 0. There are two exceptions: the header
of an ApiVersions response is always version 0, so that a client can read it that does not know its version yet
(KIP-511); and version 0 of ControlledShutdown has a header of version 0, which lacks the client id.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pykclient.errors import RemoteProtocolError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.wire import Reader, Writer

if TYPE_CHECKING:
    from pykclient.protocol.message import Request, Response
    from pykclient.protocol.wire import BytesLike

SIZE_PREFIX_BYTES = 4

#: Size, API key, API version, correlation id.
_REQUEST_HEAD = struct.Struct(">ihhi")


class RequestHeader:
    """What is before the body of every request.

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


def request_header_version(api_key: int, api_version: int) -> int:
    """Which version of the header is before this version of a request."""
    if api_version == 0 and api_key == ApiKeys.CONTROLLED_SHUTDOWN:
        return 0
    return 2 if ApiKeys.is_flexible(api_key, api_version) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Which version of the header is before this version of a response."""
    return 1 if api_key != ApiKeys.API_VERSIONS and ApiKeys.is_flexible(api_key, api_version) else 0


def encode_request(request: Request, version: int, correlation_id: int, client_id: str | None) -> Writer:
    """The request as it goes over the connection, size and header included.

    Raises UnsupportedVersionError and LocalProtocolError as ``Message.write`` does.
    """
    w = Writer()
    w.pack(_REQUEST_HEAD, 0, request.API_KEY, version, correlation_id)
    header_version = request_header_version(request.API_KEY, version)
    if header_version >= 1:
        w.nullable_string(client_id, False)
    if header_version >= 2:
        w.tags(None)
    request.write(w, version)
    w.patch_int32(0, w.size - SIZE_PREFIX_BYTES)
    return w


def parse_response(buffer: BytesLike, api_key: int, version: int) -> tuple[int, Response]:
    """The correlation id and the response in ``buffer``, which is without the size.

    A broker that does not know the version of an ApiVersions request answers it with version 0, so that is tried next
    (KIP-511). Records in the response are views of ``buffer``. Raises RemoteProtocolError.
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
    """The header of a request; ``r`` is left where the body begins. The server's half.

    An ApiVersions request of an unknown, newer version still has a header of version 2: the answer to it tells which
    versions there are. Raises RemoteProtocolError.
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
    """The header and the request in ``buffer``, which is without the size. The server's half.

    Raises RemoteProtocolError, or UnsupportedVersionError if the request has a version that there is not.
    """
    r = Reader(buffer)
    header = parse_request_header(r)
    return header, ApiKeys.message_class(header.api_key).read(r, header.api_version)


def encode_response(response: Response, version: int, correlation_id: int) -> Writer:
    """The response as it goes over the connection, size and header included. The server's half."""
    w = Writer()
    w.int32(0)
    w.int32(correlation_id)
    if response_header_version(response.API_KEY, version) >= 1:
        w.tags(None)
    response.write(w, version)
    w.patch_int32(0, w.size - SIZE_PREFIX_BYTES)
    return w
