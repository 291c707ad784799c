"""The configuration of a command's clients: from a file, the environment, and the command line.

Later sources win: the default file, ``PYKCLIENT_*`` in the environment, the file that ``--config`` names, ``-X``, and
``--bootstrap-servers``. With ``--config``, the default file is not read. A file may have keys for several clients; each
client takes those that it knows.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pykclient.cli.problems import UsageError
from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from pykclient.config.abstract_config import AbstractConfig
    from pykclient.config.config_def import ConfigDef

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_END_OF_KEY = re.compile(r"(?:\\.|[^\\=:\s])*")
_SEPARATOR = re.compile(r"\s*[=:]?\s*")


def parse_properties(text: str) -> dict[str, str]:
    r"""Return the keys and values of a file.

    A line that ends with an odd number of backslashes continues on the next one. Lines that begin with ``#`` or ``!``
    are comments. ``=``, ``:`` or white space ends a key, unless it has a backslash before it. Java gives a key alone an
    empty value; here it is an error, as the line may be a password.

    Raises:
        ValueError: a line has only one word, or there are no four hexadecimal digits after ``\u``.
    """
    found: dict[str, str] = {}
    lines = enumerate(re.split(r"\r\n|\r|\n", text), 1)
    for number, raw in lines:
        line = raw.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            line = line[:-1] + next(lines, (0, ""))[1].lstrip(" \t\f")
        key = _END_OF_KEY.match(line)
        assert key is not None  # the pattern matches an empty text as well
        if key.end() == len(line.rstrip()):
            raise ValueError(f"line {number} has no value; write key=value (the line is not shown)")
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        found[_unescaped(key[0])] = _unescaped(line[separator.end() :])
    return found


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        escape = found[1]
        if escape == "u":
            raise ValueError(r"there must be four hexadecimal digits after \u")
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _NAMED.get(escape, escape)

    return _ESCAPE.sub(replaced, text)


_PREFIX: Final = "PYKCLIENT_"
#: Variables that are no settings of a client: the file's path, and those of the library, its build and its tests.
_NO_SETTINGS: Final = frozenset({"CONFIG", "IMPL", "BUILD", "NO_EPOLL", "TEST_CACHE"})
_DEFAULT_FILES: Final = ("config.toml", "config.properties")
_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def merged(path: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of all sources by dotted name.

    A SASL password that is missing is asked for, if there is a terminal. ``path`` is the file of ``--config``, which
    wins over the environment. Without one, the default file is that of ``PYKCLIENT_CONFIG`` or of the user's
    configuration folder; the environment wins over it.

    Raises:
        ConfigError: no client has a key of this name, or the file is not readable.
        UsageError: a secret stands on the command line.
    """
    found: dict[str, str] = {"bootstrap.servers": "localhost:9092"}
    if path is None:
        found.update(_named(_of_file(_default_path()), "the configuration file"))
    found.update(_named(_of_environment(), "the environment"))
    found.update(_named(_of_file(path), "the configuration file"))
    for key in (explicit := _named(given, "-X")):
        if is_secret(key):
            variable = _PREFIX + key.upper().replace(".", "_")
            raise UsageError(
                f"{key} is a secret, which others can see on a command line; put it in a file for --config, "
                f"or in {variable}" + (", or leave it out and type it when asked" if key == "sasl.password" else "")
            )
    found.update(explicit)
    if _lacks_password(found):
        found["sasl.password"] = _asked_for(found.get("sasl.username", ""))
    return found


