"""Pairs of engines whose bytes a test carries."""

from __future__ import annotations

import functools
import ssl

from pykclient.network.tls.ssl_factory import KeyStore, server_context
from pykclient.network.tls.ssl_transport_layer import SslEngine
from pykclient.testing.certificates import CertificateAuthority


@functools.cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a client and of its server."""
    authority = CertificateAuthority()
    certificate = authority.issue("server", ["localhost"])
    store = KeyStore(certificate.certificate_pem, certificate.key_pem(), None)
    server = server_context(store, authority.certificate_pem, "none")
    client = ssl.create_default_context(cadata=authority.certificate_pem)
    return client, server


def pair() -> tuple[SslEngine, SslEngine]:
    """Return a client's and a server's engine before the handshake."""
    client, server = contexts()
    return SslEngine(client, "localhost"), SslEngine(server, None)


def connected() -> tuple[SslEngine, SslEngine]:
    """Return both after the handshake."""
    client, server = pair()
    for _ in range(10):
        is_complete = client.handshake(), server.handshake()
        exchange(client, server)
        if all(is_complete):
            return client, server
    raise AssertionError("the handshake does not end")


def exchange(one: SslEngine, other: SslEngine) -> None:
    """Carry the output of each to the other."""
    for sender, receiver in ((one, other), (other, one)):
        if output := sender.output():
            receiver.feed(output)
