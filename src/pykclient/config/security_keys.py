"""The keys of TLS and SASL (Java: SslConfigs, SaslConfigs)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pykclient.config.config_def import ConfigKey, Importance, Type
from pykclient.config.validators import CaseInsensitiveValidString, Validator, ValidList, between

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

SECURITY_LATER = "SASL comes with a later version"
_JVM = "it configures the Java virtual machine"


def _path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _key(
    name: str,
    type: str,
    default: Any,
    importance: str,
    doc: str,
    validator: Validator | None = None,
    reason: str | None = SECURITY_LATER,
) -> ConfigKey:
    return ConfigKey(name, type, default, validator, importance, doc, unsupported=reason)


def _ssl_key(
    name: str,
    type: str,
    default: Any,
    importance: str,
    doc: str,
    validator: Validator | None = None,
    *,
    aliases: tuple[str, ...] = (),
    convert: Callable[[Any], Any] | None = None,
) -> ConfigKey:
    return ConfigKey(name, type, default, validator, importance, doc, aliases=aliases, convert=convert)


def _own_key(
    name: str,
    type: str,
    default: Any,
    doc: str,
    *,
    aliases: tuple[str, ...] = (),
    convert: Callable[[Any], Any] | None = None,
) -> ConfigKey:
    """Return a key that Java's clients do not have."""
    return ConfigKey(name, type, default, None, MEDIUM, doc, aliases=aliases, convert=convert, extension=True)


SECURITY_PROTOCOL = ConfigKey(
    "security.protocol",
    Type.STRING,
    "PLAINTEXT",
    CaseInsensitiveValidString("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"),
    MEDIUM,
    "The protocol for connections to brokers: plain TCP or TLS, with or without SASL authentication.",
    convert=lambda value: "PLAINTEXT" if value is None else value.strip().upper() if isinstance(value, str) else value,
)

