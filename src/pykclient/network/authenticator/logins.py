"""The login for a client's configuration: which mechanism, with which credentials (Java: LoginManager)."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from pykclient.clock import SYSTEM_CLOCK
from pykclient.config import jaas_config
from pykclient.config.config_def import Password, white_space_remark
from pykclient.config.jaas_config import JaasEntry, parse_jaas_config
from pykclient.errors import ConfigError
from pykclient.network.authenticator import Authenticator, Authenticators, scram
from pykclient.network.authenticator.aws_msk_iam import MECHANISM as AWS_MSK_IAM, credentials_source, new_client
from pykclient.network.authenticator.oauth_bearer import (
    MECHANISM as OAUTHBEARER,
    BearerToken,
    OAuthBearerSaslClient,
    checked,
    file_provider,
    provider_of,
    unsecured_provider,
)
from pykclient.network.authenticator.sasl_client import (
    PLAIN_MECHANISM as PLAIN,
    Login,
    PlainLogin,
    RefreshingLogin,
    RefreshWindow,
)
from pykclient.network.authenticator.sasl_client_authenticator import SaslClientAuthenticator
from pykclient.network.authenticator.scram import ScramLogin
from pykclient.network.selectable import SocketAddress
from pykclient.network.transport_layer import TransportLayer

if TYPE_CHECKING:
    from ssl import SSLContext

_logger = logging.getLogger(__name__)
#: The mechanisms that this client knows.
MECHANISMS: Final = (PLAIN, *scram.HASHES, OAUTHBEARER, "GSSAPI", AWS_MSK_IAM)
_ENDPOINT_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - a key
_DURATIONS: Final = (
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.login.retry.backoff.max.ms",
)
_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
#: The last parts of the names of Java's classes.
_RETRIEVERS: Final = (
    "DefaultJwtRetriever",
    "ClientCredentialsJwtRetriever",
    "FileJwtRetriever",
    "JwtBearerJwtRetriever",
)
_NOT_FOR_GSSAPI: Final = ("sasl.username", "sasl.password", "sasl.oauth.token.provider", _ENDPOINT_URL)
_EXTENSION: Final = "extension_"
_URL_CHARACTERS: Final = re.compile(r"[!-~]+")


def check_mechanism(mechanism: str) -> None:
    """Check that a mechanism is known.

    Raises:
        ConfigError: it is not.
    """
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"sasl.mechanism = {mechanism!r}: it must be one of {', '.join(MECHANISMS)}", key="sasl.mechanism"
        )


def login_for(config: Mapping[str, Any]) -> Login:
    """Return the login for the ``sasl.*`` keys of a client's configuration.

    Raises:
        ConfigError: the mechanism is unknown, or its credentials are missing or contradictory.
    """
    mechanism = config["sasl.mechanism"]
    if mechanism == "GSSAPI" and "sasl.mechanism" not in getattr(config, "originals", config):
        return _default_login(config)
    check_mechanism(mechanism)
    entry = _jaas_entry(config, mechanism)
    options = {} if entry is None else entry.options
    if mechanism == OAUTHBEARER:
        return _oauth_bearer_login(config, options)
    if mechanism == AWS_MSK_IAM:
        return _aws_msk_iam_login(config, options)
    if mechanism == "GSSAPI":
        return _gssapi_login(config, options)
    username, password = _username_and_password(config, mechanism, options)
    if mechanism == PLAIN:
        return PlainLogin(username, password)
    return ScramLogin(mechanism, username, password, is_token=options.get("tokenauth", "").lower() == "true")


def _default_login(config: Mapping[str, Any]) -> Login:
    """Return the login of GSSAPI, which is Java's default; its errors say that no mechanism was set."""
    default = "sasl.mechanism is not set, so it is GSSAPI (Kerberos), the default"
    given = [key for key in _NOT_FOR_GSSAPI if config[key] is not None]
    if given:
        raise ConfigError(
            f"{default}, which does not use {given[0]}: set it to one of {', '.join(MECHANISMS)}", key="sasl.mechanism"
        )
    try:
        login = _gssapi_login(config, getattr(_jaas_entry(config, "GSSAPI"), "options", {}))
    except ConfigError as error:
        raise ConfigError(f"{default}: {error}", key=error.key) from error.__cause__
    login.remedy = f"{login.remedy}; {default}"
    return login


