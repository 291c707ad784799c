"""Each fault of the proxy looks to the client like the real fault that it stands for."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.support.forward_proxy import ForwardProxy
from tests.support.proxy import TcpProxy
from tests.support.wait import eventually


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that echoes what it receives."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while chunk := connection.recv(65536):
                connection.sendall(chunk)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threads.append(threading.Thread(target=answer, args=(listener.accept()[0],)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    acceptor.join()
    listener.close()
    for thread in threads:
        thread.join(30.0)


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[TcpProxy]:
    with TcpProxy(echo) as made:
        yield made


@pytest.fixture
def client(proxy: TcpProxy) -> Iterator[socket.socket]:
    with socket.create_connection((proxy.host, proxy.port), 30.0) as connection:
        yield connection


def read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (chunk := connection.recv(size - len(data))):
        data += chunk
    return data


def test_proxy_forwards_all_bytes(proxy: TcpProxy, client: socket.socket) -> None:
    sent = bytes(range(256)) * 4096
    threading.Thread(target=lambda: client.sendall(sent)).start()
    assert read(client, len(sent)) == sent
    assert proxy.response_bytes == len(sent)


@pytest.mark.parametrize("size", [0, 1, 7, 10])
def test_proxy_cuts_one_connection_at_any_byte(proxy: TcpProxy, client: socket.socket, size: int) -> None:
    proxy.cut_after(size)
    client.sendall(b"0123456789")
    assert read(client, 10) == b"0123456789"[:size]
    assert client.recv(1) == b""
    with socket.create_connection((proxy.host, proxy.port), 30.0) as other:
        other.sendall(b"again")
        assert read(other, 5) == b"again"
    assert proxy.cuts == 1


def test_proxy_can_reset_a_cut_connection(proxy: TcpProxy, client: socket.socket) -> None:
    proxy.cut_after(0, reset=True)
    client.sendall(b"x")
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_blackhole_keeps_connections_and_forwards_nothing(proxy: TcpProxy, client: socket.socket) -> None:
    proxy.blackhole()
    client.sendall(b"late")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(4)
    proxy.restore()
    client.settimeout(30.0)
    assert read(client, 4) == b"late"


def test_proxy_refuses_and_returns_on_its_port(proxy: TcpProxy, client: socket.socket) -> None:
    client.sendall(b"x")
    assert read(client, 1) == b"x"
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((proxy.host, proxy.port), 30.0)
    client.sendall(b"still here")
    assert read(client, 10) == b"still here"
    proxy.restore()
    with socket.create_connection((proxy.host, proxy.port), 30.0) as other:
        other.sendall(b"x")
        assert read(other, 1) == b"x"


def test_proxy_keeps_its_port_while_it_refuses(proxy: TcpProxy) -> None:
    proxy.refuse()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((proxy.host, proxy.port))


def test_proxy_resets_open_connections(proxy: TcpProxy, client: socket.socket) -> None:
    client.sendall(b"x")
    assert read(client, 1) == b"x"
    proxy.drop_connections()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_proxy_closes_with_a_client_that_does_not_read(proxy: TcpProxy, client: socket.socket) -> None:
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.sendall(bytes(64 << 20))
    proxy.close()


def test_unreachable_target_closes_the_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening
        with TcpProxy(taken.getsockname()) as proxy, socket.create_connection((proxy.host, proxy.port), 30.0) as client:
            assert client.recv(1) == b""


def test_forward_proxy_survives_client_disconnect(echo: tuple[str, int]) -> None:
    going = socket.socket()

    class Hosts(dict[str, str]):
        """Knows every name. Looking one up resets the client's connection."""

        def get(self, *_: object) -> str:
            going.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            going.close()
            return echo[0]

    with ForwardProxy(Hosts()) as proxy, going:
        going.connect(("127.0.0.1", proxy.port))
        going.sendall(b"CONNECT kafka:%d HTTP/1.1\r\n\r\n" % echo[1])
        eventually(lambda: proxy.asked, 30.0, "the proxy connects")


def test_eventually_names_the_missed_condition() -> None:
    with pytest.raises(AssertionError, match=r"not within 0.05 s: the moon"):
        eventually(lambda: False, 0.05, "the moon")


def test_eventually_raises_the_last_failed_assertion() -> None:
    def check() -> bool:
        raise AssertionError("1 != 2")

    with pytest.raises(AssertionError, match="1 != 2"):
        eventually(check, 0.05)
