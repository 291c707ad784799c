"""Connections through a SOCKS5 or HTTP proxy: the setting, and the exchange with the proxy as a part of connecting."""

from __future__ import annotations

import base64
from collections.abc import Callable
from importlib.util import find_spec
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import h11
from socksio import socks5
from socksio.exceptions import SOCKSError

from pykclient.config.config_def import Password
from pykclient.errors import ConfigError, ProxyAuthenticationError
from pykclient.network.failures import reason_of, shown_address, shown_text
from pykclient.network.host_resolver import HostResolver, Lookup
from pykclient.version import __version__

#: The most bytes of a response to CONNECT, of which proxies send a few hundred.
_MOST_RESPONSE_BYTES: Final = 32 * 1024
#: The longest part of a response's text in messages.
_MOST_SHOWN: Final = 200
_TELL_USER: Final = "To mend it: put the right user and password into proxy.url, as in socks5://user:password@host:port"
#: The reasons of a SOCKS5 proxy, with what to do.
_SOCKS5_REASONS: Final = {
    1: "a general failure. To mend it: see the proxy's log",
    2: "its rules do not allow it. To mend it: allow the broker's address and port in the proxy's rules",
    3: "the broker's network is unreachable from the proxy. To mend it: check the proxy's routes",
    4: "the broker's host is unknown or unreachable. To mend it: check that the proxy can resolve and reach it",
    5: "nothing listens at the broker's address. To mend it: check the broker, and the address that it advertises",
    6: "the connection took too many hops. To mend it: check the proxy's routes",
    7: "it does not support CONNECT. To mend it: use a proxy for TCP connections",
    8: "it does not support this kind of address. To mend it: use host names for brokers",
}


class Tunnel(Protocol):
    """One exchange with a proxy. Errors do not name the proxy. Thread: io."""

    @property
    def complete(self) -> bool:
        """True if the connection leads to the broker now."""

    @property
    def wanted_bytes(self) -> int:
        """The maximum number of bytes to read next; later ones may be the broker's."""

    def start(self) -> bytes:
        """Return the first bytes to send."""

    def receive(self, data: bytes) -> bytes:
        """Process received bytes; return those to send next, if any.

        Raises:
            ProxyAuthenticationError: the proxy refuses the credentials, or wants some.
            ConnectionError: the proxy refuses for another reason, or does not speak the protocol.
        """


class Socks5Tunnel:
    """An exchange with a SOCKS5 proxy, which looks up the broker's name. Thread: io."""

    def __init__(self, host: str, port: int, user: str | None, password: str | None) -> None:
        self._host = host
        self._port = port
        self._credentials = None if user is None or password is None else (user.encode(), password.encode())
        self._protocol = socks5.SOCKS5Connection()
        self._received = b""
        self.complete = False
        self.wanted_bytes = 2

    def start(self) -> bytes:
        methods = [socks5.SOCKS5AuthMethod.NO_AUTH_REQUIRED]
        if self._credentials is not None:
            methods.append(socks5.SOCKS5AuthMethod.USERNAME_PASSWORD)
        self._protocol.send(socks5.SOCKS5AuthMethodsRequest(methods))
        return self._protocol.data_to_send()

    def receive(self, data: bytes) -> bytes:
        self._received += data
        is_reply = self._protocol.state == socks5.SOCKS5State.CLIENT_AUTHENTICATED
        self.wanted_bytes = (_reply_size(self._received) if is_reply else 2) - len(self._received)
        if self.wanted_bytes > 0:
            return b""
        message, self._received = self._received, b""
        self.wanted_bytes = 2
        try:
            reply = self._protocol.receive_data(message)
            if isinstance(reply, socks5.SOCKS5AuthReply):
                return self._chosen(reply.method)
            if isinstance(reply, socks5.SOCKS5UsernamePasswordReply):
                if not reply.success:
                    raise ProxyAuthenticationError(f"it refuses the user or the password. {_TELL_USER}")
                return self._connect()
        except SOCKSError as error:
            raise _no_socks(message) from error
        code = reply.reply_code.value[0]
        if code:
            raise _refused(self._host, self._port, _SOCKS5_REASONS.get(code, f"code {code}"))
        self.complete = True
        return b""

    def _chosen(self, method: socks5.SOCKS5AuthMethod) -> bytes:
        if method == socks5.SOCKS5AuthMethod.NO_AUTH_REQUIRED:
            return self._connect()
        if method != socks5.SOCKS5AuthMethod.USERNAME_PASSWORD or self._credentials is None:
            wants = "a user and a password" if self._credentials is None else "another kind of authentication"
            raise ProxyAuthenticationError(f"it wants {wants}. {_TELL_USER}")
        self._protocol.send(socks5.SOCKS5UsernamePasswordRequest(*self._credentials))
        return self._protocol.data_to_send()

    def _connect(self) -> bytes:
        self.wanted_bytes = 4
        host = _sendable(self._host)
        if len(host) > 255:
            raise ConnectionError(f"the broker's host name is too long for SOCKS5: {len(host)} bytes")
        command = socks5.SOCKS5CommandRequest.from_address(socks5.SOCKS5Command.CONNECT, (host, self._port))
        self._protocol.send(command)
        return self._protocol.data_to_send()


