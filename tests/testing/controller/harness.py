"""A whole cluster on a clock that only the test moves, with requests to its brokers in any version."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_request, parse_request_header, parse_response
from pykclient.protocol.message import Request as RequestMessage, Response
from pykclient.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from pykclient.protocol.wire import Reader
from pykclient.testing.broker import Broker
from pykclient.testing.cluster import Cluster
from pykclient.testing.config import ClusterConfig
from pykclient.testing.controller.kafka_controller import KafkaController
from pykclient.testing.coordination.znodes import LeaderAndIsr
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.request_channel import Request
from pykclient.types import TopicPartition
from tests.support.mock_clock import MockClock

R = TypeVar("R", bound=Response)

#: Longer than any session, shorter than the interval of periodic checks.
A_WHILE_MS = 2_000


class Answer:
    """A broker's response to one request, once it arrives."""

    def __init__(self, api_key: int, version: int) -> None:
        self._api_key = api_key
        self._version = version
        self.response: Response | None = None
        self.closed = False

    @property
    def done(self) -> bool:
        return self.response is not None or self.closed

    def send_response(self, request: Request, buffers: list[Any] | None, throttle_time_ms: int) -> None:
        assert buffers is not None
        frame = b"".join(map(bytes, buffers))
        self.response = parse_response(frame[4:], self._api_key, self._version)[1]

    def close_connection(self, request: Request) -> None:
        self.closed = True


class ClusterHarness:
    """A cluster of brokers. ``run_until`` lets events happen; every test ends with ``check``."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        seed: int = 1,
        racks: dict[int, str] | None = None,
        transaction_version: int | None = None,
        **settings: Any,
    ) -> None:
        self.clock = MockClock()
        self.loop = EventLoop(self.clock)
        config = ClusterConfig(brokers, racks=racks, transaction_version=transaction_version, config=settings)
        self.cluster = Cluster(config, self.loop, random.Random(seed))
        self.cluster.start()
        self.run_until(self.cluster.is_ready, "the cluster is ready")

    # --- time --------------------------------------------------------------------------------------------------------

    def run_until(self, condition: Callable[[], object], what: str, limit_ms: int = 60_000) -> None:
        """Let events happen until the condition holds; time advances only when no event is due."""
        end_ms = self.clock.now_ms() + limit_ms
        for _ in range(200_000):
            if condition():
                return
            wait_ms = self.loop.run_due()
            self.check()
            if wait_ms and not condition():
                assert self.clock.now_ms() < end_ms, f"not within {limit_ms} ms: {what}"
                self.clock.advance(min(wait_ms, end_ms - self.clock.now_ms()))
        raise AssertionError(f"too many events, and not: {what}")

    def run_for(self, duration_ms: int = 0) -> None:
        """Advance the time by ``duration_ms``; 0 handles all events that are due now."""
        end_ms = self.clock.now_ms() + duration_ms
        for _ in range(200_000):
            wait_ms = self.loop.run_due()
            self.check()
            left_ms = end_ms - self.clock.now_ms()
            if wait_ms and left_ms <= 0:
                return
            self.clock.advance(min(wait_ms, left_ms))
        raise AssertionError("too many events")

    def check(self) -> None:
        """Check that no event of the cluster has failed."""
        if self.loop.failure is not None:
            raise self.loop.failure

    # --- brokers -----------------------------------------------------------------------------------------------------

    def broker(self, id: int) -> Broker:
        return self.cluster.broker(id)

    @property
    def controller(self) -> KafkaController:
        active = self.cluster.active_controller()
        assert active is not None, "there is no controller"
        return active.controller

    @property
    def controller_id(self) -> int:
        active = self.cluster.active_controller()
        assert active is not None, "there is no controller"
        return active.id

    def others(self) -> list[int]:
        """The live brokers that are not the controller."""
        return [broker.id for broker in self.cluster.alive_brokers() if broker.id != self.controller_id]

    def run_until_controller_not(self, id: int) -> None:
        def elected() -> bool:
            active = self.cluster.active_controller()
            return active is not None and active.id != id

        self.run_until(elected, f"a controller other than {id}")

    # --- requests ----------------------------------------------------------------------------------------------------

    def send(self, message: RequestMessage, broker_id: int, version: int | None = None, party: str = "test") -> Answer:
        """Hand a request to a broker as if it had arrived over a connection."""
        broker = self.broker(broker_id)
        if version is None:
            version = ApiKeys.latest_version(message.API_KEY)
        reader = Reader(encode_request(message, version, 7, party).getvalue()[4:])
        header = parse_request_header(reader)
        answer = Answer(message.API_KEY, version)
        request = Request(
            broker.request_channel,
            answer,
            header,
            reader,
            "test-connection",
            party if party.startswith("broker-") else f"client:{party}",
            "127.0.0.1",
            self.clock.now_ms(),
        )
        broker.request_channel.handler.handle(request)
        return answer

    def ask(
        self, message: RequestMessage, kind: type[R], broker_id: int | None = None, version: int | None = None
    ) -> R:
        """Send a request to a broker, by default the controller, and return its response."""
        answer = self.send(message, self.controller_id if broker_id is None else broker_id, version)
        self.run_until(lambda: answer.done, f"an answer to {message!r}")
        assert isinstance(answer.response, kind)
        return answer.response

    def ask_as_broker(self, message: RequestMessage, kind: type[R], broker_id: int, sender: int = 0) -> R:
        answer = self.send(message, broker_id, party=f"broker-{sender}")
        self.run_until(lambda: answer.done, f"an answer to {message!r}")
        assert isinstance(answer.response, kind)
        return answer.response

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replicas: int = 3,
        *,
        assignment: list[list[int]] | None = None,
        **config: str,
    ) -> None:
        """Create a topic, and wait until all brokers know it."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1 if assignment else partitions,
            replication_factor=-1 if assignment else replicas,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
                for index, ids in enumerate(assignment or ())
            ],
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in config.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        (result,) = self.ask(request, CreateTopicsResponse).topics
        assert result.error_code == 0, result
        self.settle()

    def settle(self) -> None:
        """Let the brokers respond to the controller's requests."""
        self.run_until(lambda: self.controller.channel_manager.idle, "all brokers have answered the controller")
        self.run_for()

    # --- what is the case --------------------------------------------------------------------------------------------

    def state(self, topic: str, partition: int = 0) -> LeaderAndIsr:
        """Return the controller's state of a partition."""
        return self.controller.context.leadership[TopicPartition(topic, partition)].leader_and_isr

    def known_leader(self, broker_id: int, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition as one broker knows it."""
        state = self.broker(broker_id).metadata_cache.partition_info(TopicPartition(topic, partition))
        assert state is not None, f"broker {broker_id} does not know {topic}-{partition}"
        return state.leader
