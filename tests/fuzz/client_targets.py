"""Whole clients against a broker whose responses are damaged on their way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from pykclient import KafkaConsumer, KafkaProducer, KafkaShareConsumer
from pykclient.admin import Admin, ConfigResource, ConfigResourceType, NewTopic
from pykclient.errors import KafkaError
from pykclient.network.frames import NetworkReceive
from pykclient.structs import OffsetAndMetadata
from pykclient.testing.simulation.simulation import SimulatedEnvironment, SimulatedSelector, Simulation
from pykclient.types import TopicPartition
from tests.fuzz.target import Input, Target, number, pieces

TOPIC = "orders"
PARTITION = TopicPartition(TOPIC, 0)

#: The most responses that are damaged in one run.
_MOST_DAMAGES = 8

#: The virtual time within which an application ends, and each of its calls. The longest timeout is that of closing a
#: consumer, half a minute.
_LIMIT_MS = 600_000
_CALL_LIMIT_MS = 40_000

_TIMEOUT_S = 5
_TIMEOUT_MS = 1000 * _TIMEOUT_S

#: What every client gets: short timeouts, so that a run has few steps.
_SETTINGS: dict[str, Any] = {
    "request_timeout_ms": 2_000,
    "metadata_max_age_ms": 3_000,
    "retry_backoff_ms": 100,
    "reconnect_backoff_ms": 100,
}
_PRODUCER = {**_SETTINGS, "max_block_ms": _TIMEOUT_MS, "delivery_timeout_ms": _TIMEOUT_MS, "linger_ms": 0}
_CONSUMER = {
    **_SETTINGS,
    "default_api_timeout_ms": _TIMEOUT_MS,
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 100,
}


class Damages:
    """Changes some of the responses that a client receives, by their number. Thread: owner."""

    def __init__(self, given: Input) -> None:
        self._by_number: dict[int, list[bytes]] = {}
        for piece in given.pieces()[:_MOST_DAMAGES]:
            self._by_number.setdefault(piece[0] if piece else 0, []).append(piece[1:])
        self._count = 0
        self._last = b""

    def apply(self, frame: bytes) -> list[bytes]:
        """Return the frames that the client gets instead of this one."""
        honest = frame
        found = [frame]
        for damage in self._by_number.get(self._count, ()):
            found = self._damaged(found[0], damage)
            if not found:
                break
        self._count += 1
        self._last = honest
        return found

    def _damaged(self, frame: bytes, damage: bytes) -> list[bytes]:
        given = Input(damage)
        kind, place, content = given.byte() % 8, given.number(2), given.rest()
        changed = bytearray(frame)
        # With kinds below 5, the correlation id stays valid, so that the client reads the rest.
        at = 4 + place % max(1, len(changed) - 4)
        match kind:
            case 0:
                changed[at : at + 1] = (
                    bytes((changed[at] ^ (content[0] if content else 0xFF),)) if at < len(frame) else b""
                )
            case 1 | 2:
                changed[at : at + len(content)] = content
            case 3:
                changed[at:at] = content
            case 4:
                del changed[at:]
            case 5:
                return [frame, frame]
            case 6:
                return []
            case _:
                return [frame[:4] + self._last[4:]]
        return [bytes(changed)]


class DamagingSelector(SimulatedSelector):
    """A client's connections, on which responses are damaged. Thread: owner."""

    damages: Damages

    def poll(self, timeout_ms: int) -> None:
        super().poll(timeout_ms)
        self.completed_receives = [
            NetworkReceive(receive.source, frame)
            for receive in self.completed_receives
            for frame in self.damages.apply(bytes(receive.payload))
        ]


class DamagingEnvironment(SimulatedEnvironment):
    """An environment whose clients have a hostile network. Thread: owner."""

    __slots__ = ("damages",)

    damages: Damages

    def new_selector(self, *_: object) -> DamagingSelector:
        selector = DamagingSelector(self._hub, self._network, self.party)
        selector.damages = self.damages
        self._selectors.append(selector)
        return selector


# --- applications ----------------------------------------------------------------------------------------------------


class Run:
    """One run of an application. Thread: owner."""

    def __init__(self, environment: SimulatedEnvironment, servers: str) -> None:
        self.environment = environment
        self.servers = servers

    def attempt(self, call: Callable[[], object]) -> None:
        """Call. An error of a documented kind is fine; it comes in time, as the result does."""
        clock = self.environment.clock
        begin_ms = clock.now_ms()
        try:
            call()
        except KafkaError as error:
            repr(error)
        assert clock.now_ms() - begin_ms <= _CALL_LIMIT_MS, "a call took longer than its timeout"


