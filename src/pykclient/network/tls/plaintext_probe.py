"""Telling a listener without TLS from a peer that is gone, when it ends a connection without an answer to TLS.

A Kafka listener without TLS takes the first bytes of TLS for the size of a huge request, and ends the connection. A
load balancer without brokers ends it, too, but is worth another attempt. The next connection tells them apart: it
asks for the versions of the APIs in plaintext, which Kafka answers before any authentication.
"""

from __future__ import annotations

import struct
from typing import Final

from pykclient.protocol.headers import encode_request
from pykclient.protocol.messages.api_versions import ApiVersionsRequest

#: A number that no other protocol's answer has by chance.
_CORRELATION_ID: Final = 0x70796B63

#: The request. It has no client id, as anyone on the network can read it.
REQUEST: Final = encode_request(ApiVersionsRequest(), 0, _CORRELATION_ID, None).getvalue()

_SIZE_AND_CORRELATION_ID: Final = struct.Struct(">ii")

#: A response has a few hundred bytes.
_LARGEST_BYTES: Final = 64 * 1024


class ProbedPeers:
    """The peers of one client that it has asked, or will ask. It asks each peer once at most. Thread: io."""

    __slots__ = ("_asked", "_to_ask")

    def __init__(self) -> None:
        self._to_ask: set[str] = set()
        self._asked: set[str] = set()

    def ended_silently(self, peer: str) -> None:
        """Note that ``peer`` ended a connection without an answer to TLS."""
        if peer not in self._asked:
            self._to_ask.add(peer)

    def speaks_tls(self, peer: str) -> None:
        """Note that ``peer`` need not be asked."""
        self._to_ask.discard(peer)
        self._asked.add(peer)

    def take(self, peer: str) -> bool:
        """Return whether the new connection to ``peer`` is to ask it."""
        if peer not in self._to_ask:
            return False
        self.speaks_tls(peer)  # or is not asked again, whatever it answers
        return True


class Answer:
    """The first bytes of the answer. Thread: io."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = b""

    def feed(self, received: memoryview) -> None:
        self._bytes += received[: _SIZE_AND_CORRELATION_ID.size - len(self._bytes)]

    @property
    def is_complete(self) -> bool:
        return len(self._bytes) == _SIZE_AND_CORRELATION_ID.size

    @property
    def is_of_kafka(self) -> bool:
        """True if a Kafka listener without TLS sent it."""
        if not self.is_complete:
            return False
        size: int
        correlation_id: int
        size, correlation_id = _SIZE_AND_CORRELATION_ID.unpack(self._bytes)
        return 4 <= size <= _LARGEST_BYTES and correlation_id == _CORRELATION_ID
