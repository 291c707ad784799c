"""Host names to addresses (Java: HostResolver, DefaultHostResolver)."""

from __future__ import annotations

import socket
import threading
from typing import Final, Protocol

#: How long a name may take before the caller goes on without it.
DNS_TIMEOUT_MS: Final = 10_000


class HostResolver(Protocol):
    """Asks the DNS. Thread: any."""

    def resolve(self, host: str) -> list[str]:
        """All addresses of ``host`` as numbers, in the order to try them; OSError where there is none."""


class DefaultHostResolver:
    """The system's resolver, with a bound on the time it may take.

    The system's call cannot be given a timeout, and can hang for half a minute where a DNS server is unreachable; so
    it runs on a thread of its own that is left behind when it is late. IPv4 addresses come first, as in Java, since
    brokers on a developer's machine mostly listen there.
    """

    __slots__ = ("_timeout_ms",)

    def __init__(self, timeout_ms: int = DNS_TIMEOUT_MS) -> None:
        self._timeout_ms = timeout_ms

    def resolve(self, host: str) -> list[str]:
        if is_numeric(host):
            return [host]
        outcome: list[list[str] | OSError] = []

        def ask() -> None:
            try:
                outcome.append(_ask_system(host))
            except (OSError, UnicodeError) as error:
                outcome.append(error if isinstance(error, OSError) else OSError(f"{host!r} is not a host name"))

        thread = threading.Thread(target=ask, name=f"kafka-dns | {host}", daemon=True)
        thread.start()
        thread.join(self._timeout_ms / 1000)
        if not outcome:
            raise TimeoutError(f"no answer from the DNS within {self._timeout_ms / 1000:g} s")
        if isinstance(outcome[0], OSError):
            raise outcome[0]
        return outcome[0]


def is_numeric(host: str) -> bool:
    """Whether ``host`` is an address already."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.partition("%")[0])
        except (OSError, UnicodeError):
            continue
        return True
    return False


def canonical_names(ip: str) -> str:
    """The name that belongs to an address, or the address where it has none."""
    try:
        return socket.getnameinfo((ip, 0), socket.NI_NAMEREQD)[0]
    except OSError:
        return ip


def _ask_system(host: str) -> list[str]:
    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    answers.sort(key=lambda answer: answer[0] != socket.AF_INET)  # stable: otherwise in the DNS's own order
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))
