"""The names of clients with certificates (Java: SslPrincipalMapper, DefaultKafkaPrincipalBuilder)."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from pykclient.errors import ConfigError
from pykclient.testing.server.request_channel import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Callable

_DEFAULT: Final = "DEFAULT"
_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_SPLITTER: Final = re.compile(r"\s*(DEFAULT|RULE:(?:\\.|[^\\/])*/(?:\\.|[^\\/])*/[LU]?)\s*(?:,\s*|$)")
#: An escaped character or a reference to a group in the replacement of a rule.
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d)")

_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


class SslPrincipalMapper:
    """Maps the distinguished names of certificates to names of users, by Kafka's rules. Thread: any."""

    __slots__ = ("_rules",)

    def __init__(self, rules: str) -> None:
        """Parse rules such as ``RULE:^CN=(.*?),.*$/$1/L, DEFAULT``.

        Raises:
            ConfigError: a rule is not valid.
        """
        self._rules: list[tuple[re.Pattern[str], str, str] | None] = []  # None: the name as it is
        rest = rules.strip()
        while rest:
            found = _SPLITTER.match(rest)
            if found is None:
                raise ConfigError(f"ssl.principal.mapping.rules: {rest!r} is no rule, nor DEFAULT")
            self._rules.append(None if found[1] == _DEFAULT else _parsed(found[1]))
            rest = rest[found.end() :]

    def name_of(self, distinguished_name: str) -> str | None:
        """Return the name of the first rule that applies; None if there is none, and the client is refused."""
        for rule in self._rules:
            if rule is None:
                return distinguished_name
            pattern, replacement, case = rule
            if pattern.fullmatch(distinguished_name):
                return _CASES[case](pattern.sub(partial(_expanded, replacement), distinguished_name))
        return None


def _parsed(rule: str) -> tuple[re.Pattern[str], str, str]:
    found = _RULE.fullmatch(rule)
    assert found is not None, "the splitter has the same form"
    try:
        return re.compile(found[1]), found[2], found[3]
    except re.error as error:
        raise ConfigError(f"ssl.principal.mapping.rules: {found[1]!r} is no regular expression: {error}") from error


def _expanded(replacement: str, match: re.Match[str]) -> str:
    """Return the replacement with the match's groups. A reference to a group that does not exist stays as it is."""

    def expand(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1]
        number = int(found[2])
        return (match[number] or "") if number <= match.re.groups else found[0]

    return _REFERENCE.sub(expand, replacement)


class SslSession:
    """The session of a client that authenticated with a certificate, or with none. Thread: loop."""

    __slots__ = ("_certificate", "_mapper", "_user")

    expiry_ms: int | None = None
    uses_token: bool = False

    def __init__(self, certificate: Callable[[], bytes | None], mapper: SslPrincipalMapper) -> None:
        """Create the session. ``certificate`` returns the client's, once the handshake is complete."""
        self._certificate = certificate
        self._mapper = mapper
        self._user: str | None = None

    @property
    def user(self) -> str | None:
        """The name of the client; None if no rule applies to its certificate."""
        if self._user is None:
            der = self._certificate()
            if der is None:
                self._user = ANONYMOUS.partition(":")[2]
            else:
                from cryptography import x509

                self._user = self._mapper.name_of(x509.load_der_x509_certificate(der).subject.rfc4514_string())
        return self._user
