"""The keys of TLS (Java: SslConfigs), and of security as a whole."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from pykclient.config.client_keys import HIGH, LOW, MEDIUM, none_means, upper
from pykclient.config.config_def import ConfigKey, Type
from pykclient.config.sasl_keys import SASL_KEYS
from pykclient.config.validators import CaseInsensitiveValidString, ValidList

_logger = logging.getLogger(__name__)

_JVM = "it configures the Java virtual machine"


def _path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _own_key(name: str, type: str, default: Any, doc: str, **more: Any) -> ConfigKey:
    """Return a key that Java's clients do not have."""
    return ConfigKey(name, type, default, MEDIUM, doc, extension=True, **more)


# fmt: off
SSL_KEYS = (
    ConfigKey("ssl.protocol", Type.STRING, "TLSv1.3", MEDIUM,
        "The newest TLS version to use. ssl.enabled.protocols has the others."),
    ConfigKey("ssl.provider", Type.STRING, None, MEDIUM, "The Java security provider for TLS.", unsupported=_JVM),
    ConfigKey("ssl.cipher.suites", Type.LIST, (), LOW,
        "The cipher suites to use, in Java's names or OpenSSL's. Empty means the library's default. Without a suite of "
        "TLS 1.3 in the list, connections use TLS 1.2, and the other way round.", ValidList()),
    ConfigKey("ssl.enabled.protocols", Type.LIST, ("TLSv1.2", "TLSv1.3"), MEDIUM,
        "The TLS versions to use. All versions between the oldest and the newest one are enabled.", ValidList()),
    ConfigKey("ssl.keystore.type", Type.STRING, "JKS", MEDIUM,
        "The format of the file with this client's key: PEM, PKCS12 or JKS. The client recognizes the format, so this "
        "need not be set."),
    ConfigKey("ssl.keystore.location", Type.STRING, None, HIGH,
        "The file with this client's key and certificate chain, in PEM, PKCS #12 (needs the extra security) or JKS "
        "(needs the extra jks). When the file changes, new connections use its new content.", convert=_path),
    ConfigKey("ssl.keystore.password", Type.PASSWORD, None, HIGH, "The password of that file."),
    ConfigKey("ssl.key.password", Type.PASSWORD, None, HIGH,
        "The password of the key itself, in ssl.keystore.key or in a file.", aliases=("ssl.password",)),
    ConfigKey("ssl.keystore.key", Type.PASSWORD, None, HIGH,
        "This client's private key, as PEM text (KIP-651).", aliases=("ssl.key.pem",)),
    ConfigKey("ssl.keystore.certificate.chain", Type.PASSWORD, None, HIGH,
        "This client's certificate chain, as PEM text, the client's own certificate first.",
        aliases=("ssl.certificate.pem",)),
    ConfigKey("ssl.truststore.certificates", Type.PASSWORD, None, HIGH,
        "The trusted certificates, as PEM text.", aliases=("ssl.ca.pem",)),
    ConfigKey("ssl.truststore.type", Type.STRING, "JKS", MEDIUM,
        "The format of the file with the trusted certificates. The client recognizes it, so this need not be set."),
    ConfigKey("ssl.truststore.location", Type.STRING, None, HIGH,
        "The file with the trusted certificates, in PEM, PKCS #12 or JKS. Without any, the system's authorities are "
        "trusted.", convert=_path),
    ConfigKey("ssl.truststore.password", Type.PASSWORD, None, HIGH, "The password of that file."),
    ConfigKey("ssl.keymanager.algorithm", Type.STRING, "SunX509", LOW, "Java's key manager factory.", unsupported=_JVM),
    ConfigKey("ssl.trustmanager.algorithm", Type.STRING, "PKIX", LOW,
        "Java's trust manager factory.", unsupported=_JVM),
    ConfigKey("ssl.endpoint.identification.algorithm", Type.STRING, "https", LOW,
        "The method to check a broker's host name against its certificate. An empty string, or 'none', disables the "
        "check.", convert=none_means("https")),
    ConfigKey("ssl.secure.random.implementation", Type.STRING, None, LOW,
        "Java's random number generator.", unsupported=_JVM),
    ConfigKey("ssl.engine.factory.class", Type.CLASS, None, LOW,
        "The factory of TLS engines.", unsupported="pass ssl_context instead"),
    _own_key("ssl.context", Type.CLASS, None, "An ssl.SSLContext to use as it is, instead of the other ssl.* keys."),
    _own_key("ssl.cafile", Type.STRING, None,
        "As ssl.truststore.location, or a folder of certificates as OpenSSL's rehash prepares it.",
        aliases=("ssl.ca.location",), convert=_path),
    _own_key("ssl.certfile", Type.STRING, None,
        "A PEM file with this client's certificate chain, and perhaps its key.",
        aliases=("ssl.certificate.location",), convert=_path),
    _own_key("ssl.keyfile", Type.STRING, None,
        "A PEM file with this client's private key, if it is not in ssl.certfile.",
        aliases=("ssl.key.location",), convert=_path),
    _own_key("ssl.crlfile", Type.STRING, None,
        "A PEM file with certificate revocation lists. Brokers' certificates are checked against them.",
        aliases=("ssl.crl.location",), convert=_path),
    _own_key("ssl.ciphers", Type.STRING, None, "The cipher suites of TLS 1.2, as an OpenSSL cipher list."),
    _own_key("ssl.check.hostname", Type.BOOLEAN, True,
        "If false, a broker's host name is not checked against its certificate, as with an empty "
        "ssl.endpoint.identification.algorithm.", convert=none_means(True)),
    _own_key("enable.ssl.certificate.verification", Type.BOOLEAN, True,
        "If false, any certificate of a broker is accepted, so that anyone on the network can pose as the broker. For "
        "experiments only.", convert=none_means(True)),
)

