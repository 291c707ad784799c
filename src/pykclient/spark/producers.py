"""Producers for code in Spark's tasks: one per Python worker and configuration.

A new producer needs connections, metadata and a producer id, which may take longer than a task. So a worker keeps its
producers for later tasks, as Spark's own sink does (Spark: InternalKafkaProducerPool).

Spark's Python workers are forks of a daemon. They end without running any more Python code: by ``os._exit`` once Spark
has closed their socket (after a minute without a task, after an error, at the end of the application), or by SIGHUP and
SIGKILL. Neither ``atexit`` nor destructors run. Therefore no work is left for the end: a task's records are
acknowledged before its ``with`` block ends, and Spark repeats a task that was killed before that. If the interpreter
exits normally, as on the driver or with ``spark.python.use.daemon=false``, producers are closed at its exit.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from types import NoneType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError, IllegalStateError
from pykclient.network.client_utils import parse_addresses
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.spark.deliveries import Deliveries
from pykclient.spark.worker import task_name

if TYPE_CHECKING:
    from pykclient.producer.columns import BatchFuture
    from pykclient.producer.future import FutureRecordMetadata, OnDelivery
    from pykclient.types import Headers, ProducerRecord

#: The idle time after which a producer is closed (Spark: spark.kafka.producer.cache.timeout).
IDLE_TIMEOUT_MS = 10 * 60_000

#: The maximum number of idle producers.
MAX_IDLE = 16

#: The time that the records of a failed task have left to be sent. Spark repeats the task.
_FAILED_CLOSE_S = 1.0

#: Defaults for writing whole columns. Large batches cost client and brokers a fraction of those of 16 KiB, Kafka's
#: default, and the latency of single records does not matter.
_BULK_BATCH_SIZE_BYTES = 256 * 1024
_BULK_LINGER_MS = 100
_BULK_BUFFER_MEMORY_BYTES = 64 * 1024 * 1024

#: The minimum number of batches that fit into ``buffer.memory``.
_BULK_BATCHES_IN_BUFFER = 16


def bulk_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``config`` with defaults for writing whole columns, which do not contradict its other settings.

    Raises:
        ConfigError: A setting is wrong, or there are interceptors, which would need single records.
    """
    made = ProducerConfig.DEFINITION.read(config)
    if made.get("interceptor.classes"):
        raise ConfigError(
            "interceptor.classes cannot be set here: rows are written by whole columns, which interceptors do not see",
            key="interceptor.classes",
        )
    if "buffer.memory" not in made:
        made["buffer.memory"] = _BULK_BUFFER_MEMORY_BYTES
    if "linger.ms" not in made and "delivery.timeout.ms" not in made:  # which must be longer
        made["linger.ms"] = _BULK_LINGER_MS
    if "batch.size" not in made:
        settings = ProducerConfig(made)
        room = settings["buffer.memory"] // _BULK_BATCHES_IN_BUFFER
        made["batch.size"] = min(_BULK_BATCH_SIZE_BYTES, settings["max.request.size"], room)
    return made


# --- the pool --------------------------------------------------------------------------------------------------------


class PooledProducer:
    """A producer and the number of its users. Thread: any, under the pool's lock."""

    def __init__(self, key: Any, producer: KafkaProducer[Any, Any]) -> None:
        self.key = key
        self.producer = producer
        self.leases = 0
        self.idle_since_ms = 0
        self.discarded = False


