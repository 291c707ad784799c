"""The keys of TLS and SASL (Java: SslConfigs, SaslConfigs). None is supported yet."""

from __future__ import annotations

from typing import Any

from pykclient.config.config_def import ConfigKey, Importance, Type
from pykclient.config.validators import CaseInsensitiveValidString, Validator, ValidList, between

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

SECURITY_LATER = "connections are plain TCP for now; TLS and SASL come with a later version"
_JVM = "it configures the Java virtual machine"


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
    _key("ssl.protocol", Type.STRING, "TLSv1.3", MEDIUM, "The newest TLS version to use."),
    _key("ssl.provider", Type.STRING, None, MEDIUM, "The Java security provider for TLS.", reason=_JVM),
    _key(
        "ssl.cipher.suites",
        Type.LIST,
        (),
        LOW,
        "The cipher suites to use. Empty means the library's default.",
        ValidList(),
    ),
    _key("ssl.enabled.protocols", Type.LIST, ("TLSv1.2", "TLSv1.3"), MEDIUM, "The TLS versions to use.", ValidList()),
    _key(
        "ssl.keystore.type",
        Type.STRING,
        "JKS",
        MEDIUM,
        "The format of the file with this client's key: PEM, PKCS12 or JKS.",
    ),
    _key("ssl.keystore.location", Type.STRING, None, HIGH, "The file with this client's key and certificate chain."),
    _key("ssl.keystore.password", Type.PASSWORD, None, HIGH, "The password of that file."),
    _key("ssl.key.password", Type.PASSWORD, None, HIGH, "The password of the key itself."),
    _key("ssl.keystore.key", Type.PASSWORD, None, HIGH, "This client's private key, as PEM text."),
    _key("ssl.keystore.certificate.chain", Type.PASSWORD, None, HIGH, "This client's certificate chain, as PEM text."),
    _key("ssl.truststore.certificates", Type.PASSWORD, None, HIGH, "The trusted certificates, as PEM text."),
    _key("ssl.truststore.type", Type.STRING, "JKS", MEDIUM, "The format of the file with the trusted certificates."),
    _key("ssl.truststore.location", Type.STRING, None, HIGH, "The file with the trusted certificates."),
    _key("ssl.truststore.password", Type.PASSWORD, None, HIGH, "The password of that file."),
    _key("ssl.keymanager.algorithm", Type.STRING, "SunX509", LOW, "Java's key manager factory.", reason=_JVM),
    _key("ssl.trustmanager.algorithm", Type.STRING, "PKIX", LOW, "Java's trust manager factory.", reason=_JVM),
    _key(
        "ssl.endpoint.identification.algorithm",
        Type.STRING,
        "https",
        LOW,
        "The method to check a broker's host name against its certificate. An empty string disables the check.",
    ),
    _key("ssl.secure.random.implementation", Type.STRING, None, LOW, "Java's random number generator.", reason=_JVM),
    _key("ssl.engine.factory.class", Type.CLASS, None, LOW, "The factory of TLS engines."),
)

_SASL_KEYS = (
    ConfigKey(
        "sasl.mechanism",
        Type.STRING,
        "GSSAPI",
        None,
        MEDIUM,
        "The SASL mechanism for authentication: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
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
    _key("sasl.login.connect.timeout.ms", Type.INT, None, LOW, "The maximum time to connect to the identity provider."),
    _key("sasl.login.read.timeout.ms", Type.INT, None, LOW, "The maximum time to read from the identity provider."),
    _key("sasl.login.retry.backoff.max.ms", Type.LONG, 10_000, LOW, "The maximum backoff between login attempts."),
    _key("sasl.login.retry.backoff.ms", Type.LONG, 100, LOW, "The initial backoff between login attempts."),
    _key(
        "sasl.login.refresh.window.factor",
        Type.DOUBLE,
        0.8,
        LOW,
        "The fraction of a credential's lifetime after which it is refreshed.",
        between(0.5, 1.0),
    ),
    _key(
        "sasl.login.refresh.window.jitter",
        Type.DOUBLE,
        0.05,
        LOW,
        "The maximum random jitter added to that time, as a fraction of the lifetime.",
        between(0.0, 0.25),
    ),
    _key(
        "sasl.login.refresh.min.period.seconds",
        Type.SHORT,
        60,
        LOW,
        "The minimum time between refreshes.",
        between(0, 900),
    ),
    _key(
        "sasl.login.refresh.buffer.seconds",
        Type.SHORT,
        300,
        LOW,
        "The minimum time before a credential's expiration at which it is refreshed.",
        between(0, 3600),
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
    _key("sasl.oauthbearer.scope", Type.STRING, None, MEDIUM, "The scope to request from the identity provider."),
    _key("sasl.oauthbearer.client.credentials.client.id", Type.STRING, None, MEDIUM, "The OAuth client's id."),
    _key(
        "sasl.oauthbearer.client.credentials.client.secret", Type.PASSWORD, None, MEDIUM, "The OAuth client's secret."
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
    _key("sasl.oauthbearer.token.endpoint.url", Type.STRING, None, MEDIUM, "The URL from which tokens are retrieved."),
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
    _key("sasl.oauthbearer.header.urlencode", Type.BOOLEAN, False, LOW, "If true, id and secret are URL-encoded."),
)

SECURITY_KEYS = (
    SECURITY_PROTOCOL,
    _key("security.providers", Type.STRING, None, LOW, "Java security providers to install.", reason=_JVM),
    *_SSL_KEYS,
    *_SASL_KEYS,
    *_OAUTH_KEYS,
)
