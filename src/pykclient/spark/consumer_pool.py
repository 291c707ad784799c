"""The consumers of a Python worker, kept from task to task (Spark: InternalKafkaConsumerPool, FetchedDataPool).

Spark's workers outlive tasks, micro-batches and queries. An idle consumer keeps its connections, so that the next task
does not have to open them. A consumer that a stream has used also keeps the records that it fetched past the end of its
ranges, and its fetch in flight. It is *warm*: it waits for the micro-batch that continues where this one ended.

Only tasks of the same run of the same query get a warm consumer, and only for the same partitions of the same topics.
The log may change between runs: if the topic is deleted and created again, other records are at these offsets. Other
partitions would also have to wait: a fetch in flight may stay at a broker for ``fetch.max.wait.ms`` while there is
nothing new, and no other fetch is sent to that broker meanwhile. Any task may take a consumer that is not warm.

No thread closes idle consumers: ``acquire`` and ``release`` close those that have expired.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import KafkaError
from pykclient.spark.worker import KEPT_BYTES, MAX_WARM
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

#: The maximum number of idle consumers (Spark: spark.kafka.consumer.cache.capacity).
CAPACITY = 64

#: The idle time after which a consumer is closed (Spark: spark.kafka.consumer.cache.timeout).
IDLE_TIMEOUT_MS = 5 * 60_000

_RESPONSE_BYTES = "fetch.max.bytes"
_DEFAULT_RESPONSE_BYTES = ConsumerConfig.DEFINITION.keys[_RESPONSE_BYTES].default

_logger = logging.getLogger(__name__)

AnyConsumer = KafkaConsumer[Any, Any]

#: Partitions and the ids of their topics; None where the brokers have no topic ids (before Kafka 2.8).
Partitions = Mapping[TopicPartition, "UUID | None"]


class PooledConsumer:
    """A consumer, what is assigned to it, and its positions. Thread: owner."""

    def __init__(self, config: Mapping[str, object], consumer: AnyConsumer) -> None:
        self.config = config
        self.consumer = consumer
        #: The partitions assigned to the consumer.
        self.partitions: dict[TopicPartition, UUID | None] = {}
        #: The next offset to read in each partition, where it is known. The consumer's own position may be higher, past
        #: offsets without records.
        self.positions: dict[TopicPartition, int] = {}
        #: The run of a streaming query whose tasks may take the consumer while it is warm.
        self.run: str | None = None
        self.idle_since_ms = 0

    @property
    def is_warm(self) -> bool:
        """True if the consumer keeps its assignment and what it has fetched."""
        return bool(self.partitions)

    @property
    def response_bytes(self) -> int:
        """The size of the response that the consumer may keep of each broker, unless one record is larger."""
        return int(str(self.config.get(_RESPONSE_BYTES, _DEFAULT_RESPONSE_BYTES)))

    def assign(self, partitions: Partitions, starts: Mapping[TopicPartition, int]) -> None:
        """Assign ``partitions``, and seek to ``starts`` where the consumer is not there already."""
        consumer = self.consumer
        if self.partitions != partitions:
            consumer.assign(list(partitions))
            self.positions = {
                tp: offset
                for tp, offset in self.positions.items()
                if tp in partitions and partitions[tp] == self.partitions[tp]
            }
            self.partitions = dict(partitions)
        for tp, offset in starts.items():
            if self.positions.get(tp) != offset:
                consumer.seek(tp, offset, topic_id=partitions[tp])
        self.positions = dict(starts)
        consumer.resume(*starts)

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Remove all other partitions from the assignment."""
        self.partitions = {tp: topic_id for tp, topic_id in self.partitions.items() if tp in partitions}
        self.positions = {tp: offset for tp, offset in self.positions.items() if tp in partitions}
        self.consumer.assign(list(self.partitions))

    def bytes_and_records_read(self) -> tuple[float, float]:
        """Return how many bytes and records the consumer has read since it was created.

        Responses that are not consumed to their end do not count yet.
        """
        # Not metrics() with all values: computing them takes as long as a fetch.
        totals = {
            name.name: metric
            for name, metric in self.consumer.metrics(raw=True).items()
            if name.group == "consumer-fetch-manager-metrics" and "topic" not in name.tags
        }
        return totals["bytes-consumed-total"].metric_value(), totals["records-consumed-total"].metric_value()

    def prefetch(self) -> bool:
        """Send the fetches for what comes after the positions; return False if that fails."""
        try:
            self.consumer.resume(*self.partitions)
            self.consumer.prefetch()
        except KafkaError as error:
            _logger.debug("Not fetching for the next task: %s", error)
            return False
        return True

    def cool(self) -> bool:
        """Drop the assignment and keep the connections; return False if that fails."""
        try:
            self.consumer.unsubscribe()
        except KafkaError as error:
            _logger.debug("Closing a consumer instead of keeping it: %s", error)
            return False
        self.partitions = {}
        self.positions = {}
        return True

    def close(self) -> None:
        """Close the consumer at once. Brokers end the fetch sessions of closed connections by themselves."""
        with contextlib.suppress(KafkaError):
            self.consumer.close(autocommit=False, timeout_ms=0)


