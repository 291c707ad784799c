"""Java's ``sasl.jaas.config``: a login module with its options, in the format of JAAS files (Java: JaasConfig)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pykclient.config.config_def import Password
from pykclient.errors import ConfigError

KEY: Final = "sasl.jaas.config"

#: The login modules, and the mechanisms that they are for.
MODULES: Final[dict[str, tuple[str, ...]]] = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
    "com.sun.security.auth.module.Krb5LoginModule": ("GSSAPI",),
    "software.amazon.msk.auth.iam.IAMLoginModule": ("AWS_MSK_IAM",),
}

#: Databricks' name for Java packages that its Kafka client brings along.
_SHADED: Final = "kafkashaded."

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")

_CLASS = re.compile(r"(?:[a-z_]\w*\.){2,}[A-Z]\w*", re.ASCII)
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<symbol>[=;])
    | (?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class JaasEntry(NamedTuple):
    """A login module and its options. Its repr shows no values, because some are secrets."""

    module: str
    options: dict[str, str]

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return MODULES[self.module]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module}, {sorted(self.options)})"


def parse_jaas_config(value: Password) -> JaasEntry:
    """Return the entry of a ``sasl.jaas.config``.

    Raises:
        ConfigError: the text is malformed, or names an unknown login module. The error shows no values.
    """
    tokens = _tokens(value.value)
    if not tokens:
        raise _invalid("it is empty")
    module = tokens.pop(0)
    name = module.text.removeprefix(_SHADED)
    if module.is_symbol or module.is_quoted:
        raise _invalid("it must begin with the name of a login module")
    if name not in MODULES:
        # A word that is not the name of a class may be a password in the wrong place.
        found = f"the login module {name} is unknown" if _CLASS.fullmatch(name) else "it names no login module"
        form = "; leave out KafkaClient { and }, which belong to files" if name == "KafkaClient" else ""
        raise _invalid(f"{found}{form}; the client knows {', '.join(MODULES)}")
    if not tokens or tokens[0].is_symbol or tokens.pop(0).text.lower() not in _FLAGS:
        raise _invalid("the name of the login module must be followed by 'required'")
    options: dict[str, str] = {}
    while tokens and not tokens[0].ends_entry:
        option = tokens.pop(0)
        if option.is_symbol or len(tokens) < 2 or not tokens[0].is_assignment or tokens[1].is_symbol:
            place = f"after {next(reversed(options))}=..." if options else "after 'required'"
            raise _invalid(
                f"options are name=value, separated by spaces, but something else stands {place}; "
                "values with spaces need quotes"
            )
        if option.text in options:
            raise _invalid(f"an option is given twice, the second time after {next(reversed(options))}=...")
        options[option.text] = tokens[1].text
        del tokens[:2]
    if not tokens:
        raise _invalid("a semicolon is missing at its end")
    if len(tokens) > 1:
        raise _invalid("there is something after the semicolon; only one login module is allowed")
    return JaasEntry(name, options)


class _Token(NamedTuple):
    kind: str
    text: str

    @property
    def is_symbol(self) -> bool:
        return self.kind == "symbol"

    @property
    def is_quoted(self) -> bool:
        return self.kind == "quoted"

    @property
    def is_assignment(self) -> bool:
        return self.is_symbol and self.text == "="

    @property
    def ends_entry(self) -> bool:
        return self.is_symbol and self.text == ";"


def _tokens(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _invalid("a quote is not closed")
        position = match.end()
        if match.lastgroup is not None:
            token = match.group()
            if match.lastgroup == "quoted":
                token = _ESCAPE.sub(_unescaped, token[1:-1])
            tokens.append(_Token(match.lastgroup, token))
    return tokens


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)


def _invalid(problem: str) -> ConfigError:
    return ConfigError(f"{KEY} = [hidden]: {problem}", key=KEY)
