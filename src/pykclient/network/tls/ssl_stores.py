"""Keys and certificates out of files and texts, in each format that Kafka's clients read: PEM, PKCS #12, JKS."""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pykclient.config.config_def import white_space_remark
from pykclient.errors import ConfigError

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


_PEM_START: Final = b"-----BEGIN"

_JKS_START: Final = b"\xfe\xed\xfe\xed"

_DER_START: Final = b"\x30"

#: OpenSSL's names for what a wrong password leads to.
_WRONG_PASSWORD: Final = (
    "BAD_DECRYPT",
    "BAD_PASSWORD_READ",
    "CIPHERFINAL_ERROR",
    "MAYBE_WRONG_PASSWORD",
    "PROBLEMS_GETTING_PASSWORD",
)


class KeyStore(NamedTuple):
    """A private key with its certificate chain, as PEM. The key may be encrypted with ``password``."""

    certificates: str
    key: str
    password: str | None

    def __repr__(self) -> str:
        return "KeyStore([hidden])"


def read_file(path: str, name: str) -> bytes:
    """Return the content of the file that the key ``name`` of a configuration names.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{name} = {path!r} cannot be read: {reason}", key=name) from error


def key_store(content: bytes, name: str, password: str | None, key_password: str | None) -> KeyStore:
    """Return the key and the certificates in the content of a key store, whose format shows in its first bytes.

    ``name`` is the key of the configuration that names the store, for messages. ``password`` is the store's password.
    ``key_password`` is the key's own password, by default the same.

    Raises:
        ConfigError: the format or the password is wrong, or a package is missing.
    """
    if _PEM_START in content:
        text = content.decode("latin-1")
        return key_store_of_pem(text, text, name, key_password or password)
    if content.startswith(_JKS_START):
        return _jks_key_store(content, name, password, key_password)
    if content.startswith(_DER_START):
        return _pkcs12_key_store(content, name, password)
    raise _unknown_format(name)


def key_store_of_pem(certificates: str, key: str, name: str, password: str | None) -> KeyStore:
    """Return the store with PEM texts, of which ``certificates`` may contain the key as well.

    Raises:
        ConfigError: something is missing, or the key is encrypted and there is no password.
    """
    chain = _certificates_in(certificates, name)
    if not chain:
        raise ConfigError(
            f"{name} has no certificate: it must contain the lines -----BEGIN CERTIFICATE----- and -----END "
            "CERTIFICATE-----",
            key=name,
        )
    found = next((block for block in _blocks_in(key, name) if block.is_private_key), None)
    if found is None:
        raise ConfigError(
            f"{name} has no private key: it must contain the lines -----BEGIN PRIVATE KEY----- and -----END PRIVATE "
            "KEY-----",
            key=name,
        )
    if found.is_encrypted and password is None:
        raise ConfigError(f"the private key in {name} is encrypted: set ssl.key.password", key=name)
    return KeyStore(chain, _text_of(found, name), password)


def _certificates_in(text: str, name: str) -> str:
    return "".join(_text_of(block, name) for block in _blocks_in(text, name) if block.is_certificate)


def _blocks_in(text: str, name: str) -> list[PemBlock]:
    try:
        return list(pem_blocks(text))
    except ValueError as error:
        raise ConfigError(f"{name} is damaged: {error}", key=name) from None


def _text_of(block: PemBlock, name: str) -> str:
    try:
        return block.text
    except ValueError as error:
        raise ConfigError(f"{name} is damaged: {error}", key=name) from None


def revocation_lists(content: bytes, name: str) -> str:
    """Return the certificate revocation lists in a file in PEM, without anything else that it contains.

    Raises:
        ConfigError: there is none.
    """
    lists = [block for block in _blocks_in(content.decode("latin-1"), name) if block.label == "X509 CRL"]
    if not lists:
        raise ConfigError(f"{name} has no revocation list in PEM (-----BEGIN X509 CRL-----)", key=name)
    return "".join(_text_of(block, name) for block in lists)


def trust_store(content: bytes, name: str, password: str | None) -> str:
    """Return the certificates in the content of a trust store as PEM; see ``key_store``.

    Raises:
        ConfigError: the format or the password is wrong, or there is no certificate.
    """
    if _PEM_START in content:
        certificates = _certificates_in(content.decode("latin-1"), name)
    elif content.startswith(_JKS_START):
        store = _load_jks(content, name, password)
        certificates = "".join(ssl.DER_cert_to_PEM_cert(entry.cert) for entry in store.certs.values())
    elif content.startswith(_DER_START):
        certificates = _pkcs12_certificates(content, name, password)
    else:
        raise _unknown_format(name)
    if not certificates:
        raise ConfigError(f"{name} has no certificate", key=name)
    return certificates


def load_key_store(context: ssl.SSLContext, store: KeyStore, name: str) -> None:
    """Make a context use a key and its certificates.

    Raises:
        ConfigError: they do not fit, or the key's password is wrong.
    """
    # The standard library reads keys from files only.
    with private_file(store.certificates) as certificates, private_file(store.key) as key:
        try:
            # An empty password makes a missing one an error, where OpenSSL would ask at the terminal.
            context.load_cert_chain(certificates, key, store.password or "")
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or ""
            raise ConfigError(
                f"{name}: {_key_problem(reason, store.password)}{white_space_remark(store.password)}", key=name
            ) from error


def _key_problem(reason: str, password: str | None) -> str:
    if reason == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the certificate"
    if reason in (
        "BAD_DECRYPT",
        "CIPHERFINAL_ERROR",
        "BAD_PASSWORD_READ",
        "PROBLEMS_GETTING_PASSWORD",
        "MAYBE_WRONG_PASSWORD",
    ):
        return "the private key cannot be decrypted: ssl.key.password is wrong"
    if password is not None:  # OpenSSL gives no reason for a wrong one
        return "the private key cannot be decrypted: ssl.key.password is wrong, or the key is damaged"
    return f"the private key or the certificate cannot be read: {reason.replace('_', ' ').lower() or 'it is damaged'}"


@contextlib.contextmanager
def private_file(text: str) -> Iterator[str]:
    """Yield the path of a file with this content that only this process can read; in memory where possible."""
    data = text.encode()
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("pykclient", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp(prefix="pykclient-")  # only this user can read it
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        yield path
    finally:
        os.unlink(path)


def _unknown_format(name: str) -> ConfigError:
    return ConfigError(f"{name} is neither PEM nor PKCS #12 nor JKS", key=name)


# --- PKCS #12 --------------------------------------------------------------------------------------------------------


def _import_pkcs12(name: str) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise ConfigError(
            f"{name} is a PKCS #12 store, which needs the package cryptography: pip install 'pykclient[security]'",
            key=name,
        ) from error
    return pkcs12


def _load_pkcs12(content: bytes, name: str, password: str | None) -> Any:
    pkcs12 = _import_pkcs12(name)
    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError as error:
        raise ConfigError(
            f"{name} is damaged, or its password is wrong or missing{white_space_remark(password)}", key=name
        ) from error


def _pkcs12_key_store(content: bytes, name: str, password: str | None) -> KeyStore:
    store = _load_pkcs12(content, name, password)
    from cryptography.hazmat.primitives import serialization

    if store.key is None or store.cert is None:
        raise ConfigError(f"{name} has no private key with a certificate", key=name)
    pem = serialization.Encoding.PEM
    certificates = [store.cert, *store.additional_certs]
    key = store.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyStore("".join(each.certificate.public_bytes(pem).decode() for each in certificates), key.decode(), None)


def _pkcs12_certificates(content: bytes, name: str, password: str | None) -> str:
    store = _load_pkcs12(content, name, password)
    from cryptography.hazmat.primitives import serialization

    certificates = [*([] if store.cert is None else [store.cert]), *store.additional_certs]
    return "".join(each.certificate.public_bytes(serialization.Encoding.PEM).decode() for each in certificates)


# --- JKS -------------------------------------------------------------------------------------------------------------


def _load_jks(content: bytes, name: str, password: str | None) -> Any:
    try:
        import jks
    except ImportError as error:
        raise ConfigError(
            f"{name} is a JKS store, which needs the package pyjks: pip install 'pykclient[jks]'. Or convert it to "
            "PKCS #12: keytool -importkeystore -deststoretype PKCS12",
            key=name,
        ) from error
    try:
        return jks.KeyStore.loads(content, password or "", try_decrypt_keys=False)
    except (jks.KeystoreException, ValueError) as error:
        raise ConfigError(
            f"{name} is damaged, or its password is wrong or missing{white_space_remark(password)}", key=name
        ) from error


def _jks_key_store(content: bytes, name: str, password: str | None, key_password: str | None) -> KeyStore:
    store = _load_jks(content, name, password)
    entry = next(iter(store.private_keys.values()), None)
    if entry is None:
        raise ConfigError(f"{name} has no private key", key=name)
    import jks

    try:
        entry.decrypt(key_password or password or "")
    except jks.KeystoreException as error:
        remark = white_space_remark(key_password or password)
        raise ConfigError(f"{name}: ssl.key.password is wrong{remark}", key=name) from error
    certificates = "".join(ssl.DER_cert_to_PEM_cert(der) for _, der in entry.cert_chain)
    key = ssl.DER_cert_to_PEM_cert(entry.pkey_pkcs8).replace(" CERTIFICATE-", " PRIVATE KEY-")
    return KeyStore(certificates, key, None)
