"""The first steps of a client on an event loop: looking up the bootstrap servers, and reaching one of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from pykclient.errors import DisconnectError, KafkaTimeoutError
from pykclient.network.client_utils import HostLookups, parse_addresses, resolver_for

if TYPE_CHECKING:
    from pykclient.aio.loop_waits import LoopWaits
    from pykclient.clock import Clock
    from pykclient.config.abstract_config import AbstractConfig
    from pykclient.network.environment import Environment
    from pykclient.network.metadata import Metadata

#: A bootstrap server that refuses connections may be starting, or have further addresses: try for this long.
_PATIENCE_MS: Final = 1_000


class Reach(Protocol):
    """The part of a network client that knows which addresses could not be reached. Thread: owner."""

    @property
    def is_unreachable(self) -> bool: ...

    def connection_report(self) -> str: ...


async def look_up_bootstrap_servers(
    loop: asyncio.AbstractEventLoop, config: AbstractConfig, environment: Environment, key: str = "bootstrap.servers"
) -> dict[str, list[str] | OSError]:
    """Return the addresses of each host in a setting, or the error of its lookup.

    Numeric addresses need no lookup. The others are looked up by the resolver that all clients of the process share, on
    its own threads, because the system's call has no timeout; nothing here waits for them but this coroutine.
    """
    now_ms = environment.clock.now_ms
    canonical = config["client.dns.lookup"] == "resolve_canonical_bootstrap_servers_only"
    news = asyncio.Event()

    def on_done() -> None:  # on a thread of the resolver
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(news.set)

    hosts = dict.fromkeys(host for host, _ in parse_addresses(config[key], key))
    resolver = resolver_for(config, environment.host_resolver)
    lookups = HostLookups(hosts, resolver, on_done, canonical, now_ms())
    while (wait_ms := lookups.wait_ms(now_ms())) > 0:
        timer = loop.call_later(wait_ms / 1000, news.set)
        try:
            await news.wait()
        finally:
            timer.cancel()
        news.clear()
    return lookups.outcomes(now_ms())


async def await_bootstrap(
    metadata: Metadata,
    client: Reach,
    clock: Clock,
    waits: LoopWaits,
    timeout_ms: int,
    timeout_key: str,
    raise_failure: Callable[[], None] | None = None,
) -> None:
    """Wait until a bootstrap server has described the cluster. ``timeout_key`` is the setting of ``timeout_ms``.

    ``raise_failure`` raises the error that a consumer's turn has taken out of the metadata, if there is one.

    Raises:
        KafkaConnectionError: no bootstrap server can be reached.
        KafkaTimeoutError: none has answered within ``timeout_ms``.
        AuthenticationError: the cluster refused the credentials.
    """
    start_ms = clock.now_ms()
    metadata.request_update(False)

    def is_over() -> bool:
        metadata.maybe_throw_fatal_exception()
        if not metadata.fetch().is_bootstrap_configured:
            return True
        if raise_failure is not None:
            raise_failure()
        if clock.now_ms() - start_ms >= _PATIENCE_MS and client.is_unreachable:
            addresses = ", ".join(f"{host}:{port}" for host, port in metadata.bootstrap_addresses)
            raise DisconnectError(f"Unable to bootstrap from {addresses}: {client.connection_report()}")
        return False

    if not await waits.until(is_over, timeout_ms):
        report = client.connection_report()
        text = f"no bootstrap server has answered within {timeout_ms / 1000} s ({timeout_key})"
        raise KafkaTimeoutError(f"{text}: {report}" if report else text)
