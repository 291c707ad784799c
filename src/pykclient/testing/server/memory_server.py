"""Brokers' listeners in a memory network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.testing.memory_network import MemoryNetwork, MemorySelector, MemorySocket
from pykclient.testing.server.processor import Processor

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker


class MemoryServer:
    """A processor for each broker, on the network that brokers and simulated clients use.

    Thread: loop.
    """

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self._processors: dict[int, Processor] = {}

    def open(self, broker: Broker) -> None:
        """Let peers connect to a broker at its node's address."""

        def schedule_poll() -> None:
            broker.loop.call_soon(processor.poll, 0)

        def accept(sock: MemorySocket) -> None:
            processor.accept(broker, sock, sock.host, sock.remote_party)

        selector = MemorySelector(self._network, broker.party, on_news=schedule_poll)
        processor = Processor(broker.loop, selector, broker.log_context)
        self._network.listen(broker.node.host, broker.node.port, broker.party, accept)
        self._processors[broker.id] = processor

    def close(self, broker: Broker, *, reset: bool) -> None:
        """Refuse new connections and close the others; with ``reset``, as if the process had died."""
        processor = self._processors.pop(broker.id, None)
        if processor is not None:
            self._network.unlisten(broker.node.host, broker.node.port)
            processor.close_connections(broker, reset=reset)

    def resume(self, broker: Broker) -> None:
        """Handle the requests that arrived while the broker was paused."""
        processor = self._processors.get(broker.id)
        if processor is not None:
            processor.serve_all(broker)
