"""A broker that consists only of its server side, and an API whose responses a test chooses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.log_context import LogContext
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_request, parse_response
from pykclient.protocol.message import Request as RequestMessage, Response
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.testing import handlers
from pykclient.testing.config import BrokerConfig
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.faults import Faults
from pykclient.testing.handlers import Handler
from pykclient.testing.memory_network import MemoryNetwork, MemorySelector
from pykclient.testing.quotas import Quotas
from pykclient.testing.release_profiles import ReleaseProfile
from pykclient.testing.request_channel import History, Request, RequestChannel
from pykclient.testing.server.kafka_apis import KafkaApis
from pykclient.testing.server.socket_server import MemoryServer
from pykclient.types import Node
from tests.support.mock_clock import MockClock


class ServerCluster:
    """The parts of a cluster that the server side uses."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, **settings: Any) -> None:
        self.loop = EventLoop(clock)
        self.config = BrokerConfig(settings)
        self.faults = Faults(self.loop, random.Random(1))
        self.links = self.faults.links
        self.history = History(self.loop)
        self.quotas = Quotas(self.config, self.loop)
        self.network = MemoryNetwork(self.loop, self.faults.links)
        self.server = MemoryServer(self.network)
        self.profile = ReleaseProfile.of("4.3")

    def broker(self, id: int, port: int = 9092) -> Any:
        """A stand-in for a Broker."""
        broker: Any = SimpleNamespace(
            id=id,
            node=Node(id, "127.0.0.1", port),
            party=f"broker-{id}",
            loop=self.loop,
            config=self.config,
            profile=self.profile,
            cluster=self,
            log_context=LogContext(f"[Broker id={id}] "),
            paused=False,
            alive=True,
            held=[],
        )

        def call(callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
            if broker.paused:
                broker.held.append((callback, arguments))
            elif broker.alive:
                callback(*arguments)

        def resume() -> None:
            broker.paused = False
            held, broker.held = broker.held, []
            for callback, arguments in held:
                self.loop.call_soon(call, callback, arguments)

        broker.call_soon = lambda callback, *arguments: self.loop.call_soon(call, callback, arguments)
        broker.resume = resume
        broker.on_disconnect = lambda connection_id: None
        apis = KafkaApis(broker, self.faults, self.history)
        broker.request_channel = RequestChannel(broker, apis, self.history, self.quotas)
        return broker


class VirtualCluster(ServerCluster):
    """The same cluster on a clock that only the test moves."""

    def __init__(self, **settings: Any) -> None:
        self.clock = MockClock()
        super().__init__(self.clock, **settings)

    def run(self, duration_ms: int = 0) -> None:
        """Advance the time, event by event."""
        end_ms = self.clock.now_ms() + duration_ms
        while True:
            wait_ms = self.loop.run_due()
            if wait_ms == 0:
                continue
            left_ms = end_ms - self.clock.now_ms()
            if left_ms <= 0:
                break
            self.clock.advance(min(wait_ms, left_ms))
        if self.loop.failure is not None:
            raise self.loop.failure


class HeartbeatHandler:
    """A replacement for the handler of the API; ``answer`` decides, by default on success."""

    API_KEY = ApiKeys.HEARTBEAT
    VERSIONS = (0, 4)

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Callable[[Request], None] = lambda request: request.respond(HeartbeatResponse())

    def handle(self, broker: Any, request: Request, body: Any) -> None:
        self.requests.append(request)
        self.answer(request)

    def error_response(self, body: Any, code: int, message: str | None = None) -> Response:
        return HeartbeatResponse(error_code=code)


@contextmanager
def heartbeat_handler() -> Iterator[HeartbeatHandler]:
    with pytest.MonkeyPatch.context() as patch:
        handler = HeartbeatHandler()
        served = Handler(ApiKeys.HEARTBEAT, handler.VERSIONS, handler.handle, handler.error_response, False, None)
        patch.setitem(handlers._handlers, ApiKeys.HEARTBEAT, served)
        yield handler


def frame(correlation_id: int, client_id: str | None = "c", message: RequestMessage | None = None) -> bytes:
    """Return an encoded request with its size prefix."""
    message = message or HeartbeatRequest(group_id="g", member_id=f"m{correlation_id}")
    return encode_request(message, message.VERSIONS[1], correlation_id, client_id).getvalue()


def correlation_ids(selector: MemorySelector, api_key: int = ApiKeys.HEARTBEAT, version: int = 4) -> list[int]:
    """Return the correlation ids of the responses that the last poll received."""
    return [parse_response(receive.payload, api_key, version)[0] for receive in selector.completed_receives]
