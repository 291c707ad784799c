"""A Kafka cluster in this process, for tests and for development."""

from __future__ import annotations

import os
import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from pykclient import errors
from pykclient.argument_values import check_callable, shown
from pykclient.clock import SYSTEM_CLOCK
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.message import Request, Response
from pykclient.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from pykclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from pykclient.record.record_batch import MAX_INT32, MAX_INT64
from pykclient.testing import config as cluster_arguments
from pykclient.testing.acls import Acl, bindings_of
from pykclient.testing.broker import Broker
from pykclient.testing.cluster import Cluster, ClusterState
from pykclient.testing.config import ClusterConfig
from pykclient.testing.controller.config_manager import value_as_string
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.faults import Control, Faults
from pykclient.testing.log.broker_disk import BrokerDisk
from pykclient.testing.request_channel import RequestRecord
from pykclient.testing.security import GivenSecurity
from pykclient.testing.server.kafka_apis import LocalRequest
from pykclient.testing.server.socket_server import SocketServer
from pykclient.testing.standard_authorizer import AclStore
from pykclient.testing.telemetry import Push, TelemetryReceiver
from pykclient.types import ConsumerRecord, Node, TopicPartition

T = TypeVar("T")

#: The maximum wait for the loop's thread to begin a call; normally it takes milliseconds.
_CALL_TIMEOUT_MS = 30_000

#: The interval at which conditions are checked without events in the cluster, because they may be about other things.
_LOOK_INTERVAL_MS = 20


class Poller(Protocol):
    """The sockets on which the thread waits. Thread: loop, except for ``wakeup``."""

    def poll(self, timeout_ms: int) -> None:
        """Do the I/O that is possible; wait at most ``timeout_ms`` for some."""

    def wakeup(self) -> None:
        """End the wait. Thread: any, also after ``close``."""

    def close(self) -> None:
        """Close the sockets. ``poll`` is not called again."""


class _Call(Generic[T]):
    """A call that another thread has submitted, and its result."""

    result: T  # set if the call succeeded

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.done = SYSTEM_CLOCK.new_signal()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that asked
            self.error = error
        self.done.set()


class _Waiter:
    """A condition that a thread waits for."""

    def __init__(self, predicate: Callable[[], bool]) -> None:
        self.predicate = predicate
        self.done = SYSTEM_CLOCK.new_signal()
        self.error: BaseException | None = None

    def check(self) -> bool:
        try:
            if not self.predicate():
                return False
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self.error = error
        self.done.set()
        return True

    def give_up(self, error: Exception) -> None:
        self.error = error
        self.done.set()


