"""The security of an embedded cluster's listeners: protocols, mechanisms and users."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from pykclient.errors import ConfigError, IllegalArgumentError, IllegalStateError
from pykclient.network.authenticator import oauth_bearer, scram
from pykclient.network.authenticator.scram import ScramCredential
from pykclient.testing.certificates import CertificateAuthority, IssuedCertificate

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

#: The mechanisms that embedded brokers know.
MECHANISMS: Final = ("PLAIN", *scram.HASHES, "OAUTHBEARER")

#: Kafka's values of ssl.client.auth: whether brokers ask clients for a certificate.
CLIENT_AUTH: Final = ("none", "requested", "required")

#: The users of a listener with SASL, if none are given.
DEFAULT_USERS: Final[Mapping[str, str]] = {"alice": "alice-secret"}

#: The name of the only listener, if it is not given a name.
ONLY_LISTENER: Final = "CLIENT"


class ValidToken(NamedTuple):
    """The principal of a valid OAUTHBEARER token, and the wall clock time at which the token expires."""

    principal: str
    expiry_ms: int


class Security:
    """The security of one listener.

    ``protocol`` is one of Kafka's four. ``mechanisms`` are the enabled SASL mechanisms, by default all that embedded
    brokers know. ``users`` maps user names to passwords, for PLAIN and SCRAM. ``validate_token`` checks a token of
    OAUTHBEARER: it returns a ``ValidToken``, or raises ValueError; by default, brokers accept unsecured tokens as
    Kafka's do.

    With TLS, the brokers' certificate comes from ``authority``, by default one of the listener's own. It is valid for
    the hosts that brokers advertise and for the names of this machine. ``broker_certificate`` replaces it, for example
    by an expired one. ``client_auth`` is Kafka's ssl.client.auth: "none", "requested" or "required".
    ``client_certificate`` is one that brokers accept; ``client_config`` has it unless ``client_auth`` is "none".

    The brokers' settings ``connections.max.reauth.ms`` and ``connection.failed.authentication.delay.ms``
    apply to all listeners.

    Immutable. Its repr shows no passwords. Thread: any.
    """

    def __init__(
        self,
        protocol: str = "SASL_PLAINTEXT",
        *,
        mechanisms: Collection[str] = MECHANISMS,
        users: Mapping[str, str] = DEFAULT_USERS,
        validate_token: Callable[[str], ValidToken] | None = None,
        client_auth: str = "none",
        authority: CertificateAuthority | None = None,
        broker_certificate: IssuedCertificate | None = None,
    ) -> None:
        """Check the settings, and make certificates for TLS.

        Raises:
            ConfigError: a setting is wrong, or TLS needs the package ``cryptography``, which is missing.
        """
        if protocol not in PROTOCOLS:
            raise ConfigError(f"a listener's protocol is one of {', '.join(PROTOCOLS)}, not {protocol!r}")
        unknown = sorted(set(mechanisms) - set(MECHANISMS))
        if unknown or not mechanisms:
            raise ConfigError(f"embedded brokers know the mechanisms {', '.join(MECHANISMS)}, not {unknown}")
        self.protocol = protocol
        self.mechanisms = tuple(mechanisms)
        self.users = dict(users)
        self.validate_token = validate_token
        if client_auth not in CLIENT_AUTH:
            raise ConfigError(f"client_auth is one of {', '.join(CLIENT_AUTH)}, not {client_auth!r}")
        self.client_auth = client_auth
        self.broker_certificate = broker_certificate
        self._authority = authority
        self._client_certificate: IssuedCertificate | None = None
        if self.uses_tls:
            from pykclient.testing.certificates import CertificateAuthority

            self._authority = authority or CertificateAuthority()
            self._client_certificate = self._authority.issue("client")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def has_principals(self) -> bool:
        """True if clients authenticate: with SASL, or with a certificate."""
        return self.uses_sasl or (self.uses_tls and self.client_auth != "none")

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def authority(self) -> CertificateAuthority:
        """The authority that brokers and clients trust.

        Raises:
            IllegalStateError: the listener does not use TLS.
        """
        if self._authority is None:
            raise IllegalStateError(f"a listener with {self.protocol} has no certificates")
        return self._authority

    @property
    def client_certificate(self) -> IssuedCertificate:
        """A client's certificate that the brokers accept.

        Raises:
            IllegalStateError: the listener does not use TLS.
        """
        if self._client_certificate is None:
            raise IllegalStateError(f"a listener with {self.protocol} has no certificates")
        return self._client_certificate

    def client_config(self, mechanism: str | None = None, user: str | None = None) -> dict[str, str]:
        """Return a client's settings, without addresses; by default with the first mechanism and user.

        Raises:
            IllegalArgumentError: the mechanism is not enabled, or the user does not exist.
        """
        settings = {"security.protocol": self.protocol}
        if self.uses_tls:
            settings["ssl.ca.pem"] = self.authority.certificate_pem
            if self.client_auth != "none":
                settings["ssl.certificate.pem"] = self.client_certificate.certificate_pem
                settings["ssl.key.pem"] = self.client_certificate.key_pem()
        if not self.uses_sasl:
            return settings
        mechanism = self.mechanisms[0] if mechanism is None else mechanism
        if mechanism not in self.mechanisms:
            raise IllegalArgumentError(f"the mechanism {mechanism} is not enabled, only {', '.join(self.mechanisms)}")
        settings["sasl.mechanism"] = mechanism
        if mechanism == oauth_bearer.MECHANISM:
            return settings
        user = next(iter(self.users), "") if user is None else user
        if user not in self.users:
            raise IllegalArgumentError(f"there is no user {user!r}, only {', '.join(sorted(self.users)) or 'none'}")
        return {**settings, "sasl.username": user, "sasl.password": self.users[user]}

    def __repr__(self) -> str:
        return f"Security({self.protocol!r}, mechanisms={self.mechanisms}, users={sorted(self.users)})"


#: The security of a cluster: of its only listener, or of several by name.
GivenSecurity = str | Security | Mapping[str, str | Security] | None


def listeners_of(given: GivenSecurity) -> dict[str, Security]:
    """Return the listeners by name; the first one is the default for clients.

    Raises:
        ConfigError: a setting is wrong.
    """
    named = given if isinstance(given, Mapping) else {ONLY_LISTENER: given or "PLAINTEXT"}
    if not named:
        raise ConfigError("a cluster needs at least one listener")
    return {name: value if isinstance(value, Security) else Security(value) for name, value in named.items()}


class UserCredentials:
    """The SCRAM credentials of a cluster's users; all brokers share them. Thread: loop."""

    def __init__(self, listeners: Mapping[str, Security]) -> None:
        self._scram: dict[str, dict[str, ScramCredential]] = {}
        for security in listeners.values():
            if security.uses_sasl:
                for user, password in security.users.items():
                    for mechanism in scram.HASHES:
                        self.set_scram(user, mechanism, _credential(user, mechanism, password))

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        return self._scram.get(user, {}).get(mechanism)

    def scram_users(self) -> dict[str, dict[str, ScramCredential]]:
        """Return the credentials of all users, by mechanism."""
        return {user: dict(credentials) for user, credentials in sorted(self._scram.items())}

    def set_scram(self, user: str, mechanism: str, credential: ScramCredential) -> None:
        self._scram.setdefault(user, {})[mechanism] = credential

    def delete_scram(self, user: str, mechanism: str) -> bool:
        """Delete a credential; return whether there was one."""
        credentials = self._scram.get(user, {})
        found = credentials.pop(mechanism, None) is not None
        if not credentials:
            self._scram.pop(user, None)
        return found


def _credential(user: str, mechanism: str, password: str) -> ScramCredential:
    salt = f"salt of {user}".encode()  # the same in each run, as all of an embedded cluster
    iterations = scram.MIN_ITERATIONS
    salted = scram.salted_password(mechanism, password, salt, iterations)
    return scram.credential(mechanism, salted, salt, iterations)