def for_client(client: type[AbstractConfig], *sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a client supports, by dotted name. ``sources`` begin with the user's.

    The following sources are the command's: defaults, which the user's win over, and overrides, which win over all.
    """
    definition = client.DEFINITION
    user, defaults, *overrides = sources
    chosen = {key: value for key, value in defaults.items() if key in definition.keys}
    chosen.update({key: value for key, value in user.items() if key in definition.keys or key in definition.foreign})
    if "request.timeout.ms" not in user and "default.api.timeout.ms" in user:
        chosen.pop("request.timeout.ms", None)
    for override in overrides:
        chosen.update({str(key).replace("_", "."): value for key, value in override.items()})
    return chosen


def assignments(texts: Iterable[str]) -> dict[str, str]:
    """Return the settings in texts such as ``client.id=me``.

    Raises:
        UsageError: a text has no name or no ``=``.
    """
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key.strip() or not equals:
            raise UsageError(f"Invalid value for -X: {text!r} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def is_secret(key: str) -> bool:
    """Return True for the dotted name of a password, a private key or a client's secret."""
    from pykclient.config.config_def import Type

    return any(definition.keys[key].type == Type.PASSWORD for definition in _definitions() if key in definition.keys)


def _definitions() -> Iterator[ConfigDef]:
    """Yield the tables of all clients. Each is loaded only if the ones before it have not sufficed."""
    from pykclient.config.consumer_config import ConsumerConfig

    yield ConsumerConfig.DEFINITION
    from pykclient.config.producer_config import ProducerConfig

    yield ProducerConfig.DEFINITION
    from pykclient.config.admin_config import AdminClientConfig

    yield AdminClientConfig.DEFINITION


def _named(given: Mapping[str, str], source: str) -> dict[str, str]:
    """Return settings under their canonical names.

    Raises:
        ConfigError: no client has a key of this name.
    """
    found = {}
    for name, value in given.items():
        found[_canonical(name, source)] = value
    return found


def _canonical(name: str, source: str) -> str:
    problems: list[ConfigError] = []
    for definition in _definitions():
        try:
            return definition.canonical(name)
        except ConfigError as error:
            problems.append(error)
    problem = next((error for error in problems if "did you mean" in str(error)), problems[0])
    raise ConfigError(f"{problem} (in {source})", key=name) from problem


def _of_environment() -> dict[str, str]:
    return {
        name.removeprefix(_PREFIX).lower().replace("_", "."): value
        for name, value in os.environ.items()
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX) not in _NO_SETTINGS
    }


def _of_file(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if path.endswith(".toml"):
            return _of_toml(text)

        return parse_properties(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error}") from error


def _default_path() -> str | None:
    """Return the file that is read without ``--config``, if there is one."""
    if given := os.environ.get(f"{_PREFIX}CONFIG"):
        return given
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    paths = [os.path.join(folder, "pykclient", name) for name in _DEFAULT_FILES]
    return next((found for found in paths if os.path.isfile(found)), None)


def _of_toml(text: str) -> dict[str, str]:
    """Return the settings of a TOML file, in which ``[sasl]`` with ``username`` is ``sasl.username``.

    Raises:
        ValueError: it is not TOML.
    """
    import tomllib

    found: dict[str, str] = {}

    def add(prefix: str, table: Mapping[str, Any]) -> None:
        for name, value in table.items():
            key = f"{prefix}{name}"
            if isinstance(value, dict):
                add(f"{key}.", value)
            elif isinstance(value, list):
                found[key] = ",".join(map(str, value))
            else:
                found[key] = str(value).lower() if isinstance(value, bool) else str(value)

    add("", tomllib.loads(text))
    return found


def _lacks_password(found: Mapping[str, str]) -> bool:
    return (
        found.get("security.protocol", "").upper().startswith("SASL_")
        and found.get("sasl.mechanism", "").upper() in _PASSWORD_MECHANISMS
        and bool(found.get("sasl.username"))
        and not {"sasl.password", "sasl.jaas.config"} & found.keys()
    )


def _asked_for(user: str) -> str:
    if not sys.stdin.isatty():
        raise ConfigError(
            f"there is no password for the SASL user {user!r}: set sasl.password in a file for --config, or "
            f"{_PREFIX}SASL_PASSWORD in the environment",
            key="sasl.password",
        )
    import click

    typed: str = click.prompt(f"Password of {user}", hide_input=True, err=True)
    return typed
