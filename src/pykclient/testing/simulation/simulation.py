"""A cluster and its clients in one thread, on virtual time; what happens is decided by a seed."""

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
from pykclient.testing.server.local_requests import LocalRequest
from pykclient.testing.simulation.environment import SimulatedEnvironment
from pykclient.testing.simulation.hub import Actor, Hub, VirtualClock
from pykclient.types import TopicPartition

#: How long the brokers may take to find each other.
_START_LIMIT_MS = 60_000

#: By default a simulation that lasts longer than this has gone wrong.
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

    An application is a function that runs as an actor: where it would wait, others run, and when all wait, time jumps.
    The same seed and the same applications give the same history, always. Whatever an application does by itself has to
    come from ``clock``, ``new_rng`` and the like: threads, sleeping, the time of day and chance are the simulation's.

    ``cluster`` is the Cluster itself, which never waits: its methods and faults are called from actors, or from
    callbacks on ``loop``. Thread: owner.
    """

    def __init__(
        self,
        seed: int,
        brokers: int | list[int] = 3,
        *,
        racks: dict[int, str] | None = None,
        release: str | None = None,
        memory_limit_bytes: int = 512 * 1024 * 1024,
        history_size: int = 10_000,
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """``config`` and further keywords are settings of the brokers, as of EmbeddedCluster."""
        self.seed = seed
        self._rng = random.Random(seed)
        self.clock = VirtualClock()
        self.loop = EventLoop(self.clock)
        self.hub = Hub(self.clock, self.loop, self.new_rng())
        self.cluster = Cluster(
            ClusterConfig(
                brokers,
                advertised_host="broker-{id}",  # a host each, as look-ups of hosts can fail one by one
                racks=racks,
                release=release,
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
        """Start the brokers; they know each other on return."""
        self.cluster.start()
        self.hub.run(self.cluster.is_ready, _START_LIMIT_MS)
        return self

    def close(self) -> None:
        """End whatever still runs, where it is."""
        self.hub.close()

    def __enter__(self) -> Simulation:
        return self.start()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- what clients need -------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{node.host}:{node.port}" for node in self.cluster.nodes.values())

    def environment(self, name: str) -> SimulatedEnvironment:
        """Where clients live that share a machine called ``name``: links to brokers are cut for ``client:<name>``."""
        return SimulatedEnvironment(self.hub, self.cluster.network, f"client:{name}", self.new_rng())

    def new_rng(self) -> random.Random:
        """Random numbers that come from the seed."""
        return random.Random(self._rng.getrandbits(64))

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until its partitions have leaders. By default as the broker's settings say.

        Raises the broker's error, such as TopicAlreadyExistsError, and IllegalStateError without a controller.
        """
        controller = self.cluster.active_controller()
        if controller is None:
            raise IllegalStateError("there is no controller that could create a topic; wait until one is elected")
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
        """Let ``run`` be called as an actor, which may wait, when the simulation runs."""
        actor = self.hub.actor(run, name or str(getattr(run, "__name__", "application")))
        self._applications.append(actor)
        self.hub.make_runnable(actor)
        return actor

    def run(self, until: Callable[[], bool] | None = None, limit_ms: int = _RUN_LIMIT_MS) -> None:
        """Run until ``until()`` holds, by default until all actors that were handed in have ended.

        Raises what an actor raised, what a broker failed with, and SimulationError when the end is never reached.
        """
        self.hub.run(until or self._all_done, limit_ms)

    def wait_for(self, condition: Callable[[], bool], limit_ms: int = _START_LIMIT_MS) -> None:
        """Let time pass until ``condition()`` holds, inside of an actor or outside of all.

        Raises KafkaTimeoutError after ``limit_ms`` in an actor, and SimulationError outside.
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
