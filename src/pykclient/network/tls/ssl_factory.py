"""TLS contexts out of a client's configuration, made again when their files change (Java: SslFactory,
DefaultSslEngineFactory).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
#: OpenSSL's names for the errors that a wrong password causes.
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
    """Return the content of the file at the configuration key ``name``.

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
    """Return the key and the certificates of a key store; its first bytes determine its format.

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
    """Return only the certificate revocation lists of a PEM file.

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
    if reason in _WRONG_PASSWORD:
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


def _load_pkcs12(content: bytes, name: str, password: str | None) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise ConfigError(
            f"{name} is a PKCS #12 store, which needs the package cryptography: pip install 'pykclient[security]'",
            key=name,
        ) from error
    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError as error:
        raise _damaged_store(name, password) from error


def _damaged_store(name: str, password: str | None) -> ConfigError:
    remark = white_space_remark(password)
    return ConfigError(f"{name} is damaged, or its password is wrong or missing{remark}", key=name)


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
        raise _damaged_store(name, password) from error


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


#: A suite of TLS 1.2 in Java's (IANA's) form: the key exchange, the cipher, and the hash.
_SUITE: Final = re.compile(r"(?:TLS|SSL)_(?P<exchange>[A-Z0-9_]+)_WITH_(?P<cipher>[A-Z0-9_]+)_(?P<hash>SHA\d*|MD5)")