class ProducerPool:
    """Producers by their configuration (Spark: InternalKafkaProducerPool).

    Producers that were idle for ``idle_timeout_ms`` are closed when the pool is next used; Spark ends a worker without
    tasks after a minute. Thread: any.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        make: Callable[[Mapping[str, Any]], KafkaProducer[Any, Any]] = KafkaProducer,
        idle_timeout_ms: int = IDLE_TIMEOUT_MS,
        max_idle: int = MAX_IDLE,
    ) -> None:
        self._clock = clock
        self._make = make
        self._idle_timeout_ms = idle_timeout_ms
        self._max_idle = max_idle
        self._lock = threading.Lock()  # guards: _by_key and its values
        self._by_key: dict[Any, PooledProducer] = {}

    def acquire(self, config: Mapping[str, Any], fingerprint: str | None = None) -> PooledProducer:
        """Return the producer with this configuration, created if necessary. Pair each call with ``release``.

        Objects in the configuration that cannot be compared count as equal if they are identical. With a
        ``fingerprint`` (of the pickle that contained the configuration) they count as equal if it is equal.

        Raises:
            ConfigError: The configuration is wrong.
        """
        key = _frozen(config, fingerprint)
        with self._lock:
            pooled = self._by_key.get(key)
            if pooled is None:
                # Created under the lock, for a millisecond, so that two threads do not create two.
                pooled = self._by_key[key] = PooledProducer(key, self._make(config))
            pooled.leases += 1
            expired = self._take_expired()
        _close(expired, None)
        return pooled

    def release(self, pooled: PooledProducer, *, failed: bool = False) -> None:
        """Return a producer to the pool. After a failed task it is closed, within a second, and not used again.

        A successful task has flushed it.
        """
        with self._lock:
            pooled.leases -= 1
            pooled.idle_since_ms = self._clock.now_ms()
            if failed and not pooled.discarded:
                pooled.discarded = True
                if self._by_key.get(pooled.key) is pooled:
                    del self._by_key[pooled.key]
            is_last = pooled.discarded and not pooled.leases
            expired = self._take_expired()
        _close(expired, None)
        if is_last:
            _close([pooled], _FAILED_CLOSE_S)

    def close(self) -> None:
        """Close the idle producers, and the others once they are released."""
        with self._lock:
            idle = [pooled for pooled in self._by_key.values() if not pooled.leases]
            for pooled in self._by_key.values():
                pooled.discarded = True
            self._by_key.clear()
        _close(idle, None)

    def __len__(self) -> int:
        return len(self._by_key)

    def _take_expired(self) -> list[PooledProducer]:
        oldest_ms = self._clock.now_ms() - self._idle_timeout_ms
        idle = sorted(
            (pooled for pooled in self._by_key.values() if not pooled.leases), key=lambda each: each.idle_since_ms
        )
        surplus = len(idle) - self._max_idle
        expired = [each for place, each in enumerate(idle) if each.idle_since_ms < oldest_ms or place < surplus]
        for each in expired:
            del self._by_key[each.key]
        return expired


def _close(pooled: Iterable[PooledProducer], timeout_s: float | None) -> None:
    for each in pooled:
        each.producer.close(timeout_s)


def _frozen(value: Any, fingerprint: str | None) -> Any:
    """Return a hashable value that is equal for equal settings, even after pickling."""
    if isinstance(value, Mapping):
        return ("mapping", tuple(sorted((str(key), _frozen(each, fingerprint)) for key, each in value.items())))
    if isinstance(value, (list, tuple, set, frozenset)):
        return (type(value).__name__, tuple(_frozen(each, fingerprint) for each in value))
    if isinstance(value, (str, bytes, int, float, NoneType)) or _is_found_by_name(value):
        return (type(value), value)
    # A lambda, for instance: each task unpickles its own. The id is unique as long as the producer holds the object.
    return ("object", fingerprint or id(value))


def _is_found_by_name(value: Any) -> bool:
    """Return True for classes and functions that are pickled by name, so that all tasks get the same object."""
    module = sys.modules.get(getattr(value, "__module__", ""))
    return getattr(module, getattr(value, "__qualname__", ""), None) is value


def fingerprint_of(config: Mapping[str, Any]) -> str:
    """Return a hash of the pickled settings, including closures. Do not show it: it covers secrets."""
    from hashlib import sha256

    from pyspark import cloudpickle

    return sha256(cloudpickle.dumps(config)).hexdigest()  # type: ignore[no-untyped-call]


_pool = ProducerPool()


def _renew_pool() -> None:
    """Start without producers in a forked child: they belong to the parent, and their threads do not run here."""
    global _pool  # noqa: PLW0603 - one per process
    _pool = ProducerPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_pool)


def pool() -> ProducerPool:
    """Return the pool of this process."""
    return _pool


def close_shared_producers() -> None:
    """Close the idle producers of this process, and those in use as soon as they are released.

    Workers need not call it. On the driver it frees connections after the last ``foreachBatch``.
    """
    _pool.close()


# --- for foreachPartition and foreachBatch ---------------------------------------------------------------------------


class SharedProducer:
    """The result of ``shared_producer``: a context manager that can be entered any number of times.

    It pickles as its configuration. Its ``repr`` shows only the servers. Thread: any.
    """

    def __init__(self, config: Mapping[str, Any], fingerprint: str | None = None) -> None:
        self._config = config
        self._fingerprint = fingerprint
        self._entered = threading.local()

    def __enter__(self) -> LeasedProducer:
        lease = LeasedProducer(_pool, self._config, self._fingerprint)
        stack: list[LeasedProducer] | None = getattr(self._entered, "stack", None)
        if stack is None:
            stack = self._entered.stack = []
        stack.append(lease)
        return lease

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A generator that is closed early has produced all rows that were needed.
        failed = error_type is not None and not issubclass(error_type, GeneratorExit)
        self._entered.stack.pop().end(failed=failed)

    def __reduce__(self) -> tuple[type[SharedProducer], tuple[Mapping[str, Any], str]]:
        return type(self), (self._config, fingerprint_of(self._config))

    def __repr__(self) -> str:
        return f"<SharedProducer for {self._config['bootstrap.servers']}>"


class LeasedProducer:
    """The process's producer during one ``with`` block, whose end flushes.

    It has the methods of KafkaProducer that a task needs. Thread: any.
    """

    def __init__(self, pool: ProducerPool, config: Mapping[str, Any], fingerprint: str | None) -> None:
        self._pool = pool
        self._deliveries = Deliveries()
        self._pooled = pool.acquire(config, fingerprint)
        self._producer: KafkaProducer[Any, Any] | None = self._pooled.producer

    def send(
        self,
        topic: str | ProducerRecord[Any, Any],
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> FutureRecordMetadata:
        """Send a record as ``KafkaProducer.send`` does. The end of the block raises an error if it is not written."""
        producer = self._producer or self._ended()
        future = producer.send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        self._deliveries.add(future)
        return future

    def send_batch(
        self,
        topic: str,
        data: Any,
        *,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        timestamp: Any = None,
        partition: Any = None,
    ) -> BatchFuture:
        """Send rows as ``KafkaProducer.send_batch`` does. The end of the block raises an error for rows not written."""
        producer = self._producer or self._ended()
        future = producer.send_batch(
            topic, data, value=value, key=key, headers=headers, timestamp=timestamp, partition=partition
        )
        self._deliveries.add(future)
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Wait up to ``timeout`` seconds for all records of this process's producer (``KafkaProducer.flush``)."""
        (self._producer or self._ended()).flush(timeout)

    def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of ``topic`` (``KafkaProducer.partitions_for``)."""
        return (self._producer or self._ended()).partitions_for(topic)

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """Return the metrics of this process's producer (``KafkaProducer.metrics``)."""
        return (self._producer or self._ended()).metrics(raw)

    def check(self) -> None:
        """Raise KafkaError if some of the records sent so far are known to have failed."""
        self._deliveries.check(f"sent so far by {task_name()}")

    def end(self, *, failed: bool) -> int:
        """Release the producer at the end of the ``with`` block, and return how many records were written.

        Unless the block ``failed``, first wait for all records, including those that callbacks send in the meantime.
        Further calls do nothing.

        Raises:
            KafkaError: Some records were not written.
        """
        producer, deliveries = self._producer, self._deliveries
        if producer is None:
            return 0
        try:
            if not failed:
                failed = True
                while failed:
                    producer.flush()
                    deliveries.check(f"of {task_name()}")
                    failed = deliveries.pending > 0  # callbacks have sent more
        finally:
            self._producer = None
            self._pool.release(self._pooled, failed=failed)
        return deliveries.sent

    def _ended(self) -> NoReturn:
        raise IllegalStateError("the with block of this shared producer has ended; enter it again")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "the producer of a with block cannot be pickled, as it belongs to this process: pass the result of "
            "shared_producer() to the function that runs in tasks, and put the with block into that function"
        )

    def __repr__(self) -> str:
        return f"<LeasedProducer of {self._pooled.producer!r}>"


def shared_producer(config: Mapping[str, Any] | None = None, /, **kwargs: Any) -> SharedProducer:
    """Return a producer for code in tasks: one per Python worker and configuration, kept for later tasks.

    It takes the settings of KafkaProducer and checks them at once, on the driver. Create it anywhere: it pickles as
    its configuration, and becomes a producer in a ``with`` statement::

        producer = shared_producer(bootstrap_servers="broker:9092")

        def write(rows):
            with producer as p:
                for row in rows:
                    p.send("orders", key=row.id.encode(), value=row.json.encode())

        df.foreachPartition(write)

    The end of the block waits for all records, at most for ``delivery.timeout.ms``. It raises KafkaError if some were
    not written, so that Spark repeats the task: records are written at least once. If the block itself fails, its
    records have one second to be sent, and the producer is not used again.

    In ``foreachPartition`` Spark's conversion of rows to Python objects costs most. ``write_arrow`` avoids it.

    Raises:
        ConfigError: A setting is wrong.
    """
    made = ProducerConfig(config, **kwargs)
    parse_addresses(made["bootstrap.servers"])
    return SharedProducer(made.originals)
