"""The consumers of a Python worker, kept from task to task (Spark: InternalKafkaConsumerPool, FetchedDataPool).

Spark's workers outlive tasks, micro-batches and queries. A consumer that waits here keeps its connections, so that a
task need not wait for them. One whose task was part of a stream also keeps what was fetched beyond the end of its
ranges, and the fetch that it has under way: it is *warm*, and waits for the micro-batch that begins where it stands.

Warm consumers are for their own partitions only: a fetch under way may stay at a broker for ``fetch.max.wait.ms`` while
there is nothing new, and no other is sent to that broker meanwhile. The others take any partitions.

There is no thread that ends what is idle: whoever comes for a consumer, or brings one back, does that first.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import KafkaError
from pykclient.types import TopicPartition

#: How many consumers wait at most (Spark: spark.kafka.consumer.cache.capacity).
CAPACITY = 64

#: For how long one waits (Spark: spark.kafka.consumer.cache.timeout).
IDLE_TIMEOUT_MS = 5 * 60_000

#: How many of them are warm at most: each may hold a whole response, ``fetch.max.bytes``.
MAX_WARM = 8

_logger = logging.getLogger(__name__)

AnyConsumer = KafkaConsumer[Any, Any]


class PooledConsumer:
    """A consumer and where it stands. Thread: owner."""

    __slots__ = ("config", "consumer", "idle_since_ms", "partitions", "positions")

    def __init__(self, config: Mapping[str, object], consumer: AnyConsumer) -> None:
        self.config = config
        self.consumer = consumer
        #: What is assigned to it.
        self.partitions: frozenset[TopicPartition] = frozenset()
        #: What follows next of these, where that is known. The consumer's own position may be beyond, over offsets
        #: without records.
        self.positions: dict[TopicPartition, int] = {}
        self.idle_since_ms = 0

    @property
    def is_warm(self) -> bool:
        """Whether it keeps what it fetched of some partitions, and waits for these."""
        return bool(self.partitions)

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Make it read these partitions from these offsets, with what it has of them."""
        consumer = self.consumer
        if self.partitions != starts.keys():
            consumer.assign(list(starts))
            self.partitions = frozenset(starts)
            self.positions = {tp: offset for tp, offset in self.positions.items() if tp in starts}
        for tp, offset in starts.items():
            if self.positions.get(tp) != offset:
                consumer.seek(tp, offset)
        self.positions = dict(starts)
        consumer.resume(*starts)

    def bytes_and_records_read(self) -> tuple[float, float]:
        """How much the consumer has read since it was made, in responses that it is done with."""
        # Not all values, as metrics() without raw has them: they take as long as a fetch.
        totals = {
            name.name: metric
            for name, metric in self.consumer.metrics(raw=True).items()
            if name.group == "consumer-fetch-manager-metrics" and "topic" not in name.tags
        }
        return totals["bytes-consumed-total"].metric_value(), totals["records-consumed-total"].metric_value()

    def prefetch(self) -> bool:
        """Let it fetch what comes behind where it stands, for whoever takes it next; False when it cannot."""
        try:
            self.consumer.resume(*self.partitions)
            self.consumer.prefetch()
        except KafkaError as error:
            _logger.debug("No fetch for the next task: %s", error)
            return False
        return True

    def cool(self) -> bool:
        """Let go of all but the connections; False when it cannot."""
        try:
            self.consumer.unsubscribe()
        except KafkaError as error:
            _logger.debug("A consumer is not kept: %s", error)
            return False
        self.partitions = frozenset()
        self.positions = {}
        return True

    def close(self) -> None:
        # No time for good-byes, which nobody needs: brokers end the sessions of connections that are gone.
        with contextlib.suppress(KafkaError):
            self.consumer.close(autocommit=False, timeout_ms=0)


class ConsumerPool:
    """Who takes a consumer has it alone, until it is released or discarded. Thread: any."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, new_consumer: Callable[..., AnyConsumer] = KafkaConsumer) -> None:
        self._clock = clock
        self._new_consumer = new_consumer
        self._lock = threading.Lock()  # guards: _idle
        #: The one that was released last is last.
        self._idle: list[PooledConsumer] = []

    def __len__(self) -> int:
        """How many wait."""
        return len(self._idle)

    def acquire(
        self, config: Mapping[str, object], partitions: Collection[TopicPartition], *, fresh: bool = False
    ) -> PooledConsumer:
        """A consumer of this configuration: one that has read these partitions, or one that reads none, or a new one.

        With ``fresh`` it is new, and what waits for these partitions is closed: a task that failed may have done so for
        what its consumer knows (as in KafkaDataConsumer.acquire).

        Raises ConfigError.
        """
        wanted = frozenset(partitions)
        with self._lock:
            closed = self._take_expired()
            own = [each for each in self._idle if each.partitions == wanted and each.config == config]
            if fresh:
                closed += own
                self._idle = [each for each in self._idle if each not in own]
                found = None
            else:
                cold = [each for each in self._idle if not each.is_warm and each.config == config]
                found = own[-1] if own else cold[-1] if cold else None
                if found is not None:
                    self._idle.remove(found)
        for each in closed:
            each.close()
        return found or PooledConsumer(dict(config), self._new_consumer(config))

    def release(self, pooled: PooledConsumer, *, warm: bool = False) -> None:
        """Bring it back, so that another task may have it: with what it has fetched, or without.

        Raises nothing of Kafka's: the task that has read its ranges is not to fail for the next one.
        """
        if not (pooled.prefetch() if warm else pooled.cool()):
            pooled.close()
            return
        pooled.idle_since_ms = self._clock.now_ms()
        with self._lock:
            closed = self._take_expired()
            self._idle.append(pooled)
            while len(self._idle) > CAPACITY:
                closed.append(self._idle.pop(0))
            # Under the lock, as they could be taken otherwise.
            for each in [each for each in self._idle if each.is_warm][:-MAX_WARM]:
                if not each.cool():
                    self._idle.remove(each)
                    closed.append(each)
        for each in closed:
            each.close()

    def discard(self, pooled: PooledConsumer) -> None:
        """After a failure nobody shall have it."""
        pooled.close()

    def close(self) -> None:
        """Close all that wait."""
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


#: The last one is of this process, the others of those that it was forked from. These are kept, as nothing of them may
#: be finalized here: the connections are not ours.
_pools = [ConsumerPool()]


def pool() -> ConsumerPool:
    """The pool of this process."""
    return _pools[-1]


@atexit.register
def _close() -> None:
    """Spark's workers end without this; where an interpreter ends in order, so do its connections."""
    pool().close()


os.register_at_fork(after_in_child=lambda: _pools.append(ConsumerPool()))