def _sendable(host: str) -> str:
    """Return a broker's host as proxies understand it, in ASCII.

    Raises:
        ConnectionError: it is not valid.
    """
    host = host.partition("%")[0]  # without the zone of an IPv6 address, which means nothing elsewhere
    try:
        found = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        found = ""
    if not found or not found.isprintable() or " " in found:
        raise ConnectionError(f"the broker's host name {host!r} is not valid")
    return found


def _reply_size(reply: bytes) -> int:
    """Return the size of a reply to a command, or how much of it tells the size.

    Raises:
        ConnectionError: it is no reply of SOCKS5.
    """
    if len(reply) < 4:
        return 4
    if reply[0] != 5 or reply[3] not in (1, 3, 4):
        raise _no_socks(reply)
    if reply[3] == 3:
        return 5 if len(reply) < 5 else 7 + reply[4]
    return 10 if reply[3] == 1 else 22


def _no_socks(received: bytes) -> ConnectionError:
    return ConnectionError(
        f"it does not speak SOCKS5 (it answers {received[:8].hex(' ')}). To mend it: check the address, the port and "
        "the scheme of proxy.url"
    )


def _refused(host: str, port: int, reason: str) -> ConnectionError:
    return ConnectionError(f"it does not connect to {shown_address(host, port)}: {reason}")


class HttpTunnel:
    """An exchange with an HTTP proxy (CONNECT), which looks up the broker's name. Thread: io."""

    wanted_bytes: Final = 4096

    def __init__(self, host: str, port: int, user: str | None, password: str | None) -> None:
        self._host = host
        self._port = port
        self._credentials = None if user is None else f"{user}:{password or ''}".encode()
        self._protocol = h11.Connection(our_role=h11.CLIENT, max_incomplete_event_size=_MOST_RESPONSE_BYTES)
        self._received_bytes = 0
        self.complete = False

    def start(self) -> bytes:
        target = shown_address(_sendable(self._host), self._port)
        headers = [("Host", target), ("User-Agent", f"pykclient/{__version__}")]
        if self._credentials is not None:
            headers.append(("Proxy-Authorization", f"Basic {base64.b64encode(self._credentials).decode()}"))
        return self._protocol.send(h11.Request(method="CONNECT", target=target, headers=headers)) or b""

    def receive(self, data: bytes) -> bytes:
        self._received_bytes += len(data)
        try:
            self._protocol.receive_data(data)
            event = self._protocol.next_event()
            while isinstance(event, h11.InformationalResponse) and self._received_bytes <= _MOST_RESPONSE_BYTES:
                event = self._protocol.next_event()
        except h11.RemoteProtocolError as error:
            problem = shown_text(str(error), _MOST_SHOWN)
            raise ConnectionError(
                f"it does not speak HTTP ({problem}). To mend it: check the address, port and scheme of proxy.url"
            ) from error
        if isinstance(event, h11.Response):
            self._answered(event)
        elif self._received_bytes > _MOST_RESPONSE_BYTES:
            raise ConnectionError(f"its response to CONNECT has more than {_MOST_RESPONSE_BYTES} bytes")
        return b""

    def _answered(self, response: h11.Response) -> None:
        status = response.status_code
        said = f"{status} {shown_text(bytes(response.reason).decode('latin-1'), _MOST_SHOWN)}".strip()
        if status == 407:
            wants = "refuses the user or the password" if self._credentials is not None else "wants a user and password"
            raise ProxyAuthenticationError(f"it {wants} ({said}). {_TELL_USER.replace('socks5:', 'http:')}")
        if not 200 <= status < 300:
            remedy = "allow the broker's address and port in the proxy's rules, and check that the proxy can reach it"
            raise _refused(self._host, self._port, f"{said}. To mend it: {remedy}")
        rest = self._protocol.trailing_data[0]
        if rest:
            raise ConnectionError(f"it sent {len(rest)} bytes behind its response, before the broker was asked")
        self.complete = True


KEY: Final = "proxy.url"
#: The scheme of a URL, and the port without one.
_PORTS: Final = {"socks5": 1080, "socks5h": 1080, "http": 8080}
_PACKAGES: Final = ("h11", "socksio")


class ProxyConfig(NamedTuple):
    """A proxy that connects to brokers by name. Its repr shows no credentials. Thread: any."""

    scheme: str
    host: str
    port: int
    user: str | None
    password: str | None

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
