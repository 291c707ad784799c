"""A network client on real sockets, with its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pykclient.clock import SYSTEM_CLOCK
from pykclient.config.producer_config import ProducerConfig
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.network.client_request import ClientResponse
from pykclient.network.client_utils import create_network_client, parse_and_validate_addresses
from pykclient.network.cluster_connection_states import ApiVersions
from pykclient.network.metadata import Metadata
from pykclient.network.network_client import NetworkClient


class Client:
    """A network client and its parts."""

    def __init__(self, bootstrap_servers: str, **config: object) -> None:
        settings = ProducerConfig({"bootstrap.servers": bootstrap_servers, **config})
        self.metrics = Metrics()
        self.api_versions = ApiVersions()
        self.metadata = Metadata(100, 1_000, 300_000, LogContext())
        self.metadata.bootstrap(parse_and_validate_addresses(settings["bootstrap.servers"]))
        self.network: NetworkClient = create_network_client(
            settings, "test", self.metrics, "test", LogContext(), self.api_versions, self.metadata, 5
        )

    def poll_until(self, condition: Callable[[], bool], timeout_ms: int = 30_000) -> list[ClientResponse]:
        deadline_ms = SYSTEM_CLOCK.now_ms() + timeout_ms
        responses: list[ClientResponse] = []
        while not condition():
            now_ms = SYSTEM_CLOCK.now_ms()
            assert now_ms < deadline_ms, self.network.connection_report()
            responses += self.network.poll(100, now_ms)
        return responses

    def bootstrap(self) -> None:
        self.poll_until(lambda: not self.metadata.fetch().is_bootstrap_configured)


@contextmanager
def client(bootstrap_servers: str, **config: object) -> Iterator[Client]:
    made = Client(bootstrap_servers, **config)
    try:
        yield made
    finally:
        made.network.close()