class LoopThread:
    """Runs an event loop and its sockets on a daemon thread. Other threads submit calls and conditions.

    ``open_poller`` is called on that thread. The main thread could be interrupted by Ctrl-C between opening a socket
    and storing it. Thread: any.
    """

    def __init__(self, loop: EventLoop, open_poller: Callable[[], Poller], name: str) -> None:
        self._loop = loop
        self._opening = _Call(open_poller)
        self._poller: Poller | None = None  # set by the loop's thread
        self._calls: deque[_Call[Any]] = deque()
        self._waiters: list[_Waiter] = []  # the loop's thread only
        self._stopping = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. Raise what opening the poller raised."""
        self._thread.start()
        self._await(self._opening)

    def stop(self, timeout_s: float) -> None:
        """End the thread.

        Raises:
            KafkaTimeoutError: the thread is stuck.
        """
        if self.is_current:
            raise errors.IllegalStateError("a hook cannot end the cluster that it runs in")
        self._stopping = True
        self._wakeup()
        if not self._thread.is_alive():
            return  # or it was interrupted while starting, and ends at once
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise errors.KafkaTimeoutError(f"the thread {self._thread.name} did not end within {timeout_s:.0f} s")

    @property
    def running(self) -> bool:
        return self._thread.is_alive() and not self._stopping

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], T]) -> T:
        """Call ``function`` on the loop's thread; return its result, or raise its exception.

        On that thread itself, call it directly.
        """
        if self.is_current:
            return function()
        if not self.running:
            raise errors.IllegalStateError("the cluster does not run")
        call = _Call(function)
        self._calls.append(call)
        if self._ended and call in self._calls:
            raise errors.IllegalStateError("the cluster does not run")  # it ended between the two lines above
        self._wakeup()
        return self._await(call)

    def wait_for(self, predicate: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until ``predicate`` returns true; return False after ``timeout_ms``.

        It is called on the loop's thread after events.
        """
        if self.is_current:
            raise errors.IllegalStateError("a hook must not wait: the cluster stands still while it runs")
        waiter = _Waiter(predicate)

        def begin() -> None:
            if not waiter.check():
                self._waiters.append(waiter)

        self.call(begin)
        is_done = False
        try:
            is_done = waiter.done.wait(timeout_ms)
        finally:  # also after Ctrl-C: the condition must not be checked any more
            if not is_done:
                self._abandon(waiter)
        if waiter.error is not None:
            raise waiter.error
        return is_done or waiter.done.wait(0)  # it may have come true while the waiter was removed

    def _abandon(self, waiter: _Waiter) -> None:
        def remove() -> None:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

        if self.running:
            self.call(remove)

    def _await(self, call: _Call[T]) -> T:
        if not call.done.wait(_CALL_TIMEOUT_MS):
            raise errors.KafkaTimeoutError(
                f"a call to the cluster's thread got no response within {_CALL_TIMEOUT_MS // 1000} s"
            )
        if call.error is not None:
            raise call.error
        return call.result

    def _wakeup(self) -> None:
        # Before the thread has a poller, it has not checked anything yet, so there is nothing to wake it for.
        if self._poller is not None:
            self._poller.wakeup()

    def _run(self) -> None:
        self._opening.run()
        try:
            if self._opening.error is None:
                self._poller = self._opening.result
                self._serve(self._poller)
        finally:
            self._ended = True
            while self._calls:
                self._calls.popleft().run()
            for waiter in self._waiters:
                waiter.give_up(
                    errors.IllegalStateError("the cluster was closed while a thread waited for a call to it")
                )
            if self._poller is not None:
                self._poller.close()

    def _serve(self, poller: Poller) -> None:
        loop, calls = self._loop, self._calls
        while not self._stopping:
            while calls:
                calls.popleft().run()
            timeout_ms = loop.run_due()
            if self._waiters:
                self._waiters = [waiter for waiter in self._waiters if not waiter.check()]
            if self._waiters:
                timeout_ms = min(timeout_ms, _LOOK_INTERVAL_MS)
            poller.poll(0 if calls else timeout_ms)


P = ParamSpec("P")

R = TypeVar("R")


@dataclass(eq=False, repr=False)
class EmbeddedControl:
    """A hook on requests, created by ``EmbeddedFaults``. Thread: any."""

    _control: Control
    _thread: LoopThread

    @property
    def hits(self) -> int:
        """The number of requests that the hook has decided about."""
        return self._control.hits

    @property
    def held(self) -> int:
        """The number of requests that are held."""
        return len(self._control.held)

    def remove(self) -> None:
        """Remove the hook. Requests that it holds stay held."""
        self._thread.call(self._control.remove)

    def release(self, count: int | None = None) -> int:
        """Release held requests, the oldest first: all, or ``count``. Return their number."""
        return self._thread.call(lambda: self._control.release(count))


