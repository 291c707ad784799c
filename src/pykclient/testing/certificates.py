"""Certificates for tests: an authority, and what it issues, in the formats that clients and brokers read."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

#: Certificates are valid from an hour ago, because clocks differ, for a day.
_BEFORE: Final = timedelta(hours=1)
_AFTER: Final = timedelta(days=1)


def _import_cryptography() -> Any:
    try:
        import cryptography.hazmat.primitives.serialization.pkcs12
        import cryptography.x509.oid
    except ImportError as error:
        raise ConfigError(
            "certificates for tests need the package cryptography: pip install 'pykclient[security]'"
        ) from error
    return cryptography


@dataclass(eq=False, repr=False)
class IssuedCertificate:
    """A certificate with its private key and the authorities' certificates. Immutable. Thread: any."""

    _certificate: x509.Certificate
    _key: EllipticCurvePrivateKey
    _authority: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        """The certificate, followed by its issuer's."""
        issuer = "" if self._authority is self._certificate else _pem(self._authority)
        return _pem(self._certificate) + issuer

    def key_pem(self, password: str | None = None) -> str:
        """Return the private key in PKCS #8, encrypted if there is a password."""
        serialization = _import_cryptography().hazmat.primitives.serialization
        encryption = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        pem: bytes = self._key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        return pem.decode()

    def pkcs12(self, password: str) -> bytes:
        """Return key and certificates as a PKCS #12 store."""
        primitives = _import_cryptography().hazmat.primitives.serialization
        encryption = primitives.BestAvailableEncryption(password.encode())
        store: bytes = primitives.pkcs12.serialize_key_and_certificates(
            b"pykclient", self._key, self._certificate, [self._authority], encryption
        )
        return store

    @property
    def serial_number(self) -> int:
        return self._certificate.serial_number


class CertificateAuthority:
    """An authority that exists only in memory. Thread: any."""

    def __init__(self, name: str = "pykclient test authority") -> None:
        """Create the authority's key and certificate.

        Raises:
            ConfigError: the package ``cryptography`` is missing.
        """
        x509 = _import_cryptography().x509
        self.name = name
        self._key = _new_key()
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = _builder(name, name, self._key.public_key(), datetime.now(UTC) - _BEFORE, datetime.now(UTC) + _AFTER)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
        )
        self._certificate = self._sign(builder)

    @property
    def certificate_pem(self) -> str:
        return _pem(self._certificate)

    def pkcs12(self, password: str) -> bytes:
        """Return a PKCS #12 store that trusts this authority, as ``keytool -importcert`` makes it."""
        primitives = _import_cryptography().hazmat.primitives.serialization
        encryption = primitives.BestAvailableEncryption(password.encode())
        entry = primitives.pkcs12.PKCS12Certificate(self._certificate, b"authority")
        store: bytes = primitives.pkcs12.serialize_java_truststore([entry], encryption)
        return store

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = (),
        *,
        expired: bool = False,
        self_signed: bool = False,
        valid_from_s: float | None = None,
    ) -> IssuedCertificate:
        """Return a certificate for ``name`` that is valid for ``hosts``, which are host names and IP addresses.

        An ``expired`` one was valid until a minute ago. A ``self_signed`` one is its own issuer. One with
        ``valid_from_s`` becomes valid in that many seconds; by default it has been valid for an hour.
        """
        x509 = _import_cryptography().x509
        key = _new_key()
        now = datetime.now(UTC)
        until = now - timedelta(minutes=1) if expired else now + _AFTER
        issuer = name if self_signed else self.name
        since = now - _BEFORE if valid_from_s is None else now + timedelta(seconds=valid_from_s)
        builder = _builder(name, issuer, key.public_key(), since, until)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        usages = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if not self_signed:
            issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(issuer_key, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        if not self_signed:
            return IssuedCertificate(self._sign(builder), key, self._certificate)
        own = builder.sign(key, _import_cryptography().hazmat.primitives.hashes.SHA256())
        return IssuedCertificate(own, key, own)

    def revocation_list_pem(self, *revoked: IssuedCertificate) -> str:
        """Return a certificate revocation list (CRL)."""
        x509 = _import_cryptography().x509
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._certificate.subject)
        builder = builder.last_update(now - _BEFORE).next_update(now + _AFTER)
        for certificate in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(now - _BEFORE).build())
        return _pem(self._sign(builder))

    def _sign(self, builder: Any) -> Any:
        return builder.sign(self._key, _import_cryptography().hazmat.primitives.hashes.SHA256())


def _new_key() -> EllipticCurvePrivateKey:
    _import_cryptography()
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _builder(subject: str, issuer: str, public_key: object, not_before: datetime, not_after: datetime) -> Any:
    x509 = _import_cryptography().x509
    builder = x509.CertificateBuilder().subject_name(_name(subject)).issuer_name(_name(issuer))
    builder = builder.public_key(public_key).serial_number(x509.random_serial_number())
    return builder.not_valid_before(not_before).not_valid_after(not_after)


def _name(text: str) -> Any:
    x509 = _import_cryptography().x509
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> Any:
    x509 = _import_cryptography().x509
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(made: Any) -> str:
    pem: bytes = made.public_bytes(_import_cryptography().hazmat.primitives.serialization.Encoding.PEM)
    return pem.decode()
