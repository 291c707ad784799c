"""PEM texts (RFC 7468), in the shapes in which users have them.

Files begin with a byte order mark, a listing of the certificate or comments in any encoding. Values of environment
variables have spaces, or a backslash and an n, where the lines end. OpenSSL reads none of these, Java reads most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_BEGIN: Final = "-----BEGIN "
_DASHES: Final = "-----"
_LINE: Final = 64
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")


class PemBlock(NamedTuple):
    """A block with its label, such as CERTIFICATE. Its repr does not show the content, which may be a private key."""

    label: str
    content: str

    @property
    def is_certificate(self) -> bool:
        return self.label in ("CERTIFICATE", "X509 CERTIFICATE")

    @property
    def is_private_key(self) -> bool:
        return self.label.endswith("PRIVATE KEY")

    @property
    def is_encrypted(self) -> bool:
        return self.label.startswith("ENCRYPTED") or "ENCRYPTED" in self.content

    @property
    def text(self) -> str:
        """The block as OpenSSL reads it.

        Raises:
            ValueError: the content is not base 64.
        """
        label = "CERTIFICATE" if self.is_certificate else self.label
        if ":" in self.content:  # an encrypted key of the old form, whose headers need their lines
            lines = [line.strip() for line in self.content.strip().splitlines()]
        else:
            content = "".join(self.content.split())
            if not _BASE64.fullmatch(content):
                raise ValueError(f"a block {self.label} is not base 64")
            lines = [content[start : start + _LINE] for start in range(0, len(content), _LINE)]
        return "\n".join((f"{_BEGIN}{label}{_DASHES}", *lines, f"-----END {label}{_DASHES}", ""))

    def __repr__(self) -> str:
        return f"PemBlock({self.label}, [hidden])"


def pem_blocks(text: str) -> Iterator[PemBlock]:
    """Yield the blocks of a text.

    Raises:
        ValueError: the last one has no end, as in a file of which only a part has been written.
    """
    if "\n" not in text.strip():
        text = text.replace("\\n", "\n")
    position = 0
    while (begin := text.find(_BEGIN, position)) >= 0:
        start = begin + len(_BEGIN)
        end_of_label = text.find(_DASHES, start)
        if end_of_label < 0:
            raise ValueError("its last line is incomplete")
        label = text[start:end_of_label]
        position = end_of_label + len(_DASHES)
        end = text.find(f"-----END {label}{_DASHES}", position)
        if end < 0:
            raise ValueError(f"a block {label[:_LINE]} has no end")
        yield PemBlock(label, text[position:end])
        position = end
