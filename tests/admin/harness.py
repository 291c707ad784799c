"""Admin clients on brokers that a test plays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pykclient.admin import Admin, KafkaAdminClient
from pykclient.admin.admin_base import AdminBase
from pykclient.admin.admin_calls import AdminMetadata
from pykclient.config.admin_config import AdminClientConfig
from pykclient.log_context import LogContext
from pykclient.network.client_request import ClientResponse
from pykclient.network.environment import SystemEnvironment
from pykclient.protocol.messages.metadata import MetadataResponse
from tests.support.mock_client import LOST as LOST, SILENT as SILENT, MockClient, ScriptedBrokers
from tests.support.mock_clock import MockClock

#: ``answer(broker id, request)`` returns the response, LOST or SILENT.
Answer = Callable[[int, Any], Any]

C = TypeVar("C", bound=AdminBase)


def cluster(controller: int = 1, brokers: Sequence[int] = (1, 2, 3), **more: Any) -> MetadataResponse:
    """Return the metadata of a cluster."""
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=id, host=f"host{id}", port=9092) for id in brokers],
        controller_id=controller,
        cluster_id="cluster",
        **more,
    )


class PlayedBrokers(ScriptedBrokers):
    """Brokers that are played by one function. A poll with nothing to receive takes the time that it may wait."""

    def __init__(self, clock: MockClock, metadata: AdminMetadata, answer: Answer) -> None:
        super().__init__(clock, metadata)
        self.mock_clock = clock
        self._answer = answer

    def answer(self, node_id: int, message: Any) -> Any:
        return self._answer(node_id, message)

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        self.ask_again(now_ms)
        assert self.metadata is not None
        if not self.responses and timeout_ms > 0 and not self.metadata.update_requested:
            self.mock_clock.advance(timeout_ms)
        return MockClient.poll(self, 0, self.mock_clock.now_ms())  # the script has been asked


def played(
    answer: Answer, kind: type[C], metadata: MetadataResponse | None = None, **settings: Any
) -> tuple[C, PlayedBrokers]:
    """Return an admin client and the brokers that it talks to."""
    clock = MockClock()
    if "bootstrap_controllers" not in settings:
        settings["bootstrap_servers"] = "localhost:9092"
    config = AdminClientConfig(**settings)
    admin_metadata = AdminMetadata(config, LogContext(""))
    admin_metadata.bootstrap([("localhost", 9092)])
    brokers = PlayedBrokers(clock, admin_metadata, answer)
    brokers.update_metadata(metadata or cluster())
    client = kind.of_client(config, brokers, admin_metadata, SystemEnvironment(clock))
    return client, brokers


def typed(answer: Answer, **more: Any) -> tuple[Admin, PlayedBrokers]:
    return played(answer, Admin, **more)


def as_kafka_python(answer: Answer, **more: Any) -> tuple[KafkaAdminClient, PlayedBrokers]:
    return played(answer, KafkaAdminClient, **more)
