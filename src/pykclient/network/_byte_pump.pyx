"""The compiled form of ``byte_pump.py``."""

import pykclient.network.frame_stream  # before its compiled form
from pykclient.network._frame_stream import HAS_EPOLL, SocketFrameStream
from pykclient.network.byte_pump import _BUFFER_SIZE, byte_pump as byte_pump_python
from pykclient.network.frames import UNLIMITED_SIZE


def byte_pump(transport):
    if not HAS_EPOLL:
        return byte_pump_python(transport)
    return SocketFrameStream(transport.sock.fileno(), UNLIMITED_SIZE, None, _BUFFER_SIZE, is_raw=True)