def openssl_name(name: str) -> str:
    """Return OpenSSL's name for one of Java's cipher suites; other names are returned unchanged.

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


_logger = logging.getLogger(__name__)
_VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


class ContextSettings(NamedTuple):
    """A context, and the cipher suites that its connections may use (empty: any)."""

    context: ssl.SSLContext
    allowed_ciphers: Collection[str]


#: The files that a context was made of, with what tells that one has changed.
_Stamp = tuple[tuple[str, int, int, int], ...]


class SslFactory:
    """The context of one client, shared by its connections.

    It is made when the client is created, so that a wrong configuration raises there. When a file of it has changed by
    the time of a new connection, it is made again. If that fails, new connections use the old one, and a warning is
    logged. Thread: io.
    """

    def __init__(self, make: Callable[[], ContextSettings], files: Iterable[str]) -> None:
        """Make the context.

        Raises:
            ConfigError: the configuration or a file cannot be used.
        """
        self._make = make
        self._files = tuple(files)
        self._stamp = self._new_stamp()
        self._current = make()

    def current(self) -> ContextSettings:
        """Return the context for a new connection."""
        if self._files and (stamp := self._new_stamp()) != self._stamp:
            self._stamp = stamp
            try:
                self._current = self._make()
            except ConfigError as error:
                _logger.warning("Keys and certificates have changed, but new ones cannot be used: %s", error)
            else:
                _logger.info("Keys and certificates were read again, as their files have changed")
        return self._current

    def _new_stamp(self) -> _Stamp:
        return tuple(_file_stamp(path) for path in self._files)


def _file_stamp(path: str) -> tuple[str, int, int, int]:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return path, 0, 0, 0
    return path, found.st_mtime_ns, found.st_size, found.st_ino


_TRUST_FILES: Final = ("ssl.truststore.location", "ssl.cafile")
_FILES: Final = (
    "ssl.keystore.location",
    *_TRUST_FILES,
    "ssl.certfile",
    "ssl.keyfile",
    "ssl.crlfile",
)


def client_ssl_factory(config: Mapping[str, Any]) -> SslFactory:
    """Return the factory for a client's configuration.

    Raises:
        ConfigError: the configuration or a file cannot be used.
    """
    if config["ssl.context"] is not None:
        settings = _own_context(config)
        return SslFactory(lambda: settings, ())
    if not config["enable.ssl.certificate.verification"]:
        _logger.warning(
            "enable.ssl.certificate.verification is false: anyone on the network can pose as the brokers and read or "
            "change all data, passwords included"
        )
    return SslFactory(lambda: _client_context(config), [config[name] for name in _FILES if config[name] is not None])


def https_ssl_factory(config: Mapping[str, Any]) -> SslFactory:
    """Return the factory of contexts for connections to an identity provider.

    It trusts what https.ca.location or https.ca.pem has, else the system's authorities and those that the client trusts
    with brokers. The client's own certificate is for brokers only, and certificates are always verified.

    Raises:
        ConfigError: a file cannot be used.
    """
    files = [config[name] for name in ("https.ca.location", *_TRUST_FILES) if config[name] is not None]
    return SslFactory(lambda: _https_context(config), files)


def _https_context(config: Mapping[str, Any]) -> ContextSettings:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if config["https.ca.location"] == "probe":
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    elif not _load_authorities(context, config, "https.ca.pem", ("https.ca.location",)):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if (own := config["ssl.context"]) is None:
            _load_authorities(context, config, "ssl.truststore.certificates", _TRUST_FILES)
        else:
            for certificate in own.get_ca_certs(binary_form=True):
                context.load_verify_locations(cadata=certificate)
    return ContextSettings(context, ())


def _own_context(config: Mapping[str, Any]) -> ContextSettings:
    context = config["ssl.context"]
    if not isinstance(context, ssl.SSLContext):
        raise ConfigError(f"ssl_context must be an ssl.SSLContext, not {type(context).__name__}", key="ssl.context")
    if context.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise ConfigError("ssl_context is one for servers: create it with ssl.PROTOCOL_TLS_CLIENT", key="ssl.context")
    return ContextSettings(context, ())


def _client_context(config: Mapping[str, Any]) -> ContextSettings:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _set_versions(context, config["ssl.enabled.protocols"], config["ssl.protocol"])
    allowed = _set_ciphers(context, config)
    if not config["enable.ssl.certificate.verification"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif not checks_host_names(config):
        context.check_hostname = False
    _load_trust(context, config)
    _load_revocations(context, config["ssl.crlfile"])
    store = _client_key_store(config)
    if store is not None:
        load_key_store(context, *store)
    return ContextSettings(context, allowed)


def checks_host_names(config: Mapping[str, Any]) -> bool:
    """Return whether a broker's certificate must have the broker's host name."""
    algorithm = (config["ssl.endpoint.identification.algorithm"] or "").strip().lower()
    if algorithm not in ("https", "", "none"):
        raise ConfigError(
            f"ssl.endpoint.identification.algorithm must be https or empty, not {algorithm!r}",
            key="ssl.endpoint.identification.algorithm",
        )
    return algorithm == "https" and bool(config["ssl.check.hostname"])


def _set_versions(context: ssl.SSLContext, enabled: Sequence[str], newest: str) -> None:
    for key, name in (*(("ssl.enabled.protocols", name) for name in enabled), ("ssl.protocol", newest)):
        # "TLS" and "SSL" are Java's names for any version.
        if name not in _VERSIONS and name not in ("TLS", "SSL"):
            raise ConfigError(f"{key}: {name!r} is not a TLS version: use {', '.join(_VERSIONS)}", key=key)
    versions = sorted(_VERSIONS[name] for name in enabled if name in _VERSIONS)
    if not versions:
        return
    context.minimum_version = versions[0]
    context.maximum_version = min(versions[-1], _VERSIONS.get(newest, versions[-1]))
    if context.minimum_version > context.maximum_version:
        raise ConfigError(
            f"ssl.protocol = {newest} is older than every version in ssl.enabled.protocols", key="ssl.protocol"
        )


def _set_ciphers(context: ssl.SSLContext, config: Mapping[str, Any]) -> Collection[str]:
    """Restrict the cipher suites. Return those that may be used, if the context alone does not ensure that."""
    if config["ssl.ciphers"] is not None:
        _apply_ciphers(context, config["ssl.ciphers"], "ssl.ciphers")
    if not config["ssl.cipher.suites"]:
        return ()
    allowed = openssl_names(config["ssl.cipher.suites"])
    old = [name for name in allowed if not name.startswith("TLS_")]
    if old:
        _apply_ciphers(context, ":".join(old), "ssl.cipher.suites")
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    unknown = sorted({*allowed} - {cipher["name"] for cipher in context.get_ciphers()})
    if unknown:
        raise ConfigError(
            f"ssl.cipher.suites: OpenSSL does not have, or does not allow, {', '.join(unknown)}",
            key="ssl.cipher.suites",
        )
    if len(old) == len(allowed):
        context.maximum_version = min(context.maximum_version, ssl.TLSVersion.TLSv1_2)
    if context.minimum_version > context.maximum_version:
        raise ConfigError("ssl.cipher.suites has no suite of the enabled TLS versions", key="ssl.cipher.suites")
    return frozenset(allowed)


def _apply_ciphers(context: ssl.SSLContext, text: str, name: str) -> None:
    try:
        context.set_ciphers(text)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{name}: OpenSSL has none of these cipher suites: {text}", key=name) from error


def _load_trust(context: ssl.SSLContext, config: Mapping[str, Any]) -> None:
    if not _load_authorities(context, config, "ssl.truststore.certificates", _TRUST_FILES):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _load_authorities(
    context: ssl.SSLContext, config: Mapping[str, Any], text_name: str, file_names: tuple[str, ...]
) -> bool:
    """Make a context trust the certificates in a text and in files, by the keys that name these.

    Return False if there are none.
    """
    found: list[tuple[str, str]] = []
    _check_one_of(config, text_name, file_names[0])
    if (password := config[text_name]) is not None:
        found.append((text_name, trust_store(password.value.encode(), text_name, None)))
    for name in file_names:
        path = config[name]
        if path is None:
            continue
        if os.path.isdir(path):
            context.load_verify_locations(capath=path)
            found.append((name, ""))
            continue
        store_password = _value(config["ssl.truststore.password"]) if name == "ssl.truststore.location" else None
        found.append((name, trust_store(read_file(path, name), name, store_password)))
    if found:
        # As in Java, a trusted certificate need not be its own issuer.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for name, certificates in found:
        if certificates:
            _load_certificates(context, certificates, name)
    return bool(found)


def _load_certificates(context: ssl.SSLContext, certificates: str, name: str) -> None:
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{name} has a certificate that cannot be read: {error}", key=name) from error


def _load_revocations(context: ssl.SSLContext, path: str | None) -> None:
    if path is None:
        return
    # Only the lists: OpenSSL would trust the certificates that such a file may contain as well.
    lists = revocation_lists(read_file(path, "ssl.crlfile"), f"ssl_crlfile = {path!r}")
    try:
        with private_file(lists) as file:
            context.load_verify_locations(cafile=file)
    except ssl.SSLError as error:
        raise ConfigError(f"ssl_crlfile = {path!r} has a revocation list that is damaged", key="ssl.crlfile") from error
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _client_key_store(config: Mapping[str, Any]) -> tuple[KeyStore, str] | None:
    """Return the client's key and certificates, and the key of the configuration that names them."""
    key_password = _value(config["ssl.key.password"])
    _check_one_of(config, "ssl.keystore.key", "ssl.keystore.location", "ssl.certfile")
    if (chain := config["ssl.keystore.certificate.chain"]) is not None:
        key = config["ssl.keystore.key"]
        name = "ssl.keystore.certificate.chain"
        if key is None:
            raise ConfigError(f"{name} is set, so ssl.keystore.key must be, too", key="ssl.keystore.key")
        return key_store_of_pem(chain.value, key.value, name, key_password), name
    if config["ssl.keystore.key"] is not None:
        name = "ssl.keystore.certificate.chain"
        raise ConfigError(f"ssl.keystore.key is set, so {name} must be, too", key=name)
    if (path := config["ssl.keystore.location"]) is not None:
        name = "ssl.keystore.location"
        store_password = _value(config["ssl.keystore.password"])
        return key_store(read_file(path, name), name, store_password, key_password), name
    if (path := config["ssl.certfile"]) is not None:
        name = "ssl.certfile"
        certificates = read_file(path, name).decode("latin-1")
        key_path = config["ssl.keyfile"]
        key_text = certificates if key_path is None else read_file(key_path, "ssl.keyfile").decode("latin-1")
        return key_store_of_pem(certificates, key_text, name, key_password), name
    if config["ssl.keyfile"] is not None:
        raise ConfigError("ssl_keyfile is set, so ssl_certfile must be, too", key="ssl.certfile")
    return None


def _check_one_of(config: Mapping[str, Any], *names: str) -> None:
    """Check that a configuration has a key or certificates from one source (Java: DefaultSslEngineFactory).

    Raises:
        ConfigError: it has several.
    """
    given = [name for name in names if config[name] is not None]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are set, but only one of them may be", key=given[0])


def _value(password: Any) -> str | None:
    return None if password is None else str(password.value)


def server_context(store: KeyStore, authority: str, client_auth: str) -> ssl.SSLContext:
    """Return a server's context.

    ``authority`` has the certificates, as PEM, of those who issue clients' certificates. ``client_auth`` is ssl.client.
    auth: none, requested or required.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = {
        "none": ssl.CERT_NONE,
        "requested": ssl.CERT_OPTIONAL,
        "required": ssl.CERT_REQUIRED,
    }[client_auth]
    context.load_verify_locations(cadata=authority)
    load_key_store(context, store, "the server's certificate")
    return context
