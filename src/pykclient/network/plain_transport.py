"""The transport of the bytes on a socket: to the peer itself, or through a proxy."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from pykclient.network.selectable import SocketAddress
from pykclient.network.transport_layer import PlaintextTransportLayer

if TYPE_CHECKING:
    from pykclient.network.proxy.proxy_config import ProxyConfig


def plain_transport(
    sock: socket.socket, address: SocketAddress | None, proxy: ProxyConfig | None
) -> PlaintextTransportLayer:
    """Return the transport over ``sock``, as a client of ``address``, perhaps through a proxy, or as a server."""
    if proxy is None or address is None:
        return PlaintextTransportLayer(sock, is_connected=address is None)
    from pykclient.network.proxy.tunnel_transport_layer import TunnelTransportLayer

    return TunnelTransportLayer(sock, proxy, address)