def _jaas_entry(config: Mapping[str, Any], mechanism: str) -> JaasEntry | None:
    """Return the parsed ``sasl.jaas.config``, if there is one."""
    value = config[jaas_config.KEY]
    if value is None:
        return None
    entry = parse_jaas_config(value)
    if mechanism not in entry.mechanisms:
        raise ConfigError(
            f"{jaas_config.KEY} = [hidden]: its login module is for {' and '.join(entry.mechanisms)}, but "
            f"sasl.mechanism is {mechanism}",
            key=jaas_config.KEY,
        )
    return entry


def _username_and_password(
    config: Mapping[str, Any], mechanism: str, options: Mapping[str, str]
) -> tuple[str, Password]:
    username, password = config["sasl.username"], config["sasl.password"]
    if options and (username is not None or password is not None):
        raise ConfigError(
            f"both {jaas_config.KEY} and sasl.username or sasl.password are set; leave one of them out",
            key=jaas_config.KEY,
        )
    if options:
        username = options.get("username")
        password = Password(options["password"]) if "password" in options else None
    if not username or password is None or not password.value:
        raise ConfigError(
            f"sasl.mechanism={mechanism} needs a user name and a password: set sasl.username and sasl.password "
            "(kafka-python: sasl_plain_username and sasl_plain_password), or username and password in "
            f"{jaas_config.KEY}",
            key="sasl.username" if not username else "sasl.password",
        )
    return username, password


def _aws_msk_iam_login(config: Mapping[str, Any], options: Mapping[str, str]) -> Login:
    unknown = sorted(options.keys() - {"awsProfileName"})
    if unknown:
        raise ConfigError(
            f"{jaas_config.KEY}: the only option of IAMLoginModule that is supported is awsProfileName, not "
            f"{', '.join(unknown)}; a profile may name a role",
            key=jaas_config.KEY,
        )
    return RefreshingLogin(
        AWS_MSK_IAM,
        "check the AWS credentials, the cluster's policy, and this machine's clock",
        credentials_source(config["sasl.aws.credentials.provider"], options.get("awsProfileName")),
        lambda credentials, host: new_client(credentials, host, SYSTEM_CLOCK.wall_ms()),
    )


def _gssapi_login(config: Mapping[str, Any], options: Mapping[str, str]) -> Login:
    from pykclient.network.authenticator.gssapi_client import GssapiLogin, KerberosSettings

    return GssapiLogin(
        KerberosSettings(
            service=config["sasl.kerberos.service.name"] or options.get("serviceName") or "kafka",
            target=config["sasl.kerberos.name"],
            domain=config["sasl.kerberos.domain.name"],
            principal=options.get("principal"),
            keytab=options.get("keyTab"),
        )
    )


def _oauth_bearer_login(config: Mapping[str, Any], options: Mapping[str, str]) -> Login:
    fetch = _token_source(config, options)
    return RefreshingLogin(
        OAUTHBEARER,
        "check the token's issuer, audience and expiration, and the clocks of this machine and the broker",
        lambda: checked(fetch(), SYSTEM_CLOCK.wall_ms()),
        lambda token, _: OAuthBearerSaslClient(token),
        refresh_window(config),
    )


def refresh_window(config: Mapping[str, Any]) -> RefreshWindow:
    """Return when to refresh credentials that expire."""
    prefix = "sasl.login.refresh"
    return RefreshWindow(
        config[f"{prefix}.window.factor"],
        config[f"{prefix}.window.jitter"],
        config[f"{prefix}.min.period.seconds"] * 1000,
        config[f"{prefix}.buffer.seconds"] * 1000,
    )


