"""The proxy of a client: its address and credentials, and what to do in its place."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from pykclient.config.config_def import Password
from pykclient.errors import ConfigError
from pykclient.network.connection_failures import reason_of, shown_address
from pykclient.network.host_resolver import HostResolver, Lookup

if TYPE_CHECKING:
    from pykclient.network.proxy.tunnels import Tunnel

KEY: Final = "proxy.url"

#: The scheme of a URL, and the port without one.
_PORTS: Final = {"socks5": 1080, "socks5h": 1080, "http": 8080}
_PACKAGES: Final = ("h11", "socksio")


class ProxyConfig:
    """A proxy that connects to brokers by name. Its repr shows no credentials. Immutable. Thread: any."""

    __slots__ = ("host", "password", "port", "scheme", "user")

    def __init__(self, scheme: str, host: str, port: int, user: str | None, password: str | None) -> None:
        self.scheme = scheme
        self.host = host
        self.port = port
        self.user = user
        self.password = password

    @classmethod
    def parse(cls, url: str) -> ProxyConfig:
        """Return the proxy at a URL, such as ``socks5://user:password@proxy.example:1080``.

        Raises:
            ConfigError: the URL is not valid. The error does not show it, because it may contain a password.
        """
        try:
            parts = urlsplit(url.strip())
            port = parts.port
        except ValueError:  # whose text may quote a part of the password
            raise ConfigError(
                f"{KEY} = [hidden]: it is not a valid URL, or its port is not a number from 0 to 65535; special "
                "characters in the user and the password must be quoted, such as %2F for /, %23 for # and %40 for @",
                key=KEY,
            ) from None
        if parts.scheme not in _PORTS or not parts.hostname or parts.path not in ("", "/") or parts.query:
            raise ConfigError(
                f"{KEY} = [hidden]: it must be socks5://host:port or http://host:port, with user:password@ before the "
                "host if the proxy wants that",
                key=KEY,
            )
        user = None if parts.username is None else unquote(parts.username)
        password = None if parts.password is None else unquote(parts.password)
        if (user is None) != (password is None) or any(len((text or "").encode()) > 255 for text in (user, password)):
            raise ConfigError(
                f"{KEY} = [hidden]: it needs both a user and a password, of at most 255 bytes each, or none", key=KEY
            )
        scheme = "http" if parts.scheme == "http" else "socks5"
        return cls(scheme, parts.hostname, _PORTS[parts.scheme] if port is None else port, user, password)

    @property
    def name(self) -> str:
        """The proxy for messages: its kind and address."""
        return f"the {'HTTP' if self.scheme == 'http' else 'SOCKS5'} proxy {shown_address(self.host, self.port)}"

    def new_tunnel(self, host: str, port: int) -> Tunnel:
        """Return the exchange that lets the proxy connect to a broker."""
        from pykclient.network.proxy.tunnels import HttpTunnel, Socks5Tunnel

        kind = HttpTunnel if self.scheme == "http" else Socks5Tunnel
        return kind(host, port, self.user, self.password)

    def __repr__(self) -> str:
        return f"ProxyConfig({self.scheme}://{shown_address(self.host, self.port)})"


def proxy_at(url: Password) -> ProxyConfig:
    """Return the proxy at the URL of a client's configuration.

    Raises:
        ConfigError: its URL is not valid, or a package for proxies is missing.
    """
    proxy = ProxyConfig.parse(url.value)
    missing = [package for package in _PACKAGES if find_spec(package) is None]
    if missing:
        raise ConfigError(f"{KEY} needs the packages {', '.join(missing)}: pip install 'pykclient[proxy]'", key=KEY)
    return proxy


class ProxyHostResolver:
    """Returns the addresses of the proxy for every broker, because the proxy looks up brokers' names. Thread: any."""

    __slots__ = ("_proxy", "_resolver")

    def __init__(self, resolver: HostResolver, proxy: ProxyConfig) -> None:
        self._resolver = resolver
        self._proxy = proxy

    def look_up(self, host: str, on_done: Callable[[], object] | None = None, canonical: bool = False) -> Lookup:
        if canonical:
            lookup = Lookup()
            lookup.finish([host])  # only the proxy knows others
            return lookup
        return _ProxyLookup(self._resolver.look_up(self._proxy.host, on_done), self._proxy.name)


class _ProxyLookup(Lookup):
    """A lookup whose error names the proxy. Thread: any."""

    __slots__ = ("_lookup", "_name")

    def __init__(self, lookup: Lookup, name: str) -> None:
        super().__init__()
        self._lookup = lookup
        self._name = name

    @property
    def done(self) -> bool:
        return self._lookup.done

    def result(self) -> list[str]:
        try:
            return self._lookup.result()
        except OSError as error:
            raise OSError(f"the host of {self._name} cannot be resolved: {reason_of(error)}") from error

    def cancel(self) -> None:
        self._lookup.cancel()