class ConsumerPool:
    """Idle consumers, each lent to one task at a time. Thread: any."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, new_consumer: Callable[..., AnyConsumer] = KafkaConsumer) -> None:
        self._clock = clock
        self._new_consumer = new_consumer
        self._lock = threading.Lock()  # guards: _idle
        #: In the order of their release.
        self._idle: list[PooledConsumer] = []

    def __len__(self) -> int:
        """Return the number of idle consumers."""
        return len(self._idle)

    def acquire(
        self, config: Mapping[str, object], partitions: Partitions, *, run: str | None = None, fresh: bool = False
    ) -> PooledConsumer:
        """Return a consumer with this configuration, an idle one if there is one that fits.

        A task of a stream names its ``run``, and gets the warm consumer that this run has left for ``partitions``.
        Otherwise the consumer has no assignment. With ``fresh`` it is a new one, and the warm one is closed: what that
        consumer knows may be the reason why an earlier attempt at the task failed (as in KafkaDataConsumer.acquire).

        Raises:
            ConfigError: The configuration is wrong.
        """
        with self._lock:
            closed = self._take_expired()
            own = [
                each
                for each in self._idle
                if run is not None
                and each.run == run
                and each.partitions.keys() == partitions.keys()
                and each.config == config
            ]
            # Records fetched of a deleted topic must not be read as records of its successor.
            found = None if fresh else next((each for each in reversed(own) if each.partitions == partitions), None)
            stale = [each for each in own if fresh or each.partitions != partitions]
            closed += stale
            if found is None and not fresh:
                cold = [each for each in self._idle if not each.is_warm and each.config == config]
                found = cold[-1] if cold else None
            self._idle = [each for each in self._idle if each is not found and each not in stale]
        for each in closed:
            each.close()
        return found or PooledConsumer(dict(config), self._new_consumer(config))

    def release(self, pooled: PooledConsumer, *, run: str | None = None) -> None:
        """Return ``pooled`` to the pool: with its assignment for tasks of ``run``, or without one for any task.

        Consumers that would keep more than ``KEPT_BYTES`` altogether are closed, the oldest first. No error of the
        consumer is raised: it must not fail the task that has just read its ranges.
        """
        if pooled.response_bytes > KEPT_BYTES:
            run = None
        if not (pooled.cool() if run is None else pooled.prefetch()):
            pooled.close()
            return
        pooled.run = run
        pooled.idle_since_ms = self._clock.now_ms()
        with self._lock:
            closed = self._take_expired()
            self._idle.append(pooled)
            # Closed and not cooled: the response to its fetch in flight could be taken for the response to a later one.
            surplus = self._surplus()
            self._idle = [each for each in self._idle if each not in surplus]
            surplus += self._idle[:-CAPACITY]
            self._idle = self._idle[-CAPACITY:]
        for each in (*closed, *surplus):
            each.close()

    def _surplus(self) -> list[PooledConsumer]:
        """Return the warm consumers beyond the bounds."""
        warm = [each for each in reversed(self._idle) if each.is_warm]
        sizes = accumulate(each.response_bytes for each in warm)
        return [
            each
            for number, (each, size) in enumerate(zip(warm, sizes, strict=True))
            if number >= MAX_WARM or size > KEPT_BYTES
        ]

    def discard(self, pooled: PooledConsumer) -> None:
        """Close ``pooled`` instead of keeping it: its task has failed, or stopped with fetches in flight."""
        pooled.close()

    def close(self) -> None:
        """Close all idle consumers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def _take_expired(self) -> list[PooledConsumer]:
        oldest_ms = self._clock.now_ms() - IDLE_TIMEOUT_MS
        expired = [each for each in self._idle if each.idle_since_ms <= oldest_ms]
        if expired:
            self._idle = [each for each in self._idle if each.idle_since_ms > oldest_ms]
        return expired


#: The last pool is this process's. The others belong to the processes that it was forked from. They are kept, so that
#: nothing of them is finalized here: their connections are still in use there.
_pools = [ConsumerPool()]


def pool() -> ConsumerPool:
    """Return the pool of this process."""
    return _pools[-1]


@atexit.register
def _close() -> None:
    """Close the connections when an interpreter exits. Spark ends its workers without it."""
    pool().close()


os.register_at_fork(after_in_child=lambda: _pools.append(ConsumerPool()))