def _on_loop(method: Callable[Concatenate[Faults, P], R]) -> Callable[Concatenate[EmbeddedFaults, P], R]:
    """Turn a method of Faults into one that is called on the cluster's thread."""

    def call(self: EmbeddedFaults, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._thread.call(lambda: method(self._cluster.faults, *args, **kwargs))

    return call


def _control_on_loop(
    method: Callable[Concatenate[Faults, P], Control],
) -> Callable[Concatenate[EmbeddedFaults, P], EmbeddedControl]:
    """Like ``_on_loop``, for a method that returns a control."""

    def call(self: EmbeddedFaults, /, *args: P.args, **kwargs: P.kwargs) -> EmbeddedControl:
        return EmbeddedControl(_on_loop(method)(self, *args, **kwargs), self._thread)

    return call


@dataclass(eq=False, repr=False)
class EmbeddedFaults:
    """The fault injection of a cluster. ``Faults`` documents the common methods.

    Hooks run on the cluster's thread and block it. Thread: any.
    """

    _cluster: Cluster
    _thread: LoopThread

    control = _control_on_loop(Faults.control)
    answer = _control_on_loop(Faults.answer)
    drop_requests = _control_on_loop(Faults.drop_requests)
    drop_responses = _control_on_loop(Faults.drop_responses)
    hold = _control_on_loop(Faults.hold)
    release = _on_loop(Faults.release)
    clear = _on_loop(Faults.clear)
    cut = _on_loop(Faults.cut)
    delay = _on_loop(Faults.delay)
    throttle = _on_loop(Faults.throttle)
    partition = _on_loop(Faults.partition)
    heal = _on_loop(Faults.heal)

    def _tell(self, broker: int, action: Callable[[Broker], None]) -> None:
        self._thread.call(lambda: action(self._cluster.broker(broker)))

    def freeze_metadata(self, broker: int) -> None:
        """Freeze a broker's metadata: it learns of changes only after ``thaw_metadata``."""
        self._tell(broker, lambda it: it.metadata_cache.freeze())

    def thaw_metadata(self, broker: int) -> None:
        """Let a broker learn of changes again after ``freeze_metadata``."""
        self._tell(broker, lambda it: it.metadata_cache.thaw())

    def expire_session(self, broker: int) -> None:
        """Make the coordination service expire a broker's session despite its contact. The broker registers again."""
        self._tell(broker, lambda it: it.coordination.expire())


#: The limit for starting, stopping and moving, which normally take much less.
_TIMEOUT_MS = 30_000

_MAX_INT16 = (1 << 15) - 1


class EmbeddedCluster:
    """Kafka brokers in this process, on real sockets, for any client.

        with EmbeddedCluster(brokers=3) as cluster:
            cluster.create_topic("orders", partitions=6)
            producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)

    ``brokers`` is their number (ids start from 1) or a list of ids. ``port`` is the first broker's port, and the others
    use the following ones; 0 means any free ports. The brokers listen on ``host`` and advertise ``advertised_host``, by
    default the same; set it if clients run on other machines. ``racks`` maps broker ids to racks. ``proxies`` maps
    broker ids to the addresses of your own proxies: clients that connect through one are sent to the others, see
    ``address_behind_proxy``. With ``release``, such as "2.1", the brokers imitate an older Kafka.
    ``transaction_version`` is the level of Kafka's feature transaction.version, 0 to 2, by default the release's: with
    2, each transaction has its own producer epoch (KIP-890). ``security`` is the protocol of the brokers' listener,
    such as "SASL_PLAINTEXT", or a ``Security`` with mechanisms and users, or a mapping of names to these for several
    listeners; ``client_config`` has the clients' settings. ``acls`` are access control lists: clients may do what they
    allow, and nothing else, unless they are among the ``super_users`` (Kafka's ``super.users``). All logs together hold
    at most ``memory_limit_bytes``; writes beyond that fail with PolicyViolationError. ``config`` and additional
    keywords are Kafka's broker settings, for example ``num_partitions=6``.

    Nothing is written to disk, but the contents of a broker's log survive its ``kill`` and ``restart``. Methods that
    change something return when the change is complete, and raise KafkaTimeoutError if that takes more than half a
    minute.

    Thread: any; hooks run on the cluster's thread.
    """

    def __init__(
        self,
        brokers: int | list[int] = 1,
        *,
        host: str = "127.0.0.1",
        advertised_host: str | None = None,
        port: int = 0,
        racks: dict[int, str] | None = None,
        proxies: dict[int, tuple[str, int]] | None = None,
        release: str | None = None,
        transaction_version: int | None = None,
        security: GivenSecurity = None,
        acls: Iterable[Acl] | None = None,
        memory_limit_bytes: int = 512 * 1024 * 1024,
        history_size: int = 10_000,
        seed: int | None = None,
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Check the settings. Nothing runs before ``start``.

        Raises:
            ConfigError: a setting is wrong.
        """
        self.config = ClusterConfig(
            brokers,
            host=host,
            advertised_host=advertised_host,
            port=port,
            racks=racks,
            proxies=proxies,
            release=release,
            transaction_version=transaction_version,
            security=security,
            acls=acls,
            memory_limit_bytes=memory_limit_bytes,
            history_size=history_size,
            config={**cluster_arguments.mapping_setting(config, "config"), **settings},
        )
        self._rng = random.Random(seed)
        self._running: _Running | None = None

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> EmbeddedCluster:
        """Start all brokers, and wait until they know one another.

        Raises:
            OSError: a port is in use.
        """
        if self._running is not None:
            raise errors.IllegalStateError("the cluster runs already")
        running = _Running(self.config, self._rng)
        self._running = running
        try:
            running.start()
            self.wait_for(running.cluster.is_ready, _TIMEOUT_MS, "the brokers to find each other")
        except BaseException:
            self._running = None
            running.close()
            raise
        return self

    def close(self) -> None:
        """Stop everything at once. Raise the error of a failed hook or broker, if no call has raised it yet.

        In a forked child this does nothing, because the cluster belongs to the parent.
        """
        if self._running is not None and self._running.thread.is_current:
            raise errors.IllegalStateError("a hook cannot close the cluster that it runs in")
        running, self._running = self._running, None
        if running is not None:
            failure = running.close()
            if failure is not None:
                raise failure

    def __enter__(self) -> EmbeddedCluster:
        return self if self._running is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        running, self._running = self._running, None
        if running is not None:
            running.close()  # the current exception tells more than one it may have caused here

    def _started(self) -> _Running:
        if self._running is None:
            raise errors.IllegalStateError("the cluster does not run; use it in a with statement, or call start()")
        return self._running

    def _now_running(self) -> _Running:
        running = self._started()
        if running.abandoned:
            raise errors.UseAfterForkError(
                "this cluster runs in the parent of this process, which can only use it as a client does, by its "
                "bootstrap_servers"
            )
        return running

    def _must_be_able_to_wait(self) -> None:
        """Raise IllegalStateError if called from a hook, before starting anything that must be waited for."""
        if self._now_running().thread.is_current:
            raise errors.IllegalStateError("a hook must not wait: the cluster stands still while it runs")

    def _call(self, function: Callable[[Cluster], T]) -> T:
        """Call ``function`` with the cluster, on its thread. Raise any earlier failure there."""
        running = self._now_running()
        result = running.thread.call(lambda: function(running.cluster))
        if not running.thread.is_current:
            running.raise_failure()
        return result

    def wait_for(self, predicate: Callable[[], object], timeout_ms: int = 10_000, what: str = "the condition") -> None:
        """Wait until ``predicate`` returns true. The cluster's thread calls it after every event.

        Raises:
            KafkaTimeoutError: it was false for ``timeout_ms``; the text names ``what`` and describes the cluster.
        """
        running = self._now_running()
        check_callable(predicate, "predicate")
        timeout_ms = cluster_arguments.number(timeout_ms, "timeout_ms", 0, MAX_INT32)
        if not running.thread.wait_for(lambda: bool(predicate()), timeout_ms):
            running.raise_failure()
            raise errors.KafkaTimeoutError(
                f"waited {timeout_ms / 1000:.1f} s for {what}; the cluster: {self.describe()}"
            )
        running.raise_failure()

    # --- contents ----------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for clients. They stay the same when brokers are restarted."""
        return _addresses(self._started().cluster.nodes.values())

    def client_config(
        self, listener: str | None = None, *, mechanism: str | None = None, user: str | None = None
    ) -> dict[str, Any]:
        """Return the settings with which clients connect to a listener, by default the first one.

        ``mechanism`` and ``user`` are those of SASL, by default the listener's first ones. confluent-kafka has the same
        keys, so the settings suit its clients as well.

        Raises:
            IllegalArgumentError: there is no such listener, mechanism or user.
        """
        name = next(iter(self.config.listeners)) if listener is None else listener
        security = self.config.listeners.get(name)
        if security is None:
            raise errors.IllegalArgumentError(f"there is no listener {name!r}, only {', '.join(self.config.listeners)}")
        server = self._now_running().server
        assert server is not None
        nodes = server.nodes(name).values()
        return {"bootstrap.servers": _addresses(nodes), **security.client_config(mechanism, user)}

    def address_behind_proxy(self, broker: int) -> tuple[str, int]:
        """Return the address at which a broker listens for its proxy.

        Raises:
            IllegalArgumentError: the broker has no proxy.
        """
        server = self._now_running().server
        assert server is not None
        port = server.port_behind_proxy(broker) if isinstance(broker, int) else None
        if port is None:
            named = sorted(self.config.proxies)
            raise errors.IllegalArgumentError(f"no proxy was named for broker {shown(broker)}, only for {named}")
        return self.config.advertised_host, port

    @property
    def broker_ids(self) -> list[int]:
        return list(self.config.broker_ids)

    @property
    def alive_broker_ids(self) -> list[int]:
        """The running brokers, including paused ones."""
        return self._call(lambda cluster: [broker.id for broker in cluster.alive_brokers()])

    @property
    def controller_id(self) -> int | None:
        """The broker that is the controller; None during an election."""

        def find(cluster: Cluster) -> int | None:
            controller = cluster.active_controller()
            return None if controller is None else controller.id

        return self._call(find)

    def describe(self) -> str:
        """Describe the state of all brokers in one line, for error messages."""
        return self._call(Cluster.describe)

    def state(self) -> ClusterState:
        """Return the current state of brokers, partitions and groups."""
        return self._call(ClusterState.of)

    @property
    def faults(self) -> EmbeddedFaults:
        """The faults of links, requests and responses."""
        return self._now_running().faults

    def __repr__(self) -> str:
        return f"<EmbeddedCluster {self.bootstrap_servers if self._running is not None else 'not running'}>"

    # --- topics ------------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
        assignment: Mapping[int, list[int]] | None = None,
    ) -> None:
        """Create a topic, and wait until all brokers know it and its partitions have leaders.

        ``assignment`` maps partitions to lists of brokers, the preferred leader first; it replaces ``partitions`` and
        ``replication_factor``. By default, the replication factor is three, or the number of brokers if that is less.

        Raises:
            BrokerError: the broker's error, such as TopicAlreadyExistsError.
            IllegalArgumentError: an argument has the wrong type, or there are too many partitions.
        """
        name = cluster_arguments.topic(name)
        places = cluster_arguments.assignment(assignment)
        partitions = cluster_arguments.number(partitions, "partitions", -MAX_INT32, cluster_arguments.MAX_PARTITIONS)
        if replication_factor is not None:
            replication_factor = cluster_arguments.number(
                replication_factor, "replication_factor", -_MAX_INT16, _MAX_INT16
            )
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1 if places else partitions,
            replication_factor=-1 if places or replication_factor is None else replication_factor,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
                for index, ids in sorted(places.items())
            ],
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value_as_string(value, None))
                for key, value in cluster_arguments.topic_configs(configs).items()
            ],
        )
        response = self.request_controller(CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS))
        assert isinstance(response, CreateTopicsResponse)
        _raise_error(response.topics[0].error_code, response.topics[0].error_message)
        count = len(places) if places else partitions
        wanted = [TopicPartition(name, index) for index in range(count)]
        self.wait_for(
            lambda: all(self.leader(partition) is not None for partition in wanted), _TIMEOUT_MS, f"leaders of {name}"
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic.

        Raises:
            BrokerError: the broker's error, such as UnknownTopicOrPartitionError.
            IllegalArgumentError: ``name`` is not a ``str``.
        """
        name = cluster_arguments.topic(name)
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
        response = self.request_controller(request)
        assert isinstance(response, DeleteTopicsResponse)
        _raise_error(response.responses[0].error_code, response.responses[0].error_message)

    def request_controller(self, message: Request) -> Response:
        """Send ``message`` to the controller and return its response.

        This reaches any admin API, and ignores faults.
        """
        if not self.alive_broker_ids:
            raise errors.IllegalStateError("no broker is running; restart() starts one")
        self.wait_for(lambda: self.controller_id is not None, _TIMEOUT_MS, "a controller to be elected")
        controller_id = self.controller_id
        assert controller_id is not None
        return self.request(message, controller_id)

    def request(self, message: Request, broker: int) -> Response:
        """Send ``message`` to a broker in the newest version and return its response. Faults are ignored.

        Raises:
            IllegalStateError: the broker is not running.
            DisconnectError: the broker closed the connection.
        """
        if not isinstance(message, Request):
            raise errors.IllegalArgumentError(f"message is {shown(message)}; it must be a request")
        self._must_be_able_to_wait()
        answers: list[Response | None] = []
        self._call(lambda cluster: LocalRequest(cluster.broker(broker), message, answers.append))
        what = f"broker {broker} to answer {ApiKeys.name_of(message.API_KEY)}"
        self.wait_for(lambda: answers, _TIMEOUT_MS, what)
        if answers[0] is None:
            raise errors.DisconnectError(f"broker {broker} closed the connection instead of answering")
        return answers[0]

    def leader(self, topic_partition: TopicPartition) -> int | None:
        """Return the broker that leads a partition, or None if there is none."""
        tp = cluster_arguments.partition(topic_partition)
        return self._call(lambda cluster: cluster.leader(tp))

    def isr(self, topic_partition: TopicPartition) -> list[int]:
        """Return the in-sync replicas according to the leader; empty without a leader."""
        tp = cluster_arguments.partition(topic_partition)
        return self._call(lambda cluster: cluster.isr(tp))

    def move_leader(self, topic_partition: TopicPartition, broker: int) -> None:
        """Make an in-sync replica the leader, and wait until it is.

        Raises:
            IllegalArgumentError: the broker is not an in-sync replica.
        """
        topic_partition = cluster_arguments.partition(topic_partition)
        self._must_be_able_to_wait()
        if not self._call(lambda cluster: cluster.move_leader(topic_partition, broker)):
            in_sync = ", ".join(map(str, self.isr(topic_partition))) or "nobody"
            raise errors.IllegalArgumentError(f"broker {broker} cannot lead {topic_partition}: in sync is {in_sync}")
        self.wait_for(
            lambda: self.leader(topic_partition) == broker, _TIMEOUT_MS, f"broker {broker} to lead {topic_partition}"
        )

    def update_feature(self, name: str, level: int) -> None:
        """Change the level of a feature, such as ``transaction.version``. Clients see it with their next connection.

        Raises:
            ConfigError: the cluster does not have the feature, or not this level.
        """
        self._call(lambda cluster: cluster.features.update(name, level))

    # --- access ------------------------------------------------------------------------------------------------------

    def add_acls(self, *acls: Acl) -> None:
        """Add access control lists. All brokers with contact to the controller apply them from the next request on.

        Raises:
            IllegalStateError: the cluster has no authorizer, because it was created without ``acls``.
        """

        def add(cluster: Cluster) -> None:
            for acl in bindings_of(acls):
                _acls(cluster).add(acl)

        self._call(add)

    def remove_acls(self, *acls: Acl) -> None:
        """Remove access control lists, if they exist.

        Raises:
            IllegalStateError: the cluster has no authorizer, because it was created without ``acls``.
        """

        def remove(cluster: Cluster) -> None:
            for acl in bindings_of(acls):
                _acls(cluster).remove(acl)

        self._call(remove)

    # --- brokers -----------------------------------------------------------------------------------------------------

    def kill(self, broker: int) -> None:
        """Kill a broker, as SIGKILL does. Others take over when its session has expired (half a second)."""
        self._call(lambda cluster: cluster.kill_broker(broker))

    def stop(self, broker: int) -> None:
        """Stop a broker cleanly: its leaders move first."""
        self._must_be_able_to_wait()
        self._call(lambda cluster: cluster.stop_broker(broker))
        self.wait_for(lambda: broker not in self.alive_broker_ids, _TIMEOUT_MS, f"broker {broker} to stop")

    def restart(self, broker: int) -> None:
        """Start a stopped or killed broker on its old port and with its logs; wait until all brokers know it."""
        self._must_be_able_to_wait()
        self._call(lambda cluster: cluster.start_broker(broker))
        self.wait_for(self._now_running().cluster.is_ready, _TIMEOUT_MS, f"broker {broker} to be back")

    def pause(self, broker: int) -> None:
        """Pause a broker, as SIGSTOP does: connections stay open, but the broker does not respond."""
        self._call(lambda cluster: cluster.pause_broker(broker))

    def resume(self, broker: int) -> None:
        """Resume a paused broker, as SIGCONT does: it responds to the requests that have arrived meanwhile."""
        self._call(lambda cluster: cluster.resume_broker(broker))

    # --- metrics of clients ------------------------------------------------------------------------------------------

    def collect_telemetry(
        self, metrics: Sequence[str] = ("*",), interval_ms: int = 1_000, *, is_delta: bool = True
    ) -> None:
        """Ask the clients that connect from now on for their metrics (KIP-714). ``telemetry`` returns what they push.

        ``metrics`` are beginnings of names, such as ``org.apache.kafka.producer.``; ``*`` alone means all. Clients push
        every ``interval_ms`` milliseconds, and when they are closed. With ``is_delta``, as with Kafka's brokers, totals
        are counted from the last push on.
        """
        self._call(
            lambda cluster: setattr(
                cluster, "telemetry", TelemetryReceiver(cluster.rng, list(metrics), interval_ms, is_delta)
            )
        )

    def telemetry(self) -> list[Push]:
        """Return the pushes of all clients, oldest first."""
        return self._call(lambda cluster: [] if cluster.telemetry is None else list(cluster.telemetry.pushes))

    # --- what happened -----------------------------------------------------------------------------------------------

    @property
    def requests(self) -> list[RequestRecord]:
        """The latest requests of clients with their responses, oldest first. ``requests_of`` filters them."""
        return self._call(lambda cluster: cluster.history.matching())

    def requests_of(
        self,
        api: int | str | None = None,
        *,
        client_id: str | None = None,
        broker: int | None = None,
        party: str | None = None,
        after: int = 0,
    ) -> list[RequestRecord]:
        """Return the latest requests for an API (key or name), from a client, to a broker.

        ``party="broker-1"`` selects a broker's own requests instead of clients'. ``after`` is the ``number`` of a
        record; only later ones are returned.
        """
        after = cluster_arguments.number(after, "after", 0, MAX_INT64)
        return self._call(
            lambda cluster: cluster.history.matching(
                api=api, client_id=client_id, broker=broker, party=party, after=after
            )
        )

    def log(
        self, topic_partition: TopicPartition, broker: int | None = None, *, from_offset: int = 0
    ) -> list[ConsumerRecord[bytes, bytes]]:
        """Return the records in a partition's log, on its leader or on ``broker``.

        Uncommitted records are included, control records are not.

        Raises:
            IllegalStateError: there is no leader, or no such replica.
        """
        tp = cluster_arguments.partition(topic_partition)
        start = cluster_arguments.number(from_offset, "from_offset", 0, MAX_INT64)
        return self._call(lambda cluster: cluster.log_records(tp, broker, start))

    def disk(self, broker: int) -> BrokerDisk:
        """Return a broker's disk. Set ``write_delay_ms`` or ``full`` on it."""
        return self._call(lambda cluster: cluster.disk(broker))


class _Running:
    """The components that exist while a cluster runs."""

    #: Set when the thread has started.
    cluster: Cluster
    faults: EmbeddedFaults

    def __init__(self, config: ClusterConfig, rng: random.Random) -> None:
        self._config = config
        self._rng = rng
        self.loop = EventLoop(SYSTEM_CLOCK)
        self.server: SocketServer | None = None
        self.thread = LoopThread(self.loop, self._bind, "pykclient-cluster")
        self.abandoned = False  # True in a forked child's copy
        _open.add(self)

    def start(self) -> None:
        """Start the thread and the brokers.

        Raises:
            OSError: a port is in use.
        """
        self.thread.start()
        self.thread.call(self.cluster.start)

    def _bind(self) -> SocketServer:
        """Reserve the ports. Thread: loop."""
        server = SocketServer(self._config, self.loop)
        try:
            ports = server.bind(self._config.broker_ids)
            self.cluster = Cluster(self._config, self.loop, self._rng, gateway=server, ports=ports)
        except BaseException:
            server.close()
            raise
        self.faults = EmbeddedFaults(self.cluster, self.thread)
        self.server = server
        return server

    def raise_failure(self) -> None:
        """Raise the first failure on the cluster's thread since the last call."""
        failure, self.loop.failure = self.loop.failure, None
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Close the sockets in a forked child. Otherwise its copies would keep the ports of stopped brokers open."""
        self.abandoned = True
        if self.server is not None:
            self.server.abandon()

    def close(self) -> BaseException | None:
        """End the thread and close the sockets; return a failure that no call has raised yet."""
        if self.abandoned:
            return None
        _open.discard(self)
        if self.server is not None and self.thread.running:  # otherwise the thread ends by itself
            self.thread.call(self.cluster.close)
        self.thread.stop(_TIMEOUT_MS / 1000)
        return self.loop.failure


_open: weakref.WeakSet[_Running] = weakref.WeakSet()


def _abandon_all() -> None:
    for running in list(_open):
        running.abandon()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


def _acls(cluster: Cluster) -> AclStore:
    if cluster.config.acls is None:
        raise errors.IllegalStateError(
            "the cluster has no authorizer: create it with acls, or with an empty list of them"
        )
    return cluster.acls


def _addresses(nodes: Iterable[Node]) -> str:
    return ",".join(f"[{node.host}]:{node.port}" if ":" in node.host else f"{node.host}:{node.port}" for node in nodes)


def _raise_error(code: int, message: str | None) -> None:
    error = errors.for_code(code, message)
    if error is not None:
        raise error
