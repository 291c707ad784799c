"""TLS contexts out of configurations: every form of keys and certificates, what is refused, and changing files."""

from __future__ import annotations

import logging
import os
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError
from pykclient.network.tls.ssl_factory import SslFactory, client_ssl_factory, openssl_name
from pykclient.testing.certificates import CertificateAuthority, IssuedCertificate

END = "-----END CERTIFICATE-----\n"
SECRET = "s3cret-of-the-store"


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture(scope="module")
def certificate(authority: CertificateAuthority) -> IssuedCertificate:
    return authority.issue("client")


@pytest.fixture(scope="module")
def stores(authority: CertificateAuthority, certificate: IssuedCertificate) -> dict[str, bytes]:
    """PKCS #12 stores, whose passwords make them slow to write."""
    return {"ca.p12": authority.pkcs12(SECRET), "client.p12": certificate.pkcs12(SECRET)}


@pytest.fixture
def files(
    tmp_path: Path, authority: CertificateAuthority, certificate: IssuedCertificate, stores: dict[str, bytes]
) -> Path:
    texts = {
        "ca.pem": authority.certificate_pem,
        "client.pem": certificate.key_pem() + certificate.certificate_pem,
        "client.crt": certificate.certificate_pem,
        "client.key": certificate.key_pem(),
        "encrypted.key": certificate.key_pem(SECRET),
        "encrypted.pem": certificate.key_pem(SECRET) + certificate.certificate_pem,
        "other.key": authority.issue("other").key_pem(),
        "crl.pem": authority.revocation_list_pem(),
        "empty": "",
        "nonsense": "x" * 100,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for name, store in stores.items():
        (tmp_path / name).write_bytes(store)
    return tmp_path


def factory(**settings: Any) -> SslFactory:
    return client_ssl_factory(ProducerConfig({"security.protocol": "SSL", **settings}))


def context(**settings: Any) -> ssl.SSLContext:
    return factory(**settings).current().context


def test_default_context_verifies_certificate_and_host() -> None:
    made = context()
    assert made.verify_mode == ssl.CERT_REQUIRED
    assert made.check_hostname
    assert made.minimum_version == ssl.TLSVersion.TLSv1_2
    assert made.maximum_version == ssl.TLSVersion.TLSv1_3
    assert made.options & ssl.OP_NO_RENEGOTIATION
    assert made.options & ssl.OP_NO_COMPRESSION


def test_only_the_given_authorities_are_trusted(files: Path) -> None:
    for settings in (
        {"ssl_cafile": files / "ca.pem"},
        {"ssl.ca.location": str(files / "ca.pem")},
        {"ssl_truststore_location": str(files / "ca.pem"), "ssl_truststore_type": "PEM"},
        {"ssl_truststore_location": str(files / "ca.p12"), "ssl_truststore_password": SECRET},
        {"ssl_truststore_certificates": (files / "ca.pem").read_text()},
        {"ssl.ca.pem": (files / "ca.pem").read_text()},
    ):
        (subject,) = [certificate["subject"] for certificate in context(**settings).get_ca_certs()]
        assert subject == ((("commonName", "pykclient test authority"),),)


def test_system_authorities_are_trusted_by_default(monkeypatch: pytest.MonkeyPatch, files: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(files / "ca.pem"))
    assert "pykclient test authority" in str(context().get_ca_certs())


#: How users have PEM: as it is, with something before it, with other ends of lines, and in the values of variables.
SHAPES: dict[str, Callable[[str], bytes]] = {
    "a long listing": lambda pem: b"Certificate:\n    Data: ENCRYPTED\n" * 500 + pem.encode(),
    "a byte order mark": lambda pem: b"\xef\xbb\xbf" + pem.encode(),
    "a comment in Latin 1": lambda pem: b"# Z\xfcrich\n" + pem.encode(),
    "a comment in UTF-8": lambda pem: "# Z\u00fcrich\n".encode() + pem.encode(),
    "the lines of Windows": lambda pem: pem.replace("\n", "\r\n").encode(),
    "indented": lambda pem: pem.replace("\n", "\n    ").encode(),
    "without a last line end": lambda pem: pem.strip().encode(),
    "glued": lambda pem: pem.replace("-----\n-----", "----------").encode(),
    "one line": lambda pem: pem.replace("\n", " ").encode(),
    "escaped": lambda pem: pem.replace("\n", "\\n").encode(),
    "an older label": lambda pem: pem.replace(" CERTIFICATE", " X509 CERTIFICATE").encode(),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_pem_is_accepted_in_every_shape(files: Path, authority: CertificateAuthority, shape: str) -> None:
    client = (files / "client.key").read_text() + (files / "client.crt").read_text()
    (files / "shaped.pem").write_bytes(SHAPES[shape](client))
    (files / "shaped-ca.pem").write_bytes(SHAPES[shape](authority.certificate_pem))
    text = (files / "shaped-ca.pem").read_bytes().decode("latin-1")
    location = {"ssl_keystore_location": str(files / "shaped.pem")}
    for trust in ({"ssl_cafile": files / "shaped-ca.pem"}, {"ssl_truststore_certificates": text}):
        assert "pykclient test authority" in str(context(**location, **trust).get_ca_certs())


def test_encrypted_key_in_legacy_pem_is_accepted(files: Path, certificate: IssuedCertificate) -> None:
    """Its password is in headers, whose lines count."""
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    key = serialization.load_pem_private_key(certificate.key_pem().encode(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(SECRET.encode()),
    )
    assert b"Proc-Type: 4,ENCRYPTED" in key
    (files / "old.key").write_bytes(key)
    settings = {"ssl_certfile": files / "client.crt", "ssl_keyfile": files / "old.key"}
    context(**settings, ssl_password=SECRET)
    with pytest.raises(ConfigError, match=r"is encrypted: set ssl\.key\.password"):
        context(**settings)


KEYS: list[Callable[[Path], dict[str, Any]]] = [
    lambda files: {"ssl_keystore_location": str(files / "client.pem"), "ssl_keystore_type": "PEM"},
    lambda files: {"ssl_keystore_location": str(files / "encrypted.pem"), "ssl_key_password": SECRET},
    lambda files: {"ssl_keystore_location": str(files / "client.p12"), "ssl_keystore_password": SECRET},
    lambda files: {"ssl_certfile": files / "client.pem"},
    lambda files: {"ssl_certfile": files / "client.crt", "ssl_keyfile": files / "client.key"},
    lambda files: {
        "ssl_certfile": files / "client.crt",
        "ssl_keyfile": files / "encrypted.key",
        "ssl_password": SECRET,
    },
    lambda files: {
        "ssl_keystore_certificate_chain": (files / "client.crt").read_text(),
        "ssl_keystore_key": (files / "encrypted.key").read_text(),
        "ssl_key_password": SECRET,
    },
    lambda files: {
        "ssl.certificate.pem": (files / "client.crt").read_text(),
        "ssl.key.pem": (files / "client.key").read_text(),
    },
]


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("has_memory_files", [True, False])
def test_key_is_accepted_in_every_form(
    files: Path, keys: Callable[[Path], dict[str, Any]], has_memory_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_memory_files:
        monkeypatch.delattr(os, "memfd_create", raising=False)
        monkeypatch.setattr("tempfile.tempdir", str(files))
        before = set(files.iterdir())
    context(**keys(files))  # raises unless key and certificate fit
    if not has_memory_files:
        assert set(files.iterdir()) == before


@pytest.fixture
def jks_files(tmp_path: Path, authority: CertificateAuthority, certificate: IssuedCertificate) -> Path:
    """Stores in Java's old format, whose key has a password of its own."""
    jks = pytest.importorskip("jks", reason="the extra jks")
    key = ssl.PEM_cert_to_DER_cert(certificate.key_pem().replace(" PRIVATE KEY-", " CERTIFICATE-"))
    chain = [ssl.PEM_cert_to_DER_cert(part + END) for part in certificate.certificate_pem.split(END)[:-1]]
    private = jks.PrivateKeyEntry.new("client", chain, key, "pkcs8")
    private.encrypt("key-" + SECRET)
    jks.KeyStore.new("jks", [private]).save(str(tmp_path / "client.jks"), SECRET)
    trusted = jks.TrustedCertEntry.new("ca", ssl.PEM_cert_to_DER_cert(authority.certificate_pem))
    jks.KeyStore.new("jks", [trusted]).save(str(tmp_path / "ca.jks"), SECRET)
    return tmp_path


def test_jks_stores_are_accepted(jks_files: Path) -> None:
    stores = {
        "ssl_truststore_location": str(jks_files / "ca.jks"),
        "ssl_truststore_password": SECRET,
        "ssl_keystore_location": str(jks_files / "client.jks"),
        "ssl_keystore_password": SECRET,
        "ssl_key_password": "key-" + SECRET,
    }
    assert "pykclient test authority" in str(context(**stores).get_ca_certs())
    for name, text in (
        ("ssl_truststore_password", "ssl.truststore.location is damaged, or its password is wrong"),
        ("ssl_keystore_password", "ssl.keystore.location is damaged, or its password is wrong"),
        ("ssl_key_password", "ssl.key.password is wrong"),
    ):
        with pytest.raises(ConfigError, match=text):
            context(**{**stores, name: "guess"})
    with pytest.raises(ConfigError, match="has no private key"):
        context(ssl_keystore_location=str(jks_files / "ca.jks"), ssl_keystore_password=SECRET)


@pytest.mark.parametrize(
    ("package", "store", "extra"), [("cryptography", "client.p12", "security"), ("jks", "client.jks", "jks")]
)
def test_a_missing_package_is_named(
    package: str, store: str, extra: str, files: Path, jks_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files == jks_files
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"pip install 'pykclient\[{extra}\]'"):
        context(ssl_keystore_location=str(files / store), ssl_keystore_password=SECRET)


WRONG: list[tuple[Callable[[Path], dict[str, Any]], str]] = [
    (lambda files: {"ssl_cafile": files / "none.pem"}, "ssl.cafile = .*none.pem' cannot be read: No such file"),
    (lambda files: {"ssl_cafile": files / "empty"}, "ssl.cafile is neither PEM nor PKCS #12 nor JKS"),
    (lambda files: {"ssl_cafile": files / "nonsense"}, "ssl.cafile is neither PEM nor PKCS #12 nor JKS"),
    (lambda files: {"ssl_cafile": files / "client.key"}, "ssl.cafile has no certificate"),
    (lambda _: {"ssl_truststore_certificates": "ca.pem"}, "is neither PEM"),
    (lambda files: {"ssl_keystore_location": str(files / "client.crt")}, "has no private key"),
    (lambda files: {"ssl_certfile": files / "client.crt"}, "has no private key"),
    (lambda files: {"ssl_keyfile": files / "client.key"}, "ssl_certfile must be, too"),
    (lambda files: {"ssl_keystore_location": str(files / "client.key")}, "has no certificate"),
    (
        lambda files: {"ssl_certfile": files / "client.crt", "ssl_keyfile": files / "other.key"},
        "the private key does not belong to the certificate",
    ),
    (lambda files: {"ssl_keystore_location": str(files / "encrypted.pem")}, "is encrypted: set ssl.key.password"),
    (
        lambda files: {"ssl_keystore_location": str(files / "encrypted.pem"), "ssl_key_password": "guess"},
        "ssl.key.password is wrong",
    ),
    (
        lambda files: {"ssl_keystore_location": str(files / "client.p12"), "ssl_keystore_password": "guess"},
        "damaged, or its password is wrong or missing",
    ),
    (lambda files: {"ssl_keystore_location": str(files / "ca.p12"), "ssl_keystore_password": SECRET}, "no private key"),
    (lambda files: {"ssl_keystore_key": (files / "client.key").read_text()}, "certificate.chain must be, too"),
    (lambda files: {"ssl_keystore_certificate_chain": (files / "client.crt").read_text()}, "ssl.keystore.key must be"),
    (lambda files: {"ssl_crlfile": files / "none"}, "ssl.crlfile = .*none' cannot be read"),
    (lambda files: {"ssl_crlfile": files / "nonsense"}, "has no revocation list"),
    (lambda files: {"ssl_crlfile": files / "ca.pem"}, "has no revocation list in PEM"),
    (lambda _: {"ssl_cafile": "a\0b"}, "ssl.cafile = .* cannot be read: embedded null byte"),
    (lambda _: {"ssl_ciphers": "A\0B"}, "OpenSSL has none of these cipher suites"),
    (lambda _: {"ssl_cipher_suites": "FOO,ECDHE-RSA-AES128-GCM-SHA256"}, "does not have, or does not allow, FOO"),
    (lambda _: {"ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, "is one for servers"),
    (
        lambda files: {"ssl_truststore_certificates": "x", "ssl_truststore_location": str(files / "ca.pem")},
        "ssl.truststore.certificates and ssl.truststore.location are set, but only one",
    ),
    (
        lambda files: {"ssl_certfile": files / "client.pem", "ssl_keystore_location": str(files / "client.pem")},
        "ssl.keystore.location and ssl.certfile are set, but only one",
    ),
    (lambda _: {"ssl_truststore_certificates": "-----BEGIN CERTIFICATE-----\nMIIB"}, "block CERTIFICATE has no end"),
    (lambda _: {"ssl_truststore_certificates": "-----BEGIN CERTIFI"}, "its last line is incomplete"),
    (
        lambda _: {"ssl_truststore_certificates": "-----BEGIN CERTIFICATE-----\n\u00fc\n-----END CERTIFICATE-----"},
        "is damaged: a block CERTIFICATE is not base 64",
    ),
    (lambda _: {"ssl_context": object()}, "must be an ssl.SSLContext, not object"),
    (lambda _: {"ssl_enabled_protocols": "TLSv9"}, "'TLSv9' is not a TLS version: use TLSv1"),
    (lambda _: {"ssl_enabled_protocols": "TLSv1.3", "ssl_protocol": "TLSv1.2"}, "older than every version"),
    (lambda _: {"ssl_cipher_suites": "MY_CIPHER"}, "OpenSSL has none of these cipher suites: MY_CIPHER"),
    (lambda _: {"ssl_ciphers": "MY_CIPHER"}, "OpenSSL has none of these cipher suites"),
    (
        lambda _: {"ssl_cipher_suites": "TLS_AES_256_GCM_SHA384", "ssl_enabled_protocols": "TLSv1.2"},
        "no suite of the enabled TLS versions",
    ),
    (lambda _: {"ssl_endpoint_identification_algorithm": "ldap"}, "must be https or empty"),
]


@pytest.mark.parametrize(("settings", "text"), WRONG)
def test_unusable_files_are_refused_without_secrets(
    files: Path, settings: Callable[[Path], dict[str, Any]], text: str
) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        factory(**settings(files))
    assert SECRET not in str(caught.value)
    assert "guess" not in str(caught.value)


def test_settings_choose_tls_versions_and_ciphers() -> None:
    made = context(ssl_enabled_protocols=["TLSv1.3"])
    assert (made.minimum_version, made.maximum_version) == (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)
    made = context(ssl_protocol="TLSv1.2")
    assert made.maximum_version == ssl.TLSVersion.TLSv1_2
    made = context(ssl_cipher_suites="TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    assert made.maximum_version == ssl.TLSVersion.TLSv1_2
    assert [cipher["name"] for cipher in made.get_ciphers() if cipher["protocol"] == "TLSv1.2"] == [
        "ECDHE-RSA-AES128-GCM-SHA256"
    ]
    made = context(ssl_cipher_suites="TLS_AES_256_GCM_SHA384")
    assert made.minimum_version == ssl.TLSVersion.TLSv1_3
    assert factory(ssl_cipher_suites="TLS_AES_256_GCM_SHA384").current().allowed_ciphers == {"TLS_AES_256_GCM_SHA384"}


@pytest.mark.parametrize(
    ("name", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA", "DHE-RSA-AES128-SHA"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_3DES_EDE_CBC_SHA", "DES-CBC3-SHA"),
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_cipher_suite_names_are_translated(name: str, openssl: str) -> None:
    assert openssl_name(name) == openssl
    known = {cipher["name"] for cipher in _all_ciphers()}
    assert openssl in known or "DES" in openssl


def _all_ciphers() -> list[Any]:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.set_ciphers("ALL:@SECLEVEL=0")
    return list(made.get_ciphers())


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl_check_hostname": False},
        {"ssl_endpoint_identification_algorithm": ""},
        {"ssl.endpoint.identification.algorithm": "none"},
    ],
)
def test_the_host_name_check_can_be_turned_off(settings: dict[str, Any]) -> None:
    made = context(**settings)
    assert not made.check_hostname
    assert made.verify_mode == ssl.CERT_REQUIRED


def test_none_does_not_disable_verification() -> None:
    """Programs pass on what the environment has, so None means that nothing is set."""
    made = context(
        **{
            "ssl.endpoint.identification.algorithm": None,
            "ssl.check.hostname": None,
            "enable.ssl.certificate.verification": None,
        }
    )
    assert made.check_hostname
    assert made.verify_mode == ssl.CERT_REQUIRED


def test_disabled_verification_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    made = context(**{"enable.ssl.certificate.verification": "false"})
    assert made.verify_mode == ssl.CERT_NONE
    assert "anyone on the network can pose as the brokers" in caplog.text


def test_revocation_lists_are_checked(files: Path) -> None:
    made = context(ssl_cafile=files / "ca.pem", ssl_crlfile=files / "crl.pem")
    assert made.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
    assert made.cert_store_stats() == {"x509": 1, "crl": 1, "x509_ca": 1}


def test_certificates_beside_revocation_lists_are_not_trusted(files: Path) -> None:
    other = CertificateAuthority("of somebody else").certificate_pem
    (files / "bundle.pem").write_text(other + (files / "crl.pem").read_text())
    made = context(ssl_cafile=files / "ca.pem", ssl_crlfile=files / "bundle.pem")
    assert "of somebody else" not in str(made.get_ca_certs())
    assert made.cert_store_stats()["crl"] == 1


def test_given_ssl_context_is_used() -> None:
    mine = ssl.create_default_context()
    assert context(ssl_context=mine) is mine


# --- files that change -----------------------------------------------------------------------------------------------


def replace(path: Path, text: str) -> None:
    """Replace a file as tools that rotate certificates do: at once, by a new file."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def test_new_files_make_a_new_context(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = factory(ssl_cafile=files / "ca.pem", ssl_certfile=files / "client.pem")
    first = made.current().context
    assert made.current().context is first
    other = CertificateAuthority("the new one")
    replace(files / "ca.pem", other.certificate_pem)
    second = made.current().context
    assert second is not first
    assert "the new one" in str(second.get_ca_certs())
    assert made.current().context is second
    assert "were read again" in caplog.text


def test_invalid_new_files_keep_old_context(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = factory(ssl_cafile=files / "ca.pem")
    first = made.current().context
    replace(files / "ca.pem", "half a file")
    for _ in range(3):
        assert made.current().context is first
    assert caplog.text.count("new ones cannot be used: ssl.cafile is neither PEM") == 1
    (files / "ca.pem").unlink()
    assert made.current().context is first
    replace(files / "ca.pem", CertificateAuthority("repaired").certificate_pem)
    assert "repaired" in str(made.current().context.get_ca_certs())
