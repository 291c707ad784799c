"""The keys of SASL (Java: SaslConfigs), and names of other clients for the same."""

from __future__ import annotations

from typing import Any

from pykclient.config.client_keys import HIGH, LOW, MEDIUM, none_means
from pykclient.config.config_def import ConfigKey, Type
from pykclient.config.validators import CaseInsensitiveValidString, ValidList, between

_JAVA_CLASS = "it names a Java class; credentials come from the other keys of SASL"
_TICKETS = "kinit renews tickets, or the keytab that sasl.jaas.config names"
_VALIDATION = "only brokers validate tokens"

#: Java's classes that do what this client does anyway.
_USUAL_CLASSES = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
)


def _unusual(value: Any) -> Any:
    return None if isinstance(value, str) and value in _USUAL_CLASSES else value


# fmt: off
_LOGIN_KEYS = (
    ConfigKey("sasl.mechanism", Type.STRING, "GSSAPI", MEDIUM,
        "The SASL mechanism for authentication: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI or "
        "AWS_MSK_IAM.", aliases=("sasl.mechanisms",), convert=none_means("GSSAPI")),
    ConfigKey("sasl.jaas.config", Type.PASSWORD, None, MEDIUM,
        "The credentials in the format of Java's JAAS files: the name of a login module, ``required``, options as "
        "name=value, and a semicolon."),
    ConfigKey("sasl.username", Type.STRING, None, HIGH,
        "The user name for PLAIN and SCRAM, or the id of a delegation token.",
        aliases=("sasl.plain.username",), extension=True),
    ConfigKey("sasl.password", Type.PASSWORD, None, HIGH,
        "The password for PLAIN and SCRAM, or the HMAC of a delegation token.",
        aliases=("sasl.plain.password",), extension=True),
    ConfigKey("sasl.client.callback.handler.class", Type.CLASS, None, MEDIUM,
        "The handler of a mechanism's callbacks.",
        unsupported=_JAVA_CLASS, convert=_unusual),
    ConfigKey("sasl.login.callback.handler.class", Type.CLASS, None, MEDIUM,
        "The handler of a login's callbacks.",
        unsupported=_JAVA_CLASS, convert=_unusual),
    ConfigKey("sasl.login.class", Type.CLASS, None, MEDIUM,
        "The class that performs the login.", unsupported=_JAVA_CLASS),
    ConfigKey("sasl.login.connect.timeout.ms", Type.INT, None, LOW,
        "The maximum time to connect to the identity provider."),
    ConfigKey("sasl.login.read.timeout.ms", Type.INT, None, LOW,
        "The maximum time to read from the identity provider."),
    ConfigKey("sasl.login.retry.backoff.max.ms", Type.LONG, 10_000, LOW, "The maximum backoff between login attempts."),
    ConfigKey("sasl.login.retry.backoff.ms", Type.LONG, 100, LOW, "The initial backoff between login attempts."),
    ConfigKey("sasl.login.refresh.window.factor", Type.DOUBLE, 0.8, LOW,
        "The fraction of a credential's lifetime after which it is refreshed.", between(0.5, 1.0)),
    ConfigKey("sasl.login.refresh.window.jitter", Type.DOUBLE, 0.05, LOW,
        "The maximum random jitter added to that time, as a fraction of the lifetime.", between(0.0, 0.25)),
    ConfigKey("sasl.login.refresh.min.period.seconds", Type.SHORT, 60, LOW,
        "The minimum time between refreshes.", between(0, 900)),
    ConfigKey("sasl.login.refresh.buffer.seconds", Type.SHORT, 300, LOW,
        "The minimum time before a credential's expiration at which it is refreshed.", between(0, 3600)),
    ConfigKey("sasl.kerberos.service.name", Type.STRING, None, MEDIUM,
        "The Kerberos service name of the brokers; kafka if it is not set."),
    ConfigKey("sasl.kerberos.name", Type.CLASS, None, LOW,
        "The whole name of the brokers' service, as service@host or a gssapi.Name, instead of its parts.",
        extension=True, named=True),
    ConfigKey("sasl.kerberos.domain.name", Type.STRING, None, LOW,
        "The host in the name of the brokers' service, if it is not the host that the client connects to.",
        extension=True),
    ConfigKey("sasl.aws.credentials.provider", Type.CLASS, None, LOW,
        "A callable that returns AWS credentials for AWS_MSK_IAM: access key id, secret access key and, if there is "
        "one, session token. By default they come from the environment's variables or from botocore.",
        extension=True, hidden=True),
    ConfigKey("sasl.kerberos.kinit.cmd", Type.STRING, "/usr/bin/kinit", LOW,
        "The path of the kinit program.", unsupported=_TICKETS),
    ConfigKey("sasl.kerberos.ticket.renew.window.factor", Type.DOUBLE, 0.8, LOW,
        "The fraction of a ticket's lifetime after which it is renewed.", unsupported=_TICKETS),
    ConfigKey("sasl.kerberos.ticket.renew.jitter", Type.DOUBLE, 0.05, LOW,
        "The maximum random jitter added to that time.", unsupported=_TICKETS),
    ConfigKey("sasl.kerberos.min.time.before.relogin", Type.LONG, 60_000, LOW,
        "The minimum time between logins, in milliseconds.", unsupported=_TICKETS),
)

