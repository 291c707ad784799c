"""Real clients against simulated brokers, as an application's tests would use them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection

import pytest

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.consumer.values import ConsumerRebalanceListener
from pykclient.errors import (
    BufferExhaustedError,
    ConcurrentModificationError,
    ConfigError,
    KafkaTimeoutError,
    TopicAlreadyExistsError,
)
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.testing.simulation import Simulation, SimulationError
from pykclient.types import TopicPartition

TOPIC = "orders"
TP = TopicPartition(TOPIC, 0)


def producer(simulation: Simulation, name: str = "writer", **settings: object) -> KafkaProducer[bytes, bytes]:
    return KafkaProducer.in_environment(
        simulation.environment(name), bootstrap_servers=simulation.bootstrap_servers, client_id=name, **settings
    )


def consumer(simulation: Simulation, name: str = "reader", **settings: object) -> KafkaConsumer[bytes, bytes]:
    return KafkaConsumer.in_environment(
        simulation.environment(name),
        TOPIC,
        bootstrap_servers=simulation.bootstrap_servers,
        client_id=name,
        auto_offset_reset="earliest",
        **settings,
    )


def test_records_round_trip_in_simulated_time() -> None:
    read: list[bytes | None] = []
    with Simulation(seed=1, brokers=3) as simulation:
        simulation_start_ms = simulation.clock.now_ms()

        def write() -> None:
            with producer(simulation) as out:
                for number in range(10):
                    out.send(TOPIC, b"%d" % number)
                    simulation.clock.sleep_ms(20_000)

        def collect() -> None:
            with consumer(simulation, group_id="billing") as source:
                while len(read) < 10:
                    for records in source.poll(60_000).values():
                        read.extend(record.value for record in records)

        simulation.actor(write)
        simulation.actor(collect)
        simulation.run()
        assert simulation.clock.now_ms() - simulation_start_ms >= 200_000
    assert read == [b"%d" % number for number in range(10)]


def test_acknowledged_records_survive_their_leader() -> None:
    with Simulation(seed=2, brokers=3, min_insync_replicas=2) as simulation:
        simulation.create_topic(TOPIC)

        def write() -> None:
            with producer(simulation) as out:
                out.send(TOPIC, b"one", partition=0).get(10)
                leader = simulation.cluster.leader(TP)
                assert leader is not None
                simulation.cluster.kill_broker(leader)
                out.send(TOPIC, b"two", partition=0).get(60)
                assert simulation.cluster.leader(TP) not in (None, leader)

        simulation.actor(write)
        simulation.run()
        assert [record.value for record in simulation.cluster.log_records(TP)] == [b"one", b"two"]


def test_sends_and_flushes_wait_in_simulated_time() -> None:
    with Simulation(seed=3, brokers=1) as simulation:
        simulation.create_topic(TOPIC)

        def write() -> None:
            out = producer(simulation, buffer_memory=2_000, batch_size=1_000, max_block_ms=500, linger_ms=0)
            out.partitions_for(TOPIC)
            simulation.cluster.faults.cut("client:*", 1)
            start_ms = simulation.clock.now_ms()
            for _ in range(2):
                out.send(TOPIC, bytes(800))
            with pytest.raises(BufferExhaustedError):
                out.send(TOPIC, bytes(800))
            assert simulation.clock.now_ms() - start_ms == 500
            with pytest.raises(KafkaTimeoutError):
                out.flush(1)
            simulation.cluster.faults.heal()
            out.flush()
            out.close()

        simulation.actor(write)
        simulation.run()


def test_callbacks_run_in_the_sender_thread() -> None:
    told: list[int] = []
    with Simulation(seed=4, brokers=1) as simulation:

        def write() -> None:
            out = producer(simulation)

            def on_delivery(error: Exception | None, metadata: object) -> None:
                out.close()  # does not wait inside a callback
                told.append(simulation.hub.current_ident)

            out.send(TOPIC, b"one", on_delivery=on_delivery)
            simulation.clock.sleep_ms(10_000)
            out.close()
            assert told != [simulation.hub.current_ident]

        simulation.actor(write)
        simulation.run()
    assert len(told) == 1


def test_a_second_thread_is_refused() -> None:
    refused: list[Exception] = []
    with Simulation(seed=5, brokers=1) as simulation:
        sources: list[KafkaConsumer[bytes, bytes]] = []

        def first() -> None:
            sources.append(consumer(simulation))
            sources[0].poll(1_000)
            simulation.clock.sleep_ms(1)
            sources[0].close()

        def second() -> None:
            simulation.clock.sleep_ms(500)
            try:
                sources[0].poll(0)
            except ConcurrentModificationError as error:
                refused.append(error)

        simulation.actor(first)
        simulation.actor(second)
        simulation.run()
    assert len(refused) == 1


class _Owner(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.owned |= set(assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.owned -= set(revoked)


@pytest.mark.filterwarnings("ignore:.* was not closed:ResourceWarning")  # a killed process closes nothing
def test_partitions_of_a_crashed_process_are_reassigned() -> None:
    owners = [_Owner(), _Owner()]
    with Simulation(seed=6, brokers=1, num_partitions=4) as simulation:
        simulation.create_topic(TOPIC, partitions=4)
        environments = [simulation.environment(f"reader-{number}") for number in range(2)]

        def read(number: int) -> None:
            source = KafkaConsumer.in_environment(
                environments[number],
                bootstrap_servers=simulation.bootstrap_servers,
                group_id="billing",
                session_timeout_ms=1_000,
                heartbeat_interval_ms=300,
            )
            source.subscribe([TOPIC], listener=owners[number])
            while True:
                source.poll(200)

        crashing = simulation.actor(lambda: read(0))
        staying = simulation.actor(lambda: read(1))
        simulation.run(lambda: len(owners[0].owned) == len(owners[1].owned) == 2)
        environments[0].crash(crashing)
        assert crashing.done
        simulation.run(lambda: len(owners[1].owned) == 4, limit_ms=5_000)
        environments[1].crash(staying)


def test_topic_can_be_created_only_once() -> None:
    with Simulation(seed=7, brokers=2) as simulation:
        simulation.create_topic(TOPIC, partitions=2, replication_factor=2, configs={"min.insync.replicas": "2"})
        assert simulation.cluster.isr(TP) == [1, 2]
        with pytest.raises(TopicAlreadyExistsError):
            simulation.create_topic(TOPIC)


def test_application_that_never_ends_is_an_error() -> None:
    with Simulation(seed=8, brokers=1) as simulation:

        def wait() -> None:
            simulation.wait_for(lambda: False, limit_ms=1_000_000)

        simulation.actor(wait, "waiting")
        with pytest.raises(SimulationError, match="not done after 500 ms: waiting left"):
            simulation.run(limit_ms=500)


def test_seed_determines_the_history() -> None:
    def history(seed: int) -> list[tuple[int, str, str]]:
        with Simulation(seed, brokers=3) as simulation:
            simulation.cluster.faults.delay("*", "*", 1, jitter_ms=20)

            def write() -> None:
                with producer(simulation) as out:
                    for number in range(5):
                        out.send(TOPIC, b"%d" % number).get()

            simulation.actor(write)
            simulation.run()
            return [(record.time_ms, record.api, record.party) for record in simulation.cluster.history]

    assert history(1) == history(1)
    assert history(1) != history(2)


def test_error_without_greenlet_says_how_to_install_it() -> None:
    code = "import sys; sys.modules['greenlet'] = None; from pykclient.testing.simulation import Simulation"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: simulation needs greenlet: pip install pykclient[simulation]" in run.stderr


def test_only_the_simulation_needs_greenlet() -> None:
    code = "import sys, pykclient.testing.embedded_cluster; assert 'greenlet' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_fetches_from_a_nonleader_respect_the_backoff() -> None:
    read: list[int] = []
    with Simulation(seed=1, brokers=1) as simulation:
        simulation.create_topic(TOPIC)
        control = simulation.cluster.faults.answer("FETCH", 6, times=None)
        simulation.loop.call_later(2_000, control.remove)

        def write() -> None:
            with producer(simulation) as out:
                out.send(TOPIC, b"late").get()

        def collect() -> None:
            with consumer(simulation, group_id=None, retry_backoff_ms=50) as source:
                while not source.poll(10_000):
                    pass
                read.append(simulation.clock.now_ms())

        start_ms = simulation.clock.now_ms()
        simulation.actor(write)
        simulation.actor(collect)
        simulation.run()
        assert 20 <= control.hits <= 2_000 / 50 + 1
        assert read[0] <= start_ms + 2_000 + 50


def test_hanging_dns_delays_only_one_broker() -> None:
    """Only records for the broker with the hanging lookup wait; they are sent once its name resolves."""
    with Simulation(seed=12, brokers=3) as simulation:
        simulation.create_topic(TOPIC, partitions=3)
        leaders = {number: simulation.cluster.leader(TopicPartition(TOPIC, number)) for number in range(3)}
        assert len(set(leaders.values())) == 3
        environment = simulation.environment("writer")

        def write() -> None:
            slow = next(number for number, leader in leaders.items() if leader == 2)
            environment.host_resolver.hang("broker-2")
            with KafkaProducer.in_environment(environment, bootstrap_servers="broker-1:9092") as out:
                waiting = out.send(TOPIC, b"slow", partition=slow)
                for number in leaders.keys() - {slow}:  # opens the connections
                    out.send(TOPIC, b"quick", partition=number).get(10)
                for _ in range(30):
                    start_ms = simulation.clock.now_ms()
                    for number in leaders.keys() - {slow}:
                        out.send(TOPIC, b"quick", partition=number).get(10)
                    assert simulation.clock.now_ms() - start_ms < 100
                    simulation.clock.sleep_ms(1_000)
                assert not waiting.is_done
                environment.host_resolver.answer()
                waiting.get(5)

        simulation.actor(write)
        simulation.run()


@pytest.mark.parametrize("what", ["hang", "fail"])
def test_client_starts_with_an_unresolvable_bootstrap_server(what: str) -> None:
    with Simulation(seed=13, brokers=3) as simulation:
        simulation.create_topic(TOPIC)
        environment = simulation.environment("writer")
        do = getattr(environment.host_resolver, what)
        do("broker-1")

        def write() -> None:
            start_ms = simulation.clock.now_ms()
            with KafkaProducer.in_environment(environment, bootstrap_servers=simulation.bootstrap_servers) as out:
                out.partitions_for(TOPIC)
                assert simulation.clock.now_ms() - start_ms < 2_500
            do("broker-*")
            start_ms = simulation.clock.now_ms()
            with pytest.raises(ConfigError, match=r"no address in bootstrap\.servers can be resolved"):
                KafkaProducer.in_environment(environment, bootstrap_servers=simulation.bootstrap_servers)
            assert simulation.clock.now_ms() - start_ms == (10_000 if what == "hang" else 0)
            environment.host_resolver.answer()
            environment.host_resolver.recover()
            KafkaProducer.in_environment(environment, bootstrap_servers=simulation.bootstrap_servers).close()

        simulation.actor(write)
        simulation.run()
