"""Frames over TLS."""

from __future__ import annotations

from pykclient.network.byte_pump import BytePump
from pykclient.network.frame_stream import ReadingFrameStream
from pykclient.network.network_receive import Frame, FrameReader
from pykclient.network.network_send import NetworkSend
from pykclient.network.tls.ssl_transport_layer import SslTransportLayer


class SslFrameStream(ReadingFrameStream):
    """A ``FrameStream`` over TLS. Thread: io."""

    __slots__ = ("_tls",)

    def __init__(self, transport: SslTransportLayer, reader: FrameReader) -> None:
        super().__init__(transport, reader)
        self._tls = transport

    @property
    def ready(self) -> bool:
        return self._tls.pump.ready

    @ready.setter
    def ready(self, value: bool) -> None:
        self._tls.pump.ready = value

    @property
    def pump(self) -> BytePump:
        return self._tls.pump

    def seal(self, send: NetworkSend) -> NetworkSend:
        """Return the encrypted form of a frame."""
        return self._tls.seal(send)

    def read(self, frames: list[Frame], one: bool) -> int:
        received = super().read(frames, one)
        self._tls.expect(self._reader.missing_bytes)
        return received

    def write(self, send: NetworkSend) -> int:
        return self._tls.write_frame(send)

    def close(self) -> None:
        super().close()
        self._tls.pump.close()