def _token_source(config: Mapping[str, Any], options: Mapping[str, str]) -> Callable[[], BearerToken]:
    """Return the function that gets tokens: the provider, the endpoint, a file, or claims that nobody signs."""
    provider, url = config["sasl.oauth.token.provider"], config[_ENDPOINT_URL]
    unsecured = unsecured_provider(options, SYSTEM_CLOCK.wall_ms)
    given = [
        name
        for name, value in (
            ("sasl.oauth.token.provider", provider),
            (_ENDPOINT_URL, url),
            (f"the claims in {jaas_config.KEY}", unsecured),
        )
        if value is not None
    ]
    if len(given) != 1:
        found = f"only one of them, not {' and '.join(given)}" if given else "there is none"
        raise ConfigError(
            "sasl.mechanism=OAUTHBEARER needs a source of tokens, "
            f"sasl.oauth.token.provider (kafka-python: sasl_oauth_token_provider) or {_ENDPOINT_URL}: {found}",
            key="sasl.oauth.token.provider",
        )
    if provider is not None:
        return provider_of(provider, config["sasl.oauthbearer.config"] or "")
    if unsecured is not None:
        return unsecured
    retriever = config[_RETRIEVER].rpartition(".")[2]
    if retriever not in _RETRIEVERS:
        raise ConfigError(
            f"{_RETRIEVER} = {config[_RETRIEVER]!r}: it must be one of {', '.join(_RETRIEVERS)}; for another source of "
            "tokens, set sasl.oauth.token.provider",
            key=_RETRIEVER,
        )
    parts = _parts_of(url)
    if parts.scheme == "file" and parts.path and retriever in ("DefaultJwtRetriever", "FileJwtRetriever"):
        return file_provider(Path(unquote(parts.path)))
    if "://" not in url and parts.scheme != "file":
        raise ConfigError(
            f"{_ENDPOINT_URL} has no scheme: it must begin with https:// (or http://, or file: and a path)",
            key=_ENDPOINT_URL,
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or retriever == "FileJwtRetriever":
        raise ConfigError(
            f"{_ENDPOINT_URL} must be the URL of a token endpoint, or file: and a path, as {retriever} needs it",
            key=_ENDPOINT_URL,
        )
    return _endpoint(config, options, url)


def _parts_of(url: str) -> SplitResult:
    """Return the parts of an identity provider's URL.

    Raises:
        ConfigError: it is not a valid URL, or contains credentials. The error does not show it.
    """
    try:
        parts = urlsplit(url)
        is_valid = parts.port is None or parts.port > 0
    except ValueError:  # whose text may quote a part of a password
        is_valid = False
    if not is_valid or not _URL_CHARACTERS.fullmatch(url):
        raise ConfigError(
            f"{_ENDPOINT_URL} is not a valid URL; other characters than ASCII must be quoted, such as %20 for a space, "
            "and the host in its ASCII form (xn--...)",
            key=_ENDPOINT_URL,
        )
    if parts.username is not None:
        raise ConfigError(
            f"{_ENDPOINT_URL} must not contain a user or a password; set {_CLIENT_ID} and {_CLIENT_SECRET}",
            key=_ENDPOINT_URL,
        )
    return parts


def _endpoint(config: Mapping[str, Any], options: Mapping[str, str], url: str) -> Callable[[], BearerToken]:
    from pykclient.network.authenticator.token_endpoint import (
        DEFAULT_TIMEOUT_MS,
        TRUST,
        EndpointSettings,
        TokenEndpoint,
    )

    for name in _DURATIONS:
        if (config[name] or 0) < 0:
            raise ConfigError(f"{name} = {config[name]}: it must be at least 0", key=name)
    timeouts = [config["sasl.login.connect.timeout.ms"], config["sasl.login.read.timeout.ms"]]
    is_secure = urlsplit(url).scheme == "https"
    if not is_secure and not _is_loopback(urlsplit(url).hostname or ""):
        _logger.warning(
            "%s begins with http://: the client's credentials and its tokens cross the network unencrypted; use "
            "https://",
            _ENDPOINT_URL,
        )
    context, trust = _https(config, options) if is_secure else (None, TRUST)
    settings = EndpointSettings(
        url,
        max((timeout_ms for timeout_ms in timeouts if timeout_ms), default=DEFAULT_TIMEOUT_MS),
        config["sasl.login.retry.backoff.ms"],
        config["sasl.login.retry.backoff.max.ms"],
        context,
        trust,
        white_space_remark(None if (secret := _secret_of(config, options)) is None else secret.value),
    )
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    return TokenEndpoint(settings, *_request_of(config, options), extensions).fetch


def _secret_of(config: Mapping[str, Any], options: Mapping[str, str]) -> Password | None:
    return config[_CLIENT_SECRET] or (Password(options["clientSecret"]) if "clientSecret" in options else None)


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _https(config: Mapping[str, Any], options: Mapping[str, str]) -> tuple[Callable[[], SSLContext], str]:
    """Return the source of contexts for connections to the identity provider, and the remedy for missing trust.

    As in Java, the ``ssl.*`` options in sasl.jaas.config stand alone if there are any.

    Raises:
        ConfigError: a file cannot be used, or two sources contradict each other.
    """
    from pykclient.config.config_def import ConfigDef
    from pykclient.config.security_keys import SSL_KEYS
    from pykclient.network.authenticator.token_endpoint import TRUST
    from pykclient.network.tls.ssl_factory import client_ssl_factory, https_ssl_factory

    own = {name: value for name, value in options.items() if name.startswith("ssl.")}
    given = next((name for name in ("https.ca.location", "https.ca.pem") if config[name] is not None), None)
    if not own:
        factory = https_ssl_factory(config)
        trust = TRUST if given is None else f"{given} must have the certificate of the authority that issued it"
    elif given is not None:
        raise ConfigError(f"{given} and ssl.* options in {jaas_config.KEY} are set; leave one of them out", key=given)
    else:
        definition = ConfigDef(SSL_KEYS)
        try:
            parsed = {**definition.parse(definition.read(own)), "enable.ssl.certificate.verification": True}
            factory = client_ssl_factory(parsed)
        except ConfigError as error:
            raise ConfigError(f"in {jaas_config.KEY}: {error}", key=jaas_config.KEY) from error
        trust = (
            f"ssl.truststore.location in {jaas_config.KEY} must have the certificate of the authority that issued it"
        )
    return lambda: factory.current().context, trust


def _request_of(
    config: Mapping[str, Any], options: Mapping[str, str]
) -> tuple[Callable[[], Mapping[str, str]], Callable[[], Mapping[str, str]]]:
    """Return the functions that make the headers and the form of a request for a token.

    As in Java, an assertion comes before a secret, and a file with an assertion before one that is made here.
    """
    from pykclient.network.authenticator import assertions
    from pykclient.network.authenticator.token_endpoint import (
        ClientAssertion,
        ClientCredentials,
        JwtBearer,
        no_headers,
    )

    scope = config["sasl.oauthbearer.scope"] or options.get("scope")
    client_id = config[_CLIENT_ID] or options.get("clientId")
    if config[_RETRIEVER].rpartition(".")[2] == "JwtBearerJwtRetriever":
        return no_headers, JwtBearer(assertions.assertion_source(config, SYSTEM_CLOCK.wall_ms), scope).form
    if assertions.are_configured(config):
        source = assertions.assertion_source(config, SYSTEM_CLOCK.wall_ms)
        return no_headers, ClientAssertion(source, client_id, scope).form
    secret = _secret_of(config, options)
    if not client_id or secret is None or not secret.value:
        raise ConfigError(
            f"{_ENDPOINT_URL} needs {_CLIENT_ID} and {_CLIENT_SECRET}, clientId and clientSecret in {jaas_config.KEY}, "
            f"or an assertion ({assertions.FILE}, {assertions.KEY_FILE})",
            key=_CLIENT_ID if not client_id else _CLIENT_SECRET,
        )
    credentials = ClientCredentials(client_id, secret, scope, config["sasl.oauthbearer.header.urlencode"])
    return credentials.headers, credentials.form


class SaslAuthenticators(Authenticators):
    """Authenticators that share a login. Thread: io."""

    def __init__(self, login: Login, client_id: str, rng: random.Random | None = None) -> None:
        self.login: Login = login
        self._client_id = client_id
        self._rng = rng or random.Random()

    def new_authenticator(
        self,
        id: str,  # noqa: ARG002 - the base's signature
        address: SocketAddress | None,
        transport: TransportLayer,  # noqa: ARG002
    ) -> Authenticator:
        assert address is not None, "clients connect; they do not accept"
        return SaslClientAuthenticator(self.login, address.host, address.port, self._client_id, self._rng)

    def close(self) -> None:
        self.login.close()


def sasl_authenticators(config: Mapping[str, Any]) -> SaslAuthenticators:
    """Return the authenticators for the ``sasl.*`` keys of a client's configuration.

    Raises:
        ConfigError: the mechanism is unknown, or its credentials are missing or contradictory.
    """
    return SaslAuthenticators(login_for(config), config["client.id"] or "pykclient")
