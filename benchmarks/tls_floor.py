"""Measure what no client can save that receives over TLS with Python's ``ssl``: receiving and decrypting, nothing else.

``python -m benchmarks.tls_floor`` prints CPU per KB, the medians of rounds in which the ways take turns. All read the
same stream from another process: without TLS, through memory buffers (as pykclient does, which lets one thread serve
many connections), and by an ``SSLSocket``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from pykclient.testing.certificates import CertificateAuthority

_RECORD_BYTES: Final = 16 * 1024
_TARGET_BYTES: Final = 3 * 1024 * 1024  # the size of a response with three partitions


def _serve(ready: Connection, certificate: str | None) -> None:
    """Send endlessly to one connection after another, with TLS if there is a certificate."""
    listener = socket.create_server(("127.0.0.1", 0))
    ready.send(listener.getsockname()[1])
    data = os.urandom(1024 * 1024)
    while True:
        connection, _ = listener.accept()
        try:
            if certificate is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate)
                connection = context.wrap_socket(connection, server_side=True)
            while True:
                connection.sendall(data)
        except OSError:
            connection.close()


def _start(certificate: str | None) -> tuple[multiprocessing.Process, int]:
    near, far = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_serve, args=(far, certificate), daemon=True)
    process.start()
    port: int = near.recv()
    return process, port


def _plain(port: int, total_bytes: int, buffer_bytes: int) -> float:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        view = memoryview(bytearray(buffer_bytes))
        begin_s, left = time.process_time(), total_bytes
        while left > 0:
            left -= sock.recv_into(view)
        return time.process_time() - begin_s


def _memory_buffers(context: ssl.SSLContext, port: int, total_bytes: int, buffer_bytes: int) -> float:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", port)) as sock:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))
        sock.sendall(outgoing.read())
        view, target = memoryview(bytearray(buffer_bytes)), memoryview(bytearray(_TARGET_BYTES))
        read: Any = tls.read  # returns a number, as it is given a buffer
        begin_s, left, filled = time.process_time(), total_bytes, 0
        while left > 0:
            incoming.write(view[: sock.recv_into(view)])
            try:
                while True:
                    if filled > _TARGET_BYTES - _RECORD_BYTES:
                        filled = 0
                    count: int = read(_RECORD_BYTES, target[filled:])
                    filled += count
                    left -= count
            except ssl.SSLWantReadError:
                pass
        return time.process_time() - begin_s


def _ssl_socket(context: ssl.SSLContext, port: int, total_bytes: int) -> float:
    plain = socket.create_connection(("127.0.0.1", port))
    with context.wrap_socket(plain, server_hostname="localhost") as sock:
        target = memoryview(bytearray(_TARGET_BYTES))
        begin_s, left, filled = time.process_time(), total_bytes, 0
        while left > 0:
            if filled > _TARGET_BYTES - _RECORD_BYTES:
                filled = 0
            count = sock.recv_into(target[filled:], _RECORD_BYTES)
            filled += count
            left -= count
        return time.process_time() - begin_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls_floor", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=300)
    arguments = parser.parse_args()
    total_bytes = arguments.megabytes * 1024 * 1024
    authority = CertificateAuthority()
    certificate = authority.issue("server", ["localhost"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        path.write_text(certificate.key_pem() + certificate.certificate_pem)
        (plain_server, plain), (tls_server, tls) = _start(None), _start(str(path))
        context = ssl.create_default_context(cadata=authority.certificate_pem)
        ways: dict[str, Callable[[], float]] = {
            "without TLS, 256 KiB at a time": lambda: _plain(plain, total_bytes, 256 * 1024),
            "memory buffers, 256 KiB at a time": lambda: _memory_buffers(context, tls, total_bytes, 256 * 1024),
            "memory buffers, 1 MiB at a time": lambda: _memory_buffers(context, tls, total_bytes, 1024 * 1024),
            "SSLSocket": lambda: _ssl_socket(context, tls, total_bytes),
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            for name, way in ways.items():
                found[name].append(way() / total_bytes * 1024 * 1e6)
        for server in (plain_server, tls_server):
            server.terminate()
            server.join()
    print(ssl.OPENSSL_VERSION)
    for name, values in found.items():
        print(f"{name}: {statistics.median(values):.2f} us per KB")


if __name__ == "__main__":
    main()
