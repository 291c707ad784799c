"""The faults of a schedule: start and end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pykclient.errors import IllegalStateError
from pykclient.testing.broker_context import RUNNING
from pykclient.testing.event_loop import TimerHandle
from pykclient.testing.simulation import Simulation
from pykclient.testing.simulation.simulation import SimulatedEnvironment
from pykclient.types import TopicPartition
from tests.simulation import schedule as steps
from tests.simulation.applications import GROUP_METADATA
from tests.simulation.schedule import (
    APIS,
    CLIENTS,
    CONTROLLER,
    COORDINATION,
    EVERYBODY,
    FOLLOWER,
    GROUP_COORDINATOR,
    LEADER,
    Settings,
    Step,
)

_LOOK_MS: Final = 20
_PARTIES: Final = {CLIENTS: "client:*", EVERYBODY: "*", COORDINATION: "coordination"}


class FaultMaker:
    """The current faults of a cluster. A step that makes no sense at its time does nothing."""

    def __init__(
        self,
        simulation: Simulation,
        settings: Settings,
        partitions: Sequence[TopicPartition],
        before_loss: Callable[[], None],
        environments: Callable[[], Iterable[SimulatedEnvironment]],
    ) -> None:
        """Start without faults.

        ``before_loss`` is called before a broker loses its memory; ``environments`` returns those of the clients.
        """
        self._before_loss = before_loss
        self._environments = environments
        self._cluster = simulation.cluster
        self._loop = simulation.loop
        self._settings = settings
        self._partitions = partitions
        self._ends: list[TimerHandle] = []
        self._set_links()

    def _set_links(self) -> None:
        settings = self._settings
        if settings.link_delay_ms or settings.link_jitter_ms:
            self._cluster.faults.delay("*", "*", settings.link_delay_ms, jitter_ms=settings.link_jitter_ms)

    def _broker(self, number: int) -> int:
        """Return the id of a broker given by number or by role."""
        tp = self._partitions[0]
        leader = self._cluster.leader(tp)
        found: int | None = number
        if number == LEADER:
            found = leader
        elif number == FOLLOWER:
            found = next((id for id in self._cluster.isr(tp) if id != leader), None)
        elif number == GROUP_COORDINATOR:
            found = self._cluster.leader(GROUP_METADATA)
        elif number == CONTROLLER:
            controller = self._cluster.active_controller()
            found = None if controller is None else controller.id
        return ((found or 1) - 1) % self._settings.brokers + 1

    def _party(self, number: int) -> str | int:
        return _PARTIES.get(number) or self._broker(number)

    def do(self, step: Step) -> None:
        a = step.arguments
        broker = self._broker(a[0])
        faults = self._cluster.faults
        if step.what == steps.KILL:
            self._kill(broker, a[1])
        elif step.what == steps.STOP:
            self._stop(broker, a[1])
        elif step.what == steps.PAUSE:
            if self._is_alive(broker):
                self._cluster.pause_broker(broker)
                self._later(a[1], self._resume, broker)
        elif step.what == steps.MOVE_LEADER:
            self.move_leader(self._partitions[a[0] % len(self._partitions)], self._broker(a[1]))
        elif step.what == steps.DROP_REQUEST:
            faults.drop_requests(APIS[a[0]], times=a[1], disconnect=a[1] == 1)
        elif step.what == steps.DROP_RESPONSE:
            faults.drop_responses(APIS[a[0]], times=a[1], disconnect=a[1] == 1)
        elif step.what == steps.ERROR:
            faults.answer(APIS[a[0]], a[1], times=a[2])
        elif step.what == steps.HOLD:
            control = faults.hold(APIS[a[0]], times=a[1])
            self._later(a[2], control.remove)
            self._later(a[2], control.release)
        elif step.what == steps.STALE_METADATA:
            if self._is_alive(broker):
                self._cluster.broker(broker).metadata_cache.freeze()
                self._later(a[1], self._thaw, broker)
        elif step.what == steps.SLOW_DISK:
            self._cluster.disk(broker).write_delay_ms = a[2]
            self._later(a[1], self._speed_up, broker)
        elif step.what in (steps.HANG_DNS, steps.FAIL_DNS):
            self.lose_name(broker, hang=step.what == steps.HANG_DNS)
            self._later(a[1], self._find_names)
        elif step.what == steps.EXPIRE_SESSION:
            if self._is_alive(broker):
                self._cluster.broker(broker).coordination.expire()
        else:
            self._harm_link(step)

    def _harm_link(self, step: Step) -> None:
        faults = self._cluster.faults
        a, b = self._party(step.arguments[0]), self._party(step.arguments[1])
        duration_ms = step.arguments[2]
        if a == b:
            return
        if step.what == steps.CUT:
            faults.cut(a, b)
        elif step.what == steps.RESET:
            faults.cut(a, b, reset=True)
        elif step.what == steps.DELAY:
            faults.delay(a, b, step.arguments[3], jitter_ms=step.arguments[4])
        elif step.what == steps.NARROW:
            faults.throttle(a, b, step.arguments[3])
        else:
            raise AssertionError(step)
        self._later(duration_ms, faults.heal, a, b)

    def _later(self, delay_ms: int, end: Callable[..., object], *arguments: object) -> None:
        self._ends.append(self._loop.call_later(delay_ms, end, *arguments))

    def lose_name(self, broker: int, *, hang: bool) -> None:
        """Break the clients' connections to a broker, whose name then times out or does not resolve."""
        host = self._cluster.nodes[broker].host
        for environment in self._environments():
            if hang:
                environment.host_resolver.hang(host)
            else:
                environment.host_resolver.fail(host)
            self._cluster.faults.cut(environment.party, broker, reset=True)
            self._cluster.faults.heal(environment.party, broker)
        self._set_links()

    def _find_names(self) -> None:
        for environment in self._environments():
            environment.host_resolver.recover()
            environment.host_resolver.answer()

    # --- brokers -----------------------------------------------------------------------------------------------------

    def _is_alive(self, broker: int) -> bool:
        return any(alive.id == broker for alive in self._cluster.alive_brokers())

    def _kill(self, broker: int, duration_ms: int) -> None:
        if self._is_alive(broker):
            self._resume(broker)
            self._before_loss()
            self._cluster.kill_broker(broker)
            self._later(duration_ms, self._restart, broker)

    def _stop(self, broker: int, duration_ms: int) -> None:
        if self._is_alive(broker) and self._cluster.broker(broker).state == RUNNING:
            self._cluster.stop_broker(broker)
            self._later(duration_ms, self._restart, broker)

    def _restart(self, broker: int) -> None:
        links = self._cluster.faults.links
        if links.is_cut(f"broker-{broker}", "coordination") or links.is_cut("coordination", f"broker-{broker}"):
            self._later(_LOOK_MS, self._restart, broker)  # a restart would not succeed yet
        elif not self._is_alive(broker):
            self._before_loss()
            self._cluster.start_broker(broker)
        elif self._cluster.broker(broker).state != RUNNING:  # its shutdown takes longer than its planned absence
            self._later(_LOOK_MS, self._restart, broker)

    def _resume(self, broker: int) -> None:
        if self._is_alive(broker):
            self._cluster.resume_broker(broker)

    def _thaw(self, broker: int) -> None:
        if self._is_alive(broker):
            self._cluster.broker(broker).metadata_cache.thaw()

    def _speed_up(self, broker: int) -> None:
        self._cluster.disk(broker).write_delay_ms = 0

    def move_leader(self, tp: TopicPartition, broker: int) -> None:
        """Make the broker the leader of the partition, if it runs and the controller allows it."""
        try:
            self._cluster.move_leader(tp, broker)
        except IllegalStateError:  # a broker that is down, no controller, or no such replica, as on real clusters
            return

    def all_running(self) -> bool:
        """Return whether no broker is down or shutting down."""
        alive = self._cluster.alive_brokers()
        return len(alive) == len(self._cluster.nodes) and all(broker.state == RUNNING for broker in alive)

    def heal(self) -> None:
        """End all faults, and start the brokers that are down."""
        for end in self._ends:
            end.cancel()
        self._ends.clear()
        self._cluster.faults.clear()
        self._set_links()
        self._find_names()
        for broker in self._cluster.nodes:
            self._speed_up(broker)
            self._resume(broker)
            self._thaw(broker)
            self._restart(broker)
