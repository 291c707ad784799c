"""A cluster and its clients in one thread on virtual time; a seed decides the course of events.

The clients' environment has actors as threads, the memory network as sockets, and seeded randomness.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import Any, NamedTuple

from greenlet import GreenletExit

from pykclient.errors import IllegalStateError, KafkaTimeoutError, for_code
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.network.channel_builders import ChannelBuilder
from pykclient.network.environment import ReentrantLock, Thread
from pykclient.network.selector import READ, SelectorConfig
from pykclient.protocol.messages.create_topics import CreateTopicsRequest
from pykclient.testing.cluster import Cluster
from pykclient.testing.config import ClusterConfig
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.memory_network import MemoryHostResolver, MemoryNetwork, MemorySelector
from pykclient.testing.server.kafka_apis import LocalRequest
from pykclient.testing.simulation.hub import Actor, Hub, SimulatedReentrantLock, SimulatedThread, VirtualClock
from pykclient.types import TopicPartition

_numbers = count(1_000_000)
#: A client that polls more often than this without time passing is in a busy loop.
MAX_POLLS_AT_ONE_INSTANT = 1_000


class SimulatedEnvironment:
    """Implements pykclient.network.environment.Environment.

    Thread: owner of the simulation.
    """

    def __init__(self, hub: Hub, network: MemoryNetwork, party: str, rng: random.Random) -> None:
        self._hub = hub
        self._network = network
        self._rng = rng
        self._threads: list[SimulatedThread] = []
        self._selectors: list[SimulatedSelector] = []
        #: The clients' name in the links between parties.
        self.party = party
        self.clock: VirtualClock = hub.clock
        #: The DNS of these clients alone; ``hang`` and ``fail`` do not affect other clients or the brokers.
        self.host_resolver = MemoryHostResolver()
        self.killed_by: tuple[type[BaseException], ...] = (GreenletExit,)

    def new_rng(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))

    def new_thread(self, run: Callable[[], object], name: str) -> Thread:
        thread = SimulatedThread(self._hub, run, name)
        self._threads.append(thread)
        return thread

    def new_reentrant_lock(self) -> ReentrantLock:
        return SimulatedReentrantLock(self._hub)

    def get_ident(self) -> int:
        return self._hub.current_ident

    def new_selector(
        self,
        config: SelectorConfig,  # noqa: ARG002 - settings of sockets
        metrics: Metrics,  # noqa: ARG002
        log_context: LogContext,  # noqa: ARG002
        channel_builder: ChannelBuilder,  # noqa: ARG002
    ) -> SimulatedSelector:
        selector = SimulatedSelector(self._hub, self._network, self.party)
        self._selectors.append(selector)
        return selector

    def new_event_loop(self) -> VirtualEventLoop:
        """Return an asyncio event loop on virtual time, for the clients of this environment. An actor runs it."""

        return VirtualEventLoop(self._hub, self._selectors)

    def crash(self, *applications: Actor) -> None:
        """Kill the clients, as SIGKILL kills a process.

        Connections end first, then ``applications``, then the clients' threads. The ``finally`` blocks of an actor
        still run, but they reach no broker.
        """
        for selector in self._selectors:
            selector.reset()
        for actor in applications:
            self._hub.end(actor)
        for thread in self._threads:
            thread.end()


class SimulatedSelector(MemorySelector):
    """The connections of one client, whose actor yields its turn while it polls.

    Thread: owner of the simulation.
    """

    def __init__(self, hub: Hub, network: MemoryNetwork, party: str) -> None:
        super().__init__(network, party, on_news=self._wake)
        self._hub = hub
        #: The actor to wake for news: the one that polls, or whose event loop watches this selector.
        self.waiting: Actor | None = None
        self._number = next(_numbers)
        self._last_poll_ms = -1
        self._polls = 0

    def poll(self, timeout_ms: int) -> None:
        now_ms = self._hub.clock.time_ms
        if now_ms != self._last_poll_ms:
            self._last_poll_ms = now_ms
            self._polls = 0
        self._polls += 1
        if self._polls > MAX_POLLS_AT_ONE_INSTANT:
            raise self._hub.fail(f"{self.party} polls its connections {self._polls} times without time passing")
        if timeout_ms <= 0:
            self._hub.offer_turn()  # as a system call releases the GIL
        MemorySelector.poll(self, timeout_ms)  # as super() does, without an object for it

    def _wait(self, timeout_ms: int) -> None:
        self.waiting = actor = self._hub.current
        try:
            actor.park(timeout_ms)
        finally:
            self.waiting = None

    def fileno(self) -> int:
        """Return a number for a VirtualEventLoop; no descriptor of the system has it."""
        return self._number

    def _wake(self) -> None:
        if self.waiting is not None:
            self.waiting.wake()


#: The longest wait, after which the loop only looks again.
_LONGEST_WAIT_MS = 3_600_000


class _Key(NamedTuple):
    """A registered file object, with the fields of ``selectors.SelectorKey``."""

    fileobj: Any
    fd: int
    events: int
    data: Any


class _VirtualSelector:
    """Waits for the memory connections of clients instead of sockets, behind the interface of ``selectors``.

    Thread: owner of the simulation.
    """

    def __init__(self, hub: Hub, selectors_: Sequence[SimulatedSelector]) -> None:
        self._hub = hub
        self._selectors = selectors_
        self._keys: dict[int, _Key] = {}
        self._woken = False
        self._actor: Actor | None = None

    def register(self, fileobj: Any, events: int, data: Any = None) -> _Key:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys[number] = _Key(fileobj, number, events, data)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> _Key:
        return self.register(fileobj, events, data)

    def close(self) -> None:
        self._keys.clear()

    def unregister(self, fileobj: Any) -> _Key:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def get_map(self) -> Mapping[Any, _Key]:
        return self._keys

    def get_key(self, fileobj: Any) -> _Key:
        return self._keys[fileobj if isinstance(fileobj, int) else fileobj.fileno()]

    def select(self, timeout: float | None = None) -> list[tuple[_Key, int]]:
        """Return the clients with news. While there are none, other actors run and time passes."""
        ready = self._ready()
        if ready or self._woken or (timeout is not None and timeout <= 0):
            self._hub.offer_turn()  # as a system call releases the GIL
        else:
            timeout_ms = _LONGEST_WAIT_MS if timeout is None else min(math.ceil(timeout * 1000), _LONGEST_WAIT_MS)
            self._park(timeout_ms)
        self._woken = False
        return self._ready()

    def _park(self, timeout_ms: int) -> None:
        self._actor = actor = self._hub.current
        watched = [selector for selector in self._selectors if selector.fileno() in self._keys]
        for selector in watched:
            selector.waiting = actor
        try:
            actor.park(timeout_ms)
        finally:
            self._actor = None
            for selector in watched:
                selector.waiting = None

    def _ready(self) -> list[tuple[_Key, int]]:
        return [
            (self._keys[selector.fileno()], READ)
            for selector in self._selectors
            if selector.has_news and selector.fileno() in self._keys
        ]

    def wake(self) -> None:
        """End the current wait, or else the next one."""
        self._woken = True
        if self._actor is not None:
            self._actor.wake()


class VirtualEventLoop(asyncio.SelectorEventLoop):
    """The standard library's event loop, whose time is the simulation's. Thread: owner of the simulation."""

    def __init__(self, hub: Hub, selectors_: Sequence[SimulatedSelector]) -> None:
        self._hub = hub
        self._virtual_selector = _VirtualSelector(hub, selectors_)
        super().__init__(self._virtual_selector)  # type: ignore[arg-type] # it has all that the loop calls
        self._clock_resolution = 0.0005  # the clock has whole milliseconds

    def run_forever(self) -> None:
        """Run until ``stop`` is called. Actors may run a loop each."""
        actor = self._hub.current
        actor.event_loop = self
        try:
            super().run_forever()
        finally:
            actor.event_loop = None

    def time(self) -> float:
        return self._hub.clock.time_ms / 1000

    def _write_to_self(self) -> None:
        """Wake the loop: another actor calls ``call_soon_threadsafe``."""
        self._virtual_selector.wake()


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
        self, name: str, partitions: int = 1, replication_factor: int = -1, configs: Mapping[str, str] | None = None
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