_HTTPS_KEYS = (
    _own_key("https.ca.location", Type.STRING, None,
        "The file or folder with the trusted certificates of identity providers (OAUTHBEARER). Without it, and without "
        "ssl.* options in sasl.jaas.config, the system's authorities and those of ssl.truststore.* and ssl.cafile are "
        "trusted. The value probe stands for the system's authorities alone.", convert=_path),
    _own_key("https.ca.pem", Type.PASSWORD, None, "The trusted certificates of identity providers, as PEM text."),
)

SECURITY_KEYS = (
    ConfigKey("security.protocol", Type.STRING, "PLAINTEXT", MEDIUM,
        "The protocol for connections to brokers: plain TCP or TLS, with or without SASL authentication.",
        CaseInsensitiveValidString("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"),
        convert=lambda value: "PLAINTEXT" if value is None else upper(value)),
    ConfigKey("security.providers", Type.STRING, None, LOW, "Java security providers to install.", unsupported=_JVM),
    *SSL_KEYS,
    *_HTTPS_KEYS,
    *SASL_KEYS,
)
# fmt: on

#: The keys of TLS that also serve connections to an identity provider.
_FOR_PROVIDERS = ("ssl.context", "ssl.cafile", "ssl.truststore.")


def warn_of_ignored(config: Mapping[str, Any]) -> None:
    """Log one warning if keys of TLS or SASL were set that the security.protocol does not use.

    A forgotten security.protocol sends everything unencrypted, and brokers only close the connection.
    """
    protocol: str = config["security.protocol"]
    has_provider = protocol.startswith("SASL_") and config["sasl.mechanism"] == "OAUTHBEARER"
    used = [
        *(("ssl.",) if protocol.endswith("SSL") else ()),
        *(("sasl.",) if protocol.startswith("SASL_") else ()),
        *(_FOR_PROVIDERS if has_provider else ()),
    ]
    ignored = [
        key.name
        for key in SECURITY_KEYS
        if key.name.startswith(("ssl.", "sasl."))
        and not key.name.startswith(tuple(used))
        and config[key.name] != key.default_value()
    ]
    if ignored:
        _logger.warning(
            "security.protocol=%s does not use %s: set security.protocol to %s, or leave out what it does not use",
            protocol,
            ", ".join(ignored),
            "SSL or SASL_SSL" if protocol == "PLAINTEXT" and ignored[-1].startswith("ssl.") else "SASL_SSL",
        )