_OAUTH_KEYS = (
    ConfigKey("sasl.oauthbearer.jwt.retriever.class", Type.CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", MEDIUM,
        "How tokens are retrieved, by the name of one of Java's classes: DefaultJwtRetriever and "
        "ClientCredentialsJwtRetriever ask sasl.oauthbearer.token.endpoint.url with the client's secret or an "
        "assertion, JwtBearerJwtRetriever with an assertion as a grant, and FileJwtRetriever reads a file.",
        named=True),
    ConfigKey("sasl.oauthbearer.jwt.validator.class", Type.CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", MEDIUM,
        "The class that validates the token.", unsupported=_VALIDATION),
    ConfigKey("sasl.oauthbearer.scope", Type.STRING, None, MEDIUM, "The scope to request from the identity provider."),
    ConfigKey("sasl.oauthbearer.client.credentials.client.id", Type.STRING, None, MEDIUM,
        "The OAuth client's id, for sasl.oauthbearer.token.endpoint.url.", aliases=("sasl.oauthbearer.client.id",)),
    ConfigKey("sasl.oauthbearer.client.credentials.client.secret", Type.PASSWORD, None, MEDIUM,
        "The OAuth client's secret.", aliases=("sasl.oauthbearer.client.secret",)),
    ConfigKey("sasl.oauth.token.provider", Type.CLASS, None, MEDIUM,
        "The source of tokens for OAUTHBEARER: an object with the method token(), as in kafka-python, or a callable "
        "that returns a token or, as in confluent-kafka, a token and its expiration time in seconds since the epoch.",
        aliases=("oauth.cb",), extension=True, hidden=True),  # some pass a token
    ConfigKey("sasl.oauthbearer.config", Type.STRING, None, LOW,
        "The argument of a callable that has a parameter.", extension=True),
    ConfigKey("sasl.oauthbearer.assertion.algorithm", Type.STRING, "RS256", MEDIUM,
        "The algorithm that signs an assertion.", CaseInsensitiveValidString("ES256", "RS256")),
    ConfigKey("sasl.oauthbearer.assertion.claim.aud", Type.STRING, None, MEDIUM, "An assertion's audience."),
    ConfigKey("sasl.oauthbearer.assertion.claim.exp.seconds", Type.INT, 300, LOW,
        "The validity of an assertion in seconds.", between(0, 86400)),
    ConfigKey("sasl.oauthbearer.assertion.claim.iss", Type.STRING, None, MEDIUM, "An assertion's issuer."),
    ConfigKey("sasl.oauthbearer.assertion.claim.jti.include", Type.BOOLEAN, False, MEDIUM,
        "If true, assertions contain an id."),
    ConfigKey("sasl.oauthbearer.assertion.claim.nbf.seconds", Type.INT, 60, LOW,
        "How many seconds in the past an assertion's validity starts.", between(0, 3600)),
    ConfigKey("sasl.oauthbearer.assertion.claim.sub", Type.STRING, None, MEDIUM, "An assertion's subject."),
    ConfigKey("sasl.oauthbearer.assertion.file", Type.STRING, None, MEDIUM, "A file with a complete assertion."),
    ConfigKey("sasl.oauthbearer.assertion.private.key.file", Type.STRING, None, MEDIUM,
        "The file with the signing key."),
    ConfigKey("sasl.oauthbearer.assertion.private.key.passphrase", Type.PASSWORD, None, MEDIUM,
        "The password of that key."),
    ConfigKey("sasl.oauthbearer.assertion.template.file", Type.STRING, None, MEDIUM,
        "A file with fixed parts of an assertion."),
    ConfigKey("sasl.oauthbearer.scope.claim.name", Type.STRING, "scope", LOW,
        "The claim that contains the scope.", unsupported=_VALIDATION),
    ConfigKey("sasl.oauthbearer.sub.claim.name", Type.STRING, "sub", LOW,
        "The claim that contains the subject.", unsupported=_VALIDATION),
    ConfigKey("sasl.oauthbearer.token.endpoint.url", Type.STRING, None, MEDIUM,
        "The URL from which tokens are retrieved with the client's id and secret, or file: and the path of a file that "
        "contains the token."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.url", Type.STRING, None, MEDIUM,
        "The URL from which the provider's keys are retrieved.", unsupported=_VALIDATION),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.refresh.ms", Type.LONG, 3_600_000, LOW,
        "The interval at which those keys are refreshed.", unsupported=_VALIDATION),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Type.LONG, 10_000, LOW,
        "The maximum backoff between attempts.", unsupported=_VALIDATION),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Type.LONG, 100, LOW,
        "The initial backoff between attempts.", unsupported=_VALIDATION),
    ConfigKey("sasl.oauthbearer.clock.skew.seconds", Type.INT, 30, LOW,
        "The tolerated difference from the provider's clock, in seconds.", unsupported=_VALIDATION),
    ConfigKey("sasl.oauthbearer.expected.audience", Type.LIST, (), HIGH,
        "The accepted audiences of a token.", ValidList(), unsupported=_VALIDATION),
    ConfigKey("sasl.oauthbearer.expected.issuer", Type.STRING, None, HIGH,
        "The required issuer of a token.", unsupported=_VALIDATION),
    ConfigKey("sasl.oauthbearer.header.urlencode", Type.BOOLEAN, False, LOW, "If true, id and secret are URL-encoded."),
)
# fmt: on

SASL_KEYS = (*_LOGIN_KEYS, *_OAUTH_KEYS)
