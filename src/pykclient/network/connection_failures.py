"""Why nodes cannot be reached, kept for error messages upstairs."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple

from pykclient.network.cluster import Cluster
from pykclient.types import Node

_ADVICE = {
    errno.ECONNREFUSED: "nothing listens there",
    errno.EHOSTUNREACH: "check the address and the route",
    errno.ENETUNREACH: "check the address and the route",
}


class ConnectionFailure(NamedTuple):
    """The last failure of one address."""

    address: str
    reason: str


def shown_address(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reason_of(error: BaseException) -> str:
    """An error of the system or of the protocol in words."""
    if isinstance(error, OSError) and error.strerror:
        advice = _ADVICE.get(error.errno or 0)
        return f"{error.strerror}, {advice}" if advice else error.strerror
    return str(error) or type(error).__name__


class ConnectionFailures:
    """The last failure of each address that does not work now.

    The dict is replaced, never changed, so that another thread can go through it. Thread: owner writes, any reads.
    """

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures: dict[tuple[str, int], ConnectionFailure] = {}

    def record(self, node: Node, reason: str, ip: str | None = None) -> bool:
        """Note a failure; whether it differs from the last one, and so is worth a line in the log."""
        where = shown_address(node.host, node.port)
        if ip is not None and ip != node.host:
            where += f" ({ip})"
        failure = ConnectionFailure(where, reason)
        previous = self._failures.get((node.host, node.port))
        self._failures = {**self._failures, (node.host, node.port): failure}
        return failure != previous

    def clear(self, node: Node) -> None:
        """The address works."""
        gone = node.host, node.port
        if gone in self._failures:
            self._failures = {address: failure for address, failure in self._failures.items() if address != gone}

    def unreachable(self) -> list[ConnectionFailure]:
        return list(self._failures.values())

    def report(self, cluster: Cluster, bootstrap: Sequence[tuple[str, int]]) -> str:
        """One sentence for an error message, such as ``2 of 3 bootstrap servers could not be reached (...)``.

        Empty when every known node can be reached, or was not tried.
        """
        failures = self._failures
        addresses = {(node.host, node.port) for node in cluster.nodes}
        failed = {address: failure for address, failure in failures.items() if address in addresses}
        kind = "bootstrap servers" if cluster.is_bootstrap_configured else "brokers"
        if not failed:
            addresses, kind = set(bootstrap), "bootstrap servers"
            failed = {address: failure for address, failure in failures.items() if address in addresses}
        if not failed:
            return ""
        details = "; ".join(f"{address}: {reason}" for address, reason in failed.values())
        report = f"{len(failed)} of {len(addresses)} {kind} could not be reached ({details})"
        if kind == "brokers" and not failed.keys() & set(bootstrap):
            report += (
                ". The bootstrap servers gave these addresses: "
                "check that the brokers' advertised.listeners can be reached from here"
            )
        return report
