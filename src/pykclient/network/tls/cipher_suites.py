"""OpenSSL's names of cipher suites."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

#: A suite of TLS 1.2 in Java's (IANA's) form: the key exchange, the cipher, and the hash.
_SUITE: Final = re.compile(r"(?:TLS|SSL)_(?P<exchange>[A-Z0-9_]+)_WITH_(?P<cipher>[A-Z0-9_]+)_(?P<hash>SHA\d*|MD5)")


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a cipher suite; a name that is not Java's is returned as it is.

    OpenSSL has Java's names for the suites of TLS 1.3 only.
    """
    match = _SUITE.fullmatch(name)
    if match is None:
        return name
    exchange, cipher, digest = match["exchange"], match["cipher"], match["hash"]
    if cipher == "CHACHA20_POLY1305":
        return f"{_exchange(exchange)}CHACHA20-POLY1305"
    cipher = re.sub(r"AES_(\d+)", r"AES\1", cipher)
    if cipher == "3DES_EDE_CBC":
        cipher = "DES-CBC3"
    elif cipher.startswith(("AES", "CAMELLIA")):
        cipher = cipher.removesuffix("_CBC")
    return f"{_exchange(exchange)}{cipher.replace('_', '-')}-{digest}"


def _exchange(text: str) -> str:
    return "" if text == "RSA" else text.replace("_", "-") + "-"


def openssl_names(names: Iterable[str]) -> list[str]:
    """Return OpenSSL's names of cipher suites, in order."""
    return [openssl_name(name.strip()) for part in names for name in part.split(":") if name.strip()]