_SSL_KEYS = (
    _ssl_key(
        "ssl.protocol",
        Type.STRING,
        "TLSv1.3",
        MEDIUM,
        "The newest TLS version to use. ssl.enabled.protocols has the others.",
    ),
    _key("ssl.provider", Type.STRING, None, MEDIUM, "The Java security provider for TLS.", reason=_JVM),
    _ssl_key(
        "ssl.cipher.suites",
        Type.LIST,
        (),
        LOW,
        "The cipher suites to use, in Java's names or OpenSSL's. Empty means the library's default. Without a suite of "
        "TLS 1.3 in the list, connections use TLS 1.2, and the other way round.",
        ValidList(),
    ),
    _ssl_key(
        "ssl.enabled.protocols",
        Type.LIST,
        ("TLSv1.2", "TLSv1.3"),
        MEDIUM,
        "The TLS versions to use. All versions between the oldest and the newest one are enabled.",
        ValidList(),
    ),
    _ssl_key(
        "ssl.keystore.type",
        Type.STRING,
        "JKS",
        MEDIUM,
        "The format of the file with this client's key: PEM, PKCS12 or JKS. The client recognizes the format, so this "
        "need not be set.",
    ),
    _ssl_key(
        "ssl.keystore.location",
        Type.STRING,
        None,
        HIGH,
        "The file with this client's key and certificate chain, in PEM, PKCS #12 (needs the extra security) or JKS "
        "(needs the extra jks). When the file changes, new connections use its new content.",
        convert=_path,
    ),
    _ssl_key("ssl.keystore.password", Type.PASSWORD, None, HIGH, "The password of that file."),
    _ssl_key(
        "ssl.key.password",
        Type.PASSWORD,
        None,
        HIGH,
        "The password of the key itself, in ssl.keystore.key or in a file.",
        aliases=("ssl.password",),
    ),
    _ssl_key(
        "ssl.keystore.key",
        Type.PASSWORD,
        None,
        HIGH,
        "This client's private key, as PEM text (KIP-651).",
        aliases=("ssl.key.pem",),
    ),
    _ssl_key(
        "ssl.keystore.certificate.chain",
        Type.PASSWORD,
        None,
        HIGH,
        "This client's certificate chain, as PEM text, the client's own certificate first.",
        aliases=("ssl.certificate.pem",),
    ),
    _ssl_key(
        "ssl.truststore.certificates",
        Type.PASSWORD,
        None,
        HIGH,
        "The trusted certificates, as PEM text.",
        aliases=("ssl.ca.pem",),
    ),
    _ssl_key(
        "ssl.truststore.type",
        Type.STRING,
        "JKS",
        MEDIUM,
        "The format of the file with the trusted certificates. The client recognizes it, so this need not be set.",
    ),
    _ssl_key(
        "ssl.truststore.location",
        Type.STRING,
        None,
        HIGH,
        "The file with the trusted certificates, in PEM, PKCS #12 or JKS. Without any, the system's authorities are "
        "trusted.",
        convert=_path,
    ),
    _ssl_key("ssl.truststore.password", Type.PASSWORD, None, HIGH, "The password of that file."),
    _key("ssl.keymanager.algorithm", Type.STRING, "SunX509", LOW, "Java's key manager factory.", reason=_JVM),
    _key("ssl.trustmanager.algorithm", Type.STRING, "PKIX", LOW, "Java's trust manager factory.", reason=_JVM),
    _ssl_key(
        "ssl.endpoint.identification.algorithm",
        Type.STRING,
        "https",
        LOW,
        "The method to check a broker's host name against its certificate. An empty string, or none, disables the "
        "check.",
        convert=lambda value: "" if value is None else value,
    ),
    _key("ssl.secure.random.implementation", Type.STRING, None, LOW, "Java's random number generator.", reason=_JVM),
    _key(
        "ssl.engine.factory.class",
        Type.CLASS,
        None,
        LOW,
        "The factory of TLS engines.",
        reason="pass ssl_context instead",
    ),
    _own_key(
        "ssl.context",
        Type.CLASS,
        None,
        "An ssl.SSLContext to use as it is, instead of the other ssl.* keys.",
    ),
    _own_key(
        "ssl.cafile",
        Type.STRING,
        None,
        "As ssl.truststore.location, or a folder of certificates as OpenSSL's rehash prepares it.",
        aliases=("ssl.ca.location",),
        convert=_path,
    ),
    _own_key(
        "ssl.certfile",
        Type.STRING,
        None,
        "A PEM file with this client's certificate chain, and perhaps its key.",
        aliases=("ssl.certificate.location",),
        convert=_path,
    ),
    _own_key(
        "ssl.keyfile",
        Type.STRING,
        None,
        "A PEM file with this client's private key, if it is not in ssl.certfile.",
        aliases=("ssl.key.location",),
        convert=_path,
    ),
    _own_key(
        "ssl.crlfile",
        Type.STRING,
        None,
        "A PEM file with certificate revocation lists. Brokers' certificates are checked against them.",
        aliases=("ssl.crl.location",),
        convert=_path,
    ),
    _own_key("ssl.ciphers", Type.STRING, None, "The cipher suites of TLS 1.2, as an OpenSSL cipher list."),
    _own_key(
        "ssl.check.hostname",
        Type.BOOLEAN,
        True,
        "If false, a broker's host name is not checked against its certificate, as with an empty "
        "ssl.endpoint.identification.algorithm.",
        convert=lambda value: True if value is None else value,
    ),
    _own_key(
        "enable.ssl.certificate.verification",
        Type.BOOLEAN,
        True,
        "If false, any certificate of a broker is accepted, so that anyone on the network can pose as the broker. For "
        "experiments only.",
    ),
)

