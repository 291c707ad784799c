"""The login for a client's configuration: which mechanism, with which credentials (Java: LoginManager)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykclient.config import jaas_config
from pykclient.config.config_def import Password
from pykclient.config.jaas_config import JaasEntry, parse_jaas_config
from pykclient.errors import ConfigError
from pykclient.network.authenticator import scram_formatter
from pykclient.network.authenticator.plain import MECHANISM as PLAIN
from pykclient.network.authenticator.plain import PlainLogin
from pykclient.network.authenticator.sasl_client import Login
from pykclient.network.authenticator.scram import ScramLogin

#: The mechanisms that this client knows.
MECHANISMS: Final = (PLAIN, *scram_formatter.HASHES)


def login_for(config: Mapping[str, Any]) -> Login:
    """Return the login for the ``sasl.*`` keys of a client's configuration.

    Raises:
        ConfigError: the mechanism is unknown, or its credentials are missing or contradictory.
    """
    mechanism = config["sasl.mechanism"]
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"sasl.mechanism = {mechanism!r}: it must be one of {', '.join(MECHANISMS)}", key="sasl.mechanism"
        )
    entry = _jaas_entry(config, mechanism)
    options = {} if entry is None else entry.options
    username, password = _username_and_password(config, mechanism, options)
    if mechanism == PLAIN:
        return PlainLogin(username, password)
    return ScramLogin(mechanism, username, password, is_token=options.get("tokenauth", "").lower() == "true")


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
