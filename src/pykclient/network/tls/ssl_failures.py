"""The reasons why TLS handshakes fail, and what to do about each."""

from __future__ import annotations

import ssl
from typing import Final

from pykclient.errors import SslAuthenticationError

_TRUST: Final = (
    "if the broker is the right one, set ssl.truststore.location (or ssl_cafile) to the certificate of the authority "
    "that issued its certificate"
)
_HOST: Final = (
    "connect by a name that the certificate has (see also the broker's advertised.listeners), or get the broker a "
    "certificate with this name"
)
_CLIENT_CERTIFICATE: Final = (
    "set ssl.keystore.location (or ssl_certfile and ssl_keyfile) to a certificate that the broker trusts"
)
_VERSIONS: Final = "compare ssl.enabled.protocols here with the broker's"
_CIPHERS: Final = "compare ssl.cipher.suites and ssl.enabled.protocols here with the broker's"
_CLOCK: Final = "renew it, or set this machine's clock"
_PLAINTEXT: Final = "set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the port of the broker's TLS listener"

#: OpenSSL's codes of failed verification, with the cause and the remedy.
_VERIFICATION: Final = {
    3: ("no revocation list of its issuer was found", "add the issuer's list to ssl_crlfile"),
    9: ("it is not valid yet", "set this machine's clock"),
    10: ("it has expired", _CLOCK),
    12: ("the revocation list has expired", "renew ssl_crlfile"),
    18: ("it is self-signed", _TRUST),
    19: ("an authority that is not trusted issued it", _TRUST),
    20: ("an authority that is not trusted issued it", _TRUST),
    21: ("an authority that is not trusted issued it", _TRUST),
    23: ("it has been revoked", "get a new one"),
}
_HOST_MISMATCH: Final = (62, 64)

#: OpenSSL's names of alerts from the peer, with the cause and the remedy.
_ALERTS: Final = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": ("it requires a certificate of this client", _CLIENT_CERTIFICATE),
    "SSLV3_ALERT_NO_CERTIFICATE": ("it requires a certificate of this client", _CLIENT_CERTIFICATE),
    "SSLV3_ALERT_BAD_CERTIFICATE": (
        "it does not accept this client's certificate, or requires one",
        _CLIENT_CERTIFICATE,
    ),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": ("it does not accept this client's certificate", _CLIENT_CERTIFICATE),
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": ("it does not support this client's certificate", _CLIENT_CERTIFICATE),
    "SSLV3_ALERT_CERTIFICATE_REVOKED": ("this client's certificate has been revoked", _CLIENT_CERTIFICATE),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": ("this client's certificate has expired", "renew the client's certificate"),
    "TLSV1_ALERT_UNKNOWN_CA": ("it does not trust the issuer of this client's certificate", _CLIENT_CERTIFICATE),
    "TLSV1_ALERT_ACCESS_DENIED": ("it denies access to this client's certificate", _CLIENT_CERTIFICATE),
    "TLSV1_ALERT_DECRYPT_ERROR": (
        "it could not verify this client's certificate",
        "check that ssl.keystore.location has the key of its own certificate",
    ),
    "TLSV1_ALERT_PROTOCOL_VERSION": ("it supports none of this client's TLS versions", _VERSIONS),
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": ("it requires stronger cipher suites", _CIPHERS),
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        "it supports none of this client's TLS versions and cipher suites, or requires a certificate of this client",
        f"{_CIPHERS}; for mutual TLS, {_CLIENT_CERTIFICATE}",
    ),
    "SSLV3_ALERT_ILLEGAL_PARAMETER": ("it refuses a parameter of this client", _CIPHERS),
    "TLSV1_UNRECOGNIZED_NAME": ("it does not serve this host name", _HOST),
}

#: OpenSSL's names of errors on this side that no retry helps against.
_OWN: Final = {
    "UNSUPPORTED_PROTOCOL": ("it supports none of this side's TLS versions", _VERSIONS),
    "NO_PROTOCOLS_AVAILABLE": ("no TLS version is enabled", _VERSIONS),
    "NO_CIPHERS_AVAILABLE": ("no cipher suite is enabled", _CIPHERS),
    "NO_SHARED_CIPHER": ("it supports none of this side's cipher suites", _CIPHERS),
    "WRONG_CIPHER_RETURNED": ("it chose a cipher suite that is not enabled", _CIPHERS),
    "DH_KEY_TOO_SMALL": ("its key exchange is too weak", "strengthen the broker's Diffie-Hellman parameters"),
    "EE_KEY_TOO_SMALL": ("the key of its certificate is too short", "get the broker a certificate with a longer key"),
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": ("it has no certificate", _CLIENT_CERTIFICATE),
}

#: OpenSSL's names for bytes that are not TLS.
_NOT_TLS: Final = frozenset(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"))


def handshake_failure(
    error: ssl.SSLError, peer: str, host: str | None, is_first_answer: bool
) -> SslAuthenticationError | ConnectionError:
    """Return the error for a failed handshake; a ConnectionError may be retried.

    ``peer`` is the peer's address, ``host`` the name that its certificate must have. ``is_first_answer`` is true if the
    peer has sent nothing valid before.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return SslAuthenticationError(verification_text(error, peer, host))
    reason = error.reason or ""
    if found := _ALERTS.get(reason):
        cause, remedy = found
        return SslAuthenticationError(f"{peer} ended the TLS handshake: {cause}. To mend it: {remedy} ({reason})")
    if found := _OWN.get(reason):
        cause, remedy = found
        return SslAuthenticationError(f"the TLS handshake with {peer} failed: {cause}. To mend it: {remedy} ({reason})")
    if reason in _NOT_TLS and is_first_answer:
        return SslAuthenticationError(f"{peer} does not speak TLS. To mend it: {_PLAINTEXT} ({reason})")
    return ConnectionError(f"the TLS handshake with {peer} failed: {text_of(error)}")


def without_tls(peer: str) -> SslAuthenticationError:
    """Return the error for a peer that answers Kafka's requests in plaintext."""
    return SslAuthenticationError(
        f"{peer} does not speak TLS: it is a Kafka listener without it. To mend it: {_PLAINTEXT}"
    )


def verification_text(
    error: ssl.SSLCertVerificationError, peer: str, host: str | None, *, trust: str = _TRUST, name: str = _HOST
) -> str:
    """Return why a peer's certificate is not accepted, and the remedy.

    ``trust`` is the remedy if its issuer is not trusted, ``name`` the one if it is for another host.
    """
    code = error.verify_code
    if code in _HOST_MISMATCH:
        cause, remedy = f"it is not for the host name {host!r}", name
    else:
        message = getattr(error, "verify_message", "") or text_of(error)
        cause, remedy = _VERIFICATION.get(code, (message, "check the certificates of both sides"))
        remedy = trust if remedy is _TRUST else remedy
    return f"the certificate of {peer} is not accepted: {cause}. To mend it: {remedy} (verification error {code})"


def speaks_no_tls(error: ssl.SSLError) -> bool:
    """Return True if the peer's answer was not TLS."""
    return error.reason in _NOT_TLS


def text_of(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason in words."""
    return error.reason.replace("_", " ").lower() if error.reason else str(error)