_SASL_KEYS = (
    ConfigKey(
        "sasl.mechanism",
        Type.STRING,
        "GSSAPI",
        None,
        MEDIUM,
        "The SASL mechanism for authentication: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.",
        aliases=("sasl.mechanisms",),
        convert=lambda value: "GSSAPI" if value is None else value,
    ),
    _key(
        "sasl.jaas.config",
        Type.PASSWORD,
        None,
        MEDIUM,
        "The credentials in the format of Java's JAAS files: the name of a login module, ``required``, options as "
        "name=value, and a semicolon.",
        reason=None,
    ),
    ConfigKey(
        "sasl.username",
        Type.STRING,
        None,
        None,
        HIGH,
        "The user name for PLAIN and SCRAM, or the id of a delegation token.",
        aliases=("sasl.plain.username",),
        extension=True,
    ),
    ConfigKey(
        "sasl.password",
        Type.PASSWORD,
        None,
        None,
        HIGH,
        "The password for PLAIN and SCRAM, or the HMAC of a delegation token.",
        aliases=("sasl.plain.password",),
        extension=True,
    ),
    _key("sasl.client.callback.handler.class", Type.CLASS, None, MEDIUM, "The handler of a mechanism's callbacks."),
    _key("sasl.login.callback.handler.class", Type.CLASS, None, MEDIUM, "The handler of a login's callbacks."),
    _key("sasl.login.class", Type.CLASS, None, MEDIUM, "The class that performs the login."),
    _key(
        "sasl.login.connect.timeout.ms",
        Type.INT,
        None,
        LOW,
        "The maximum time to connect to the identity provider.",
        reason=None,
    ),
    _key(
        "sasl.login.read.timeout.ms",
        Type.INT,
        None,
        LOW,
        "The maximum time to read from the identity provider.",
        reason=None,
    ),
    _key(
        "sasl.login.retry.backoff.max.ms",
        Type.LONG,
        10_000,
        LOW,
        "The maximum backoff between login attempts.",
        reason=None,
    ),
    _key(
        "sasl.login.retry.backoff.ms", Type.LONG, 100, LOW, "The initial backoff between login attempts.", reason=None
    ),
    _key(
        "sasl.login.refresh.window.factor",
        Type.DOUBLE,
        0.8,
        LOW,
        "The fraction of a credential's lifetime after which it is refreshed.",
        between(0.5, 1.0),
        reason=None,
    ),
    _key(
        "sasl.login.refresh.window.jitter",
        Type.DOUBLE,
        0.05,
        LOW,
        "The maximum random jitter added to that time, as a fraction of the lifetime.",
        between(0.0, 0.25),
        reason=None,
    ),
    _key(
        "sasl.login.refresh.min.period.seconds",
        Type.SHORT,
        60,
        LOW,
        "The minimum time between refreshes.",
        between(0, 900),
        reason=None,
    ),
    _key(
        "sasl.login.refresh.buffer.seconds",
        Type.SHORT,
        300,
        LOW,
        "The minimum time before a credential's expiration at which it is refreshed.",
        between(0, 3600),
        reason=None,
    ),
    ConfigKey(
        "sasl.kerberos.service.name",
        Type.STRING,
        None,
        None,
        MEDIUM,
        "The Kerberos service name of the brokers.",
        unsupported=SECURITY_LATER,
        # kafka-python's default, which programs may set explicitly.
        convert=lambda value: None if value == "kafka" else value,
    ),
    _key("sasl.kerberos.kinit.cmd", Type.STRING, "/usr/bin/kinit", LOW, "The path of the kinit program."),
    _key(
        "sasl.kerberos.ticket.renew.window.factor",
        Type.DOUBLE,
        0.8,
        LOW,
        "The fraction of a ticket's lifetime after which it is renewed.",
    ),
    _key("sasl.kerberos.ticket.renew.jitter", Type.DOUBLE, 0.05, LOW, "The maximum random jitter added to that time."),
    _key(
        "sasl.kerberos.min.time.before.relogin",
        Type.LONG,
        60_000,
        LOW,
        "The minimum time between logins, in milliseconds.",
    ),
)

