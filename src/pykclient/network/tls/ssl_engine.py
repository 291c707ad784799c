"""TLS of one connection as a transformation of bytes, without I/O (Java: SSLEngine)."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterable
from typing import Any, Final

from pykclient.network.network_send import BytesLike

#: Buffers from this size on are encrypted where they are. Smaller ones are joined first, because each call makes a TLS
#: record of its own.
_LARGE_BYTES: Final = 64 * 1024


class SslEngine:
    """Decrypts received bytes and encrypts bytes to send, once the handshake is complete.

    After each step, ``output`` has the bytes to send to the peer. Thread: owner.
    """

    __slots__ = ("_incoming", "_may_have_more", "_outgoing", "_tls", "is_complete")

    def __init__(self, context: ssl.SSLContext, server_hostname: str | None) -> None:
        """Create the client's side for a server's host name, or the server's side if that is None."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        is_server = server_hostname is None
        self._tls = context.wrap_bio(self._incoming, self._outgoing, is_server, server_hostname)
        self.is_complete = False
        self._may_have_more = False  # True if the last read may have left decrypted bytes or whole records behind

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER, after the handshake; None if it has sent none."""
        return self._tls.getpeercert(binary_form=True)

    # --- from the peer -----------------------------------------------------------------------------------------------

    def feed(self, received: BytesLike) -> None:
        """Take bytes received from the peer. They are copied."""
        self._incoming.write(received)
        self._may_have_more = True

    def handshake(self) -> bool:
        """Continue the handshake with the bytes so far; return whether it is complete.

        Raises:
            ssl.SSLError: it failed. ``output`` may have an alert that tells the peer why.
        """
        if not self.is_complete:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            self.is_complete = True
        return True

    def read_into(self, target: memoryview) -> int | None:
        """Decrypt into ``target`` until it is full or the bytes so far are used up.

        Return the number of bytes; None if there are none yet, and 0 if the peer has ended its stream.

        Raises:
            ssl.SSLError: the peer's bytes are not valid, or it sent an alert. Nothing was read then.
        """
        tls, incoming = self._tls, self._incoming
        read: Any = tls.read  # returns a number, as it is given a buffer
        filled, size = 0, len(target)
        while filled < size:
            room = size - filled
            try:
                count: int = read(room, target[filled:] if filled else target)
            except ssl.SSLWantReadError:
                self._may_have_more = False
                break
            except ssl.SSLError:
                if filled:
                    break  # the next call fails in the same way, after these bytes were taken
                raise
            if not count:
                return filled
            filled += count
            if count < room and not incoming.pending and not tls.pending():
                # Saves the exception that would tell that there is nothing more.
                self._may_have_more = False
                break
        return filled or None

    @property
    def may_have_more(self) -> bool:
        """True if ``read_into`` may return more without more bytes from the peer."""
        return self._may_have_more

    # --- to the peer -------------------------------------------------------------------------------------------------

    def encrypt(self, buffers: Iterable[BytesLike]) -> bytes:
        """Return the encrypted content of ``buffers``, after the output so far."""
        small: list[BytesLike] = []
        for buffer in buffers:
            if len(buffer) < _LARGE_BYTES:
                small.append(buffer)
                continue
            if small:
                self._write(b"".join(small))
                small = []
            self._write(buffer)
        if small:
            self._write(small[0] if len(small) == 1 else b"".join(small))
        return self._outgoing.read()

    def _write(self, plain: BytesLike) -> None:
        written = self._tls.write(plain)
        while written < len(plain):
            plain = memoryview(plain)[written:]
            written = self._tls.write(plain)

    def output(self) -> bytes:
        """Return the bytes of the handshake or of an alert to send to the peer, and forget them."""
        return self._outgoing.read()

    def close_notify(self) -> bytes:
        """Return the bytes that tell the peer that the stream has ended; empty without a complete handshake."""
        if not self.is_complete:
            return b""
        # Mostly an error, because the peer has not ended its stream. Nobody waits for that.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        return self._outgoing.read()

    @property
    def cipher(self) -> str | None:
        """The cipher suite, once the handshake is complete."""
        cipher = self._tls.cipher()
        return None if cipher is None else cipher[0]
