"""A cluster and its clients in one thread on virtual time; a seed decides the course of events."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from pykclient.errors import IllegalStateError, KafkaTimeoutError, for_code
from pykclient.protocol.messages.create_topics import CreateTopicsRequest
from pykclient.testing.cluster import Cluster
from pykclient.testing.config import ClusterConfig
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.server.kafka_apis import LocalRequest
from pykclient.testing.simulation.environment import SimulatedEnvironment
from pykclient.testing.simulation.hub import Actor, Hub, VirtualClock
from pykclient.types import TopicPartition

#: The time within which the brokers must register with each other.
_START_LIMIT_MS = 60_000

#: The default time limit of a simulation; one that lasts longer has gone wrong.
_RUN_LIMIT_MS = 3_600_000


class Simulation:
    """Runs applications with real clients against a cluster, without sockets, threads or waiting.

        with Simulation(seed=17, brokers=3) as simulation:
            def application():
                producer = KafkaProducer.in_environment(
                    simulation.environment("writer"), bootstrap_servers=simulation.bootstrap_servers
                )
                producer.send("orders", b"one").get()
                simulation.cluster.kill_broker(1)
                producer.send("orders", b"two").get()
                producer.close()

            simulation.actor(application)
            simulation.run()

    An application is a function that runs as an actor. Where it would wait, other actors run; when all wait, time
    jumps. The same seed and the same applications always give the same history. An application must therefore use the
    simulation's ``clock``, ``new_rng`` and so on for anything else it needs: threads, sleeping, the time of day and
    random numbers.

    ``cluster`` is the Cluster itself, which never waits. Call its methods and faults from actors, or from callbacks on
    ``loop``. Thread: owner.
    """

    def __init__(
        self,
        seed: int,
        brokers: int | list[int] = 3,
        *,
        racks: dict[int, str] | None = None,
        release: str | None = None,
        transaction_version: int | None = None,
        memory_limit_bytes: int = 512 * 1024 * 1024,
        history_size: int = 10_000,
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Prepare a cluster. The arguments are those of EmbeddedCluster."""
        self.seed = seed
        self._rng = random.Random(seed)
        self.clock = VirtualClock()
        self.loop = EventLoop(self.clock)
        self.hub = Hub(self.clock, self.loop, self.new_rng())
        self.cluster = Cluster(
            ClusterConfig(
                brokers,
                advertised_host="broker-{id}",  # one host per broker, so that lookups of hosts can fail one by one
                racks=racks,
                release=release,
                transaction_version=transaction_version,
                memory_limit_bytes=memory_limit_bytes,
                history_size=history_size,
                config={**(config or {}), **settings},
            ),
            self.loop,
            self.new_rng(),
        )
        self._applications: list[Actor] = []

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> Simulation:
        """Start the brokers, and return once they have registered with each other."""
        self.cluster.start()
        self.hub.run(self.cluster.is_ready, _START_LIMIT_MS)
        return self

    def close(self) -> None:
        """End all actors where they are."""
        self.hub.close()

    def __enter__(self) -> Simulation:
        return self.start()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- for the clients ---------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{node.host}:{node.port}" for node in self.cluster.nodes.values())

    def environment(self, name: str) -> SimulatedEnvironment:
        """Return the environment of the clients on a machine called ``name``.

        The machine's name in links to the brokers is ``client:<name>``.
        """
        return SimulatedEnvironment(self.hub, self.cluster.network, f"client:{name}", self.new_rng())

    def new_rng(self) -> random.Random:
        """Return a random number generator that is seeded from the simulation's seed."""
        return random.Random(self._rng.getrandbits(64))

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until its partitions have leaders.

        The replication factor defaults to the broker's setting.

        Raises:
            BrokerError: the broker's error, such as TopicExistsError.
            IllegalStateError: the cluster has no controller.
        """
        controller = self.cluster.active_controller()
        if controller is None:
            raise IllegalStateError("the cluster has no controller to create the topic; wait until one is elected")
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )
        answers: list[Any] = []
        LocalRequest(controller, CreateTopicsRequest(topics=[topic], timeout_ms=_START_LIMIT_MS), answers.append)
        self.wait_for(lambda: bool(answers))
        error = for_code(answers[0].topics[0].error_code, answers[0].topics[0].error_message)
        if error is not None:
            raise error
        created = [TopicPartition(name, number) for number in range(partitions)]
        self.wait_for(lambda: all(self.cluster.leader(tp) is not None for tp in created))

    # --- running -----------------------------------------------------------------------------------------------------

    def actor(self, run: Callable[[], object], name: str | None = None) -> Actor:
        """Create an actor that calls ``run``, which may wait, once the simulation runs."""
        actor = self.hub.actor(run, name or str(getattr(run, "__name__", "application")))
        self._applications.append(actor)
        self.hub.make_runnable(actor)
        return actor

    def run(self, until: Callable[[], bool] | None = None, limit_ms: int = _RUN_LIMIT_MS) -> None:
        """Run until ``until()`` is true; by default, until all actors that were passed in have ended.

        Raises:
            SimulationError: ``until()`` is never true, or not within ``limit_ms``.
            BaseException: the error of an actor or a broker.
        """
        self.hub.run(until or self._all_done, limit_ms)

    def wait_for(self, condition: Callable[[], bool], limit_ms: int = _START_LIMIT_MS) -> None:
        """Let time pass until ``condition()`` is true, inside an actor or outside of all actors.

        Raises:
            KafkaTimeoutError: the caller is an actor, and ``limit_ms`` expired.
            SimulationError: the caller is no actor, and ``limit_ms`` expired.
        """
        if not self.hub.current_ident:
            self.hub.run(condition, limit_ms)
            return
        deadline_ms = self.clock.now_ms() + limit_ms
        while not condition():
            if self.clock.now_ms() >= deadline_ms:
                raise KafkaTimeoutError(f"a condition did not come true within {limit_ms / 1000} s")
            self.clock.sleep_ms(1)

    def _all_done(self) -> bool:
        return all(actor.done for actor in self._applications)