def _produce(run: Run) -> None:
    producer = KafkaProducer.in_environment(run.environment, bootstrap_servers=run.servers, **_PRODUCER)
    for value in (b"a", b"b", b"c"):
        run.attempt(lambda v=value: producer.send(TOPIC, v).get(2 * _TIMEOUT_S))  # type: ignore[misc]
    run.attempt(lambda: producer.partitions_for("missing"))
    run.attempt(lambda: producer.close(_TIMEOUT_S))


def _produce_transactionally(run: Run) -> None:
    producer = KafkaProducer.in_environment(
        run.environment,
        bootstrap_servers=run.servers,
        transactional_id="t",
        transaction_timeout_ms=_TIMEOUT_MS,
        **_PRODUCER,
    )

    def transaction() -> None:
        producer.begin_transaction()
        producer.send(TOPIC, b"a")
        producer.send_offsets_to_transaction({PARTITION: OffsetAndMetadata(1, "", -1)}, "g")
        producer.commit_transaction()

    run.attempt(producer.init_transactions)
    run.attempt(transaction)
    run.attempt(producer.abort_transaction)
    run.attempt(lambda: producer.close(_TIMEOUT_S))


def _read(run: Run, consumer: Any) -> None:
    for _ in range(6):
        run.attempt(lambda: consumer.poll(timeout_ms=500))


def _consume(run: Run) -> None:
    consumer = KafkaConsumer.in_environment(run.environment, bootstrap_servers=run.servers, **_CONSUMER)
    consumer.assign([PARTITION])
    _read(run, consumer)
    for call in (
        lambda: consumer.position(PARTITION),
        lambda: consumer.end_offsets([PARTITION]),
        lambda: consumer.offsets_for_times({PARTITION: 1}),
        lambda: consumer.partitions_for_topic(TOPIC),
    ):
        run.attempt(call)
    run.attempt(consumer.close)


def _consume_in_a_group(protocol: str) -> Callable[[Run], None]:
    def consume(run: Run) -> None:
        consumer = KafkaConsumer.in_environment(
            run.environment, bootstrap_servers=run.servers, group_id="g", group_protocol=protocol, **_CONSUMER
        )
        consumer.subscribe([TOPIC])
        _read(run, consumer)
        run.attempt(consumer.commit)
        run.attempt(lambda: consumer.committed(PARTITION))
        run.attempt(consumer.close)

    return consume


def _share(run: Run) -> None:
    consumer = KafkaShareConsumer.in_environment(
        run.environment, bootstrap_servers=run.servers, group_id="s", default_api_timeout_ms=_TIMEOUT_MS, **_SETTINGS
    )
    consumer.subscribe([TOPIC])
    _read(run, consumer)
    run.attempt(consumer.commit_sync)
    run.attempt(consumer.close)


def _administrate(run: Run) -> None:
    settings = {**_SETTINGS, "default_api_timeout_ms": _TIMEOUT_MS}
    admin = Admin.in_environment(run.environment, bootstrap_servers=run.servers, **settings)
    for call in (
        admin.list_topics,
        lambda: admin.create_topics([NewTopic("n", 1, 1)]).all(),
        lambda: admin.describe_topics([TOPIC]).all(),
        lambda: admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC)]).all(),
        admin.list_groups,
        lambda: admin.describe_groups(["g"]).all(),
        lambda: admin.delete_topics([TOPIC]).all(),
    ):
        run.attempt(call)
    run.attempt(admin.close)


_APPLICATIONS = (
    _produce,
    _produce_transactionally,
    _consume,
    _consume_in_a_group("classic"),
    _consume_in_a_group("consumer"),
    _share,
    _administrate,
)


def run_clients(data: bytes) -> None:
    """Run a client to its end while responses to it are damaged."""
    given = Input(data)
    application = _APPLICATIONS[given.byte() % len(_APPLICATIONS)]
    damages = Damages(given)
    with Simulation(1, 1) as simulation:
        simulation.create_topic(TOPIC)
        writer = simulation.environment("writer")
        environment = DamagingEnvironment(
            simulation.hub, simulation.cluster.network, "client:fuzz", simulation.new_rng()
        )
        environment.damages = damages

        def main() -> None:
            with KafkaProducer.in_environment(writer, bootstrap_servers=simulation.bootstrap_servers) as producer:
                producer.send(TOPIC, b"first").get(60)
            application(Run(environment, simulation.bootstrap_servers))

        simulation.actor(main)
        simulation.run(limit_ms=_LIMIT_MS)


def client_seeds(rng: Random) -> Iterator[bytes]:
    for application in range(len(_APPLICATIONS)):
        yield number(application)
        for kind in range(8):
            content = rng.choice((b"\xff", b"\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0"))
            response = number(rng.randrange(12))
            yield number(application) + pieces(response + number(kind) + rng.randbytes(2) + content)


TARGETS = [Target("clients", run_clients, client_seeds)]
