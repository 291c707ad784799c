"""A large group in a simulation: members join and leave, and those that keep their partitions do not notice.

    python -m tests.simulation.large_groups --members 100 --partitions 1000

The run of a seed is the same in each process. Time passes only where somebody waits.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any, Final

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.consumer.values import ConsumerRebalanceListener
from pykclient.testing.simulation import Simulation
from pykclient.testing.simulation.checks import InvariantError
from pykclient.types import TopicPartition
from tests.simulation import seeds

TOPIC, GROUP = "orders", "large"
HEARTBEAT_MS: Final = 3_000
_POLL_MS: Final = 200
_SETTLING_MS: Final = 120_000


class Member(ConsumerRebalanceListener):
    """A process with a consumer that polls until it is told to stop. It knows its longest poll."""

    def __init__(self, group: LargeGroup, number: int) -> None:
        self.owned: set[TopicPartition] = set()
        self.given_up: set[TopicPartition] = set()  # since the last ``forget``
        self.longest_poll_ms = 0
        self.stopping = False
        self._group = group
        self._number = number
        simulation = group.simulation
        self._environment = simulation.environment(f"member-{number}")
        self.actor = simulation.actor(self._run, f"member-{number}")

    def forget(self) -> None:
        self.given_up = set()
        self.longest_poll_ms = 0

    def crash(self) -> None:
        """Kill the process, if it runs. Called by another actor."""
        if not self.actor.done:
            self._environment.crash(self.actor)
            if hasattr(self, "_consumer"):
                self._consumer._guard.closed = True  # so that it is collected without a warning

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.owned |= assigned

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.owned -= revoked
        self.given_up |= revoked

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        raise InvariantError(f"member {self._number} lost {len(lost)} partitions")

    def _run(self) -> None:
        clock = self._group.simulation.clock
        settings: dict[str, Any] = {
            "bootstrap.servers": self._group.simulation.bootstrap_servers,
            "client.id": f"member-{self._number}",
            "group.id": GROUP,
            "group.protocol": self._group.protocol,
            "auto.offset.reset": "earliest",
            "fetch.max.wait.ms": 5_000,
        }
        if self._group.protocol == "classic":
            settings |= {"partition.assignment.strategy": self._group.assignor, "heartbeat.interval.ms": HEARTBEAT_MS}
        consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer.in_environment(self._environment, settings)
        self._consumer = consumer
        with consumer:
            consumer.subscribe([TOPIC], listener=self)
            while not self.stopping:
                begun_ms = clock.now_ms()
                consumer.poll(_POLL_MS)
                self.longest_poll_ms = max(self.longest_poll_ms, clock.now_ms() - begun_ms)


class LargeGroup:
    """The members of one group, and the checks of what happens to them."""

    assignor = "cooperative-sticky"

    def __init__(self, seed: int, protocol: str, members: int, partitions: int) -> None:
        self.protocol = protocol
        self._wanted = members
        self._partitions = partitions
        self._rng = random.Random(seed)
        config = {"group.consumer.heartbeat.interval.ms": HEARTBEAT_MS, "offsets.topic.num.partitions": 1}
        self.simulation = Simulation(seed, 1, config=config)
        self.members: list[Member] = []
        self._started: list[Member] = []  # with those that have left

    def run(self) -> None:
        """Let the group form; then let members join and leave, one by one and several at once.

        Raises:
            InvariantError: the group does not become stable, a partition rests or moves that need not, or a member that
                keeps partitions waits for the others in ``poll``.
        """
        with self.simulation:
            try:
                self.simulation.create_topic(TOPIC, self._partitions)
                self._change(self._wanted, 0)
                for joining, leaving in ((1, 0), (0, 1), (2, 0), (0, 2)):
                    self._change(joining, leaving)
                for member in self.members:
                    member.stopping = True
                self._await(lambda: all(member.actor.done for member in self._started))
            finally:
                for member in self._started:
                    member.crash()

    def _change(self, joining: int, leaving: int) -> None:
        """Start and stop members at random, wait until all partitions have owners, and check what has moved."""
        before = {member: set(member.owned) for member in self.members}
        for member in self.members:
            member.forget()
        left = self._rng.sample(self.members, leaving)
        for member in left:
            member.stopping = True
        self.members = [member for member in self.members if member not in left]
        for _ in range(joining):
            self._started.append(Member(self, len(self._started)))
            self.members.append(self._started[-1])
        self._await(self._is_shared)
        for member, owned in before.items():
            if member not in left:
                self._check_keeper(member, owned)

    def _check_keeper(self, member: Member, owned: set[TopicPartition]) -> None:
        if member.longest_poll_ms > HEARTBEAT_MS:
            raise InvariantError(f"a poll took {member.longest_poll_ms} ms, longer than a heartbeat interval")
        fair = self._partitions // len(self.members)
        if rested := member.given_up & member.owned:
            raise InvariantError(f"{len(rested)} partitions were given up and came back")
        if len(owned) - len(member.given_up) < min(len(owned), fair):
            raise InvariantError(
                f"a member with {len(owned)} partitions gave up {len(member.given_up)}; a fair share is {fair}"
            )

    def _is_shared(self) -> bool:
        """Return whether each partition has one owner and the shares are equal."""
        owned = [member.owned for member in self.members]
        sizes = [*map(len, owned)]
        return sum(sizes) == len(set().union(*owned)) == self._partitions and max(sizes) - min(sizes) <= 1

    def _await(self, condition: Any) -> None:
        clock = self.simulation.clock
        deadline_ms = clock.now_ms() + _SETTLING_MS
        self.simulation.run(lambda: condition() or clock.now_ms() > deadline_ms)
        if not condition():
            shares = sorted(len(member.owned) for member in self.members)
            raise InvariantError(f"not stable within {_SETTLING_MS / 1000} s: shares of {shares}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.large_groups")
    seeds.add_options(parser)
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--partitions", type=int, default=40)
    parser.add_argument("--protocol", default="consumer")
    options = parser.parse_args()
    failed = seeds.run(
        lambda seed: seeds.failure_of(
            lambda: LargeGroup(seed, options.protocol, options.members, options.partitions).run()
        ),
        seeds.first_seed(options),
        options,
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
