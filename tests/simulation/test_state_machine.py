"""Schedules that hypothesis generates, and shrinks on failure."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.simulation import schedule as steps
from tests.simulation.schedule import APIS, CLIENTS, COORDINATION, ERRORS, EVERYBODY, Schedule, Step, make
from tests.simulation.world import World
from tests.support.examples import examples

pytest.importorskip("pyarrow")  # some applications of a schedule read columns

_SEEDS = st.integers(0, (1 << 32) - 1)
_BROKERS = st.integers(1, 3)
_NUMBERS = st.integers(0, 2)
_DURATIONS = st.sampled_from((20, 100, 400, 1200))
_PARTIES = st.sampled_from((1, 2, 3, CLIENTS, EVERYBODY, COORDINATION))
_API_NUMBERS = st.integers(0, len(APIS) - 1)
_TIMES = st.sampled_from((1, 3))


class ClusterMachine(RuleBasedStateMachine):
    """A cluster whose settings come from a seed and whose steps come from hypothesis."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None
        self.count = 0

    @initialize(seed=_SEEDS)
    def begin(self, seed: int) -> None:
        made = make(seed)
        self.world = World(Schedule(seed, made.settings, ()))
        self.world.begin()

    def _do(self, what: str, *arguments: int) -> None:
        assert self.world is not None
        self.count += 1
        self.world.do(Step(0, what, arguments))

    # --- applications ------------------------------------------------------------------------------------------------

    @rule(duration_ms=st.sampled_from((1, 10, 50, 200)))
    def pass_time(self, duration_ms: int) -> None:
        assert self.world is not None
        self.world.pass_time(duration_ms)

    @rule(
        producer=_NUMBERS,
        partition=st.integers(-1, 2),
        size=st.sampled_from((8, 60, 300)),
        count=st.sampled_from((1, 5)),
    )
    def send(self, producer: int, partition: int, size: int, count: int) -> None:
        self._do(steps.SEND, producer, partition, size, count)

    @rule(producer=_NUMBERS, timeout_ms=st.sampled_from((10, 100_000)))
    def flush(self, producer: int, timeout_ms: int) -> None:
        self._do(steps.FLUSH, producer, timeout_ms)

    @rule(producer=_NUMBERS, timeout_ms=st.sampled_from((0, 400, 100_000)))
    def close_producer(self, producer: int, timeout_ms: int) -> None:
        self._do(steps.CLOSE_PRODUCER, producer, timeout_ms)

    @rule(what=st.sampled_from((steps.LEAVE, steps.CRASH_CONSUMER, steps.SEEK, steps.WAKEUP)), consumer=_NUMBERS)
    def consumer(self, what: str, consumer: int) -> None:
        self._do(what, consumer)

    @rule(consumer=_NUMBERS, wait=st.integers(0, 1))
    def commit(self, consumer: int, wait: int) -> None:
        self._do(steps.COMMIT, consumer, wait)

    @rule(consumer=_NUMBERS, duration_ms=_DURATIONS)
    def busy(self, consumer: int, duration_ms: int) -> None:
        self._do(steps.BUSY, consumer, duration_ms)

    # --- faults ------------------------------------------------------------------------------------------------------

    @rule(
        what=st.sampled_from((steps.KILL, steps.STOP, steps.PAUSE, steps.STALE_METADATA)),
        broker=_BROKERS,
        duration_ms=_DURATIONS,
    )
    def broker_fault(self, what: str, broker: int, duration_ms: int) -> None:
        self._do(what, broker, duration_ms)

    @rule(what=st.sampled_from((steps.CUT, steps.RESET)), broker=_BROKERS, other=_PARTIES, duration_ms=_DURATIONS)
    def cut(self, what: str, broker: int, other: int, duration_ms: int) -> None:
        self._do(what, broker, other, duration_ms)

    @rule(partition=_NUMBERS, broker=_BROKERS)
    def move_leader(self, partition: int, broker: int) -> None:
        self._do(steps.MOVE_LEADER, partition, broker)

    @rule(what=st.sampled_from((steps.DROP_REQUEST, steps.DROP_RESPONSE)), api=_API_NUMBERS, times=_TIMES)
    def drop(self, what: str, api: int, times: int) -> None:
        self._do(what, api, times)

    @rule(api=_API_NUMBERS, error=st.integers(0, 100), times=_TIMES)
    def error(self, api: int, error: int, times: int) -> None:
        codes = ERRORS[APIS[api]]
        self._do(steps.ERROR, api, codes[error % len(codes)], times)

    @rule(broker=_BROKERS)
    def expire_session(self, broker: int) -> None:
        self._do(steps.EXPIRE_SESSION, broker)

    def teardown(self) -> None:
        world = self.world
        if world is None:
            return
        try:
            world.finish()
        finally:
            world.close()


TestClusterMachine = ClusterMachine.TestCase
TestClusterMachine.settings = settings(
    max_examples=examples(40), stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
