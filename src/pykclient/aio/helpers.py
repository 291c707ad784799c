"""aiokafka's module of this name."""

from __future__ import annotations

import ssl


def create_ssl_context(
    *,
    cafile: str | None = None,
    capath: str | None = None,
    cadata: str | bytes | None = None,
    certfile: str | None = None,
    keyfile: str | None = None,
    password: str | None = None,
    crlfile: str | None = None,
) -> ssl.SSLContext:
    """Return a context for ``ssl_context`` that verifies the brokers' certificates and host names.

    ``cafile``, ``capath`` and ``cadata`` name the trusted authorities, by default the system's. ``certfile`` and
    ``keyfile`` are the client's own certificate and key in PEM, and ``password`` that of the key. With ``crlfile``,
    revoked certificates of brokers are refused. pykclient's ``ssl.*`` settings make such a context themselves, and read
    files again that have changed.

    Raises:
        OSError: a file cannot be read, or (ssl.SSLError) has no certificate, key or list.
    """
    context = ssl.create_default_context(cafile=cafile, capath=capath, cadata=cadata)
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    if crlfile is not None:
        context.load_verify_locations(crlfile)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context