_OAUTH_KEYS = (
    _key(
        "sasl.oauthbearer.jwt.retriever.class",
        Type.CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        MEDIUM,
        "The class that retrieves the token.",
    ),
    _key(
        "sasl.oauthbearer.jwt.validator.class",
        Type.CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        MEDIUM,
        "The class that validates the token.",
    ),
    _key(
        "sasl.oauthbearer.scope",
        Type.STRING,
        None,
        MEDIUM,
        "The scope to request from the identity provider.",
        reason=None,
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.id",
        Type.STRING,
        None,
        None,
        MEDIUM,
        "The OAuth client's id, for sasl.oauthbearer.token.endpoint.url.",
        aliases=("sasl.oauthbearer.client.id",),
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.secret",
        Type.PASSWORD,
        None,
        None,
        MEDIUM,
        "The OAuth client's secret.",
        aliases=("sasl.oauthbearer.client.secret",),
    ),
    ConfigKey(
        "sasl.oauth.token.provider",
        Type.CLASS,
        None,
        None,
        MEDIUM,
        "The source of tokens for OAUTHBEARER: an object with the method token(), as in kafka-python, or a callable "
        "that returns a token or, as in confluent-kafka, a token and its expiration time in seconds since the epoch.",
        aliases=("oauth.cb",),
        extension=True,
    ),
    ConfigKey(
        "sasl.oauthbearer.config",
        Type.STRING,
        None,
        None,
        LOW,
        "The argument of a callable that has a parameter.",
        extension=True,
    ),
    _key(
        "sasl.oauthbearer.assertion.algorithm",
        Type.STRING,
        "RS256",
        MEDIUM,
        "The algorithm that signs an assertion.",
        CaseInsensitiveValidString("ES256", "RS256"),
    ),
    _key("sasl.oauthbearer.assertion.claim.aud", Type.STRING, None, MEDIUM, "An assertion's audience."),
    _key(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        Type.INT,
        300,
        LOW,
        "The validity of an assertion in seconds.",
        between(0, 86400),
    ),
    _key("sasl.oauthbearer.assertion.claim.iss", Type.STRING, None, MEDIUM, "An assertion's issuer."),
    _key(
        "sasl.oauthbearer.assertion.claim.jti.include",
        Type.BOOLEAN,
        False,
        MEDIUM,
        "If true, assertions contain an id.",
    ),
    _key(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        Type.INT,
        60,
        LOW,
        "How many seconds in the past an assertion's validity starts.",
        between(0, 3600),
    ),
    _key("sasl.oauthbearer.assertion.claim.sub", Type.STRING, None, MEDIUM, "An assertion's subject."),
    _key("sasl.oauthbearer.assertion.file", Type.STRING, None, MEDIUM, "A file with a complete assertion."),
    _key("sasl.oauthbearer.assertion.private.key.file", Type.STRING, None, MEDIUM, "The file with the signing key."),
    _key("sasl.oauthbearer.assertion.private.key.passphrase", Type.PASSWORD, None, MEDIUM, "The password of that key."),
    _key(
        "sasl.oauthbearer.assertion.template.file",
        Type.STRING,
        None,
        MEDIUM,
        "A file with fixed parts of an assertion.",
    ),
    _key("sasl.oauthbearer.scope.claim.name", Type.STRING, "scope", LOW, "The claim that contains the scope."),
    _key("sasl.oauthbearer.sub.claim.name", Type.STRING, "sub", LOW, "The claim that contains the subject."),
    _key(
        "sasl.oauthbearer.token.endpoint.url",
        Type.STRING,
        None,
        MEDIUM,
        "The URL from which tokens are retrieved with the client's id and secret, or file: and the path of a file "
        "that contains the token.",
        reason=None,
    ),
    _key(
        "sasl.oauthbearer.jwks.endpoint.url",
        Type.STRING,
        None,
        MEDIUM,
        "The URL from which the provider's keys are retrieved.",
    ),
    _key(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        Type.LONG,
        3_600_000,
        LOW,
        "The interval at which those keys are refreshed.",
    ),
    _key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        Type.LONG,
        10_000,
        LOW,
        "The maximum backoff between attempts.",
    ),
    _key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Type.LONG, 100, LOW, "The initial backoff between attempts."
    ),
    _key(
        "sasl.oauthbearer.clock.skew.seconds",
        Type.INT,
        30,
        LOW,
        "The tolerated difference from the provider's clock, in seconds.",
    ),
    _key("sasl.oauthbearer.expected.audience", Type.LIST, (), HIGH, "The accepted audiences of a token.", ValidList()),
    _key("sasl.oauthbearer.expected.issuer", Type.STRING, None, HIGH, "The required issuer of a token."),
    _key(
        "sasl.oauthbearer.header.urlencode",
        Type.BOOLEAN,
        False,
        LOW,
        "If true, id and secret are URL-encoded.",
        reason=None,
    ),
)

SECURITY_KEYS = (
    SECURITY_PROTOCOL,
    _key("security.providers", Type.STRING, None, LOW, "Java security providers to install.", reason=_JVM),
    *_SSL_KEYS,
    *_SASL_KEYS,
    *_OAUTH_KEYS,
)
