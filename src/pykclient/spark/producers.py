"""Producers for the code that runs in Spark's tasks: one for each Python worker and configuration.

Making a producer takes connections, metadata and a producer id; a task may be over sooner. So a worker keeps its
producers for the tasks to come, as the built-in sink does (Spark: InternalKafkaProducerPool).

Spark's Python workers are forks of a daemon, which end without running any more code of Python: by ``os._exit`` once
Spark has closed their socket (after a minute without a task, after an error, when the application ends), or by SIGHUP
and SIGKILL. Neither ``atexit`` nor destructors run. So nothing is left for the end: a task's records are acknowledged
before its ``with`` block ends, and a task that was killed before that is tried again by Spark. Where the interpreter
does end in order, as on the driver or with ``spark.python.use.daemon=false``, producers are closed at its exit.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import NoneType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError, IllegalStateError
from pykclient.network.client_utils import parse_addresses
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.spark.deliveries import Deliveries
from pykclient.spark.worker import task_context, task_name

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.producer.batch_future import BatchFuture
    from pykclient.producer.future import FutureRecordMetadata, OnDelivery
    from pykclient.types import Headers, ProducerRecord

#: How long a producer that nobody uses is kept (Spark: spark.kafka.producer.cache.timeout).
IDLE_TIMEOUT_MS = 10 * 60_000

#: How many producers that nobody uses are kept.
MAX_IDLE = 16

#: How long records of a task that failed have to get to Kafka; they are given up then. Spark tries the task again.
_FAILED_CLOSE_S = 1.0

#: What suits whole columns, where the user says nothing. Large batches cost client and brokers a fraction of what
#: Kafka's default of 16 KiB does, and nobody waits for single records.
_BULK_BATCH_SIZE_BYTES = 256 * 1024
_BULK_LINGER_MS = 100
_BULK_BUFFER_MEMORY_BYTES = 64 * 1024 * 1024

#: So many batches fit into ``buffer.memory`` at least.
_BULK_BATCHES_IN_BUFFER = 16


def bulk_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """``config`` with what suits whole columns, where it says nothing. What it says stays possible.

    Raises ConfigError: something is wrong in it, or it names interceptors, which would have to see each record.
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
    """A producer of the pool, and who uses it. Thread: any, under the pool's lock."""

    __slots__ = ("discarded", "idle_since_ms", "key", "leases", "producer")

    def __init__(self, key: Any, producer: KafkaProducer[Any, Any]) -> None:
        self.key = key
        self.producer = producer
        self.leases = 0
        self.idle_since_ms = 0
        self.discarded = False


class ProducerPool:
    """Producers by their configuration (Spark: InternalKafkaProducerPool).

    Those that nobody has used for ``idle_timeout_ms`` are closed when the pool is used again; a worker without tasks is
    ended by Spark after a minute. Thread: any.
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
        self._lock = threading.Lock()  # guards: _by_key and what is in it
        self._by_key: dict[Any, PooledProducer] = {}

    def acquire(self, config: Mapping[str, Any], fingerprint: str | None = None) -> PooledProducer:
        """The producer with this configuration, made if there is none. It is the caller's until ``release``.

        Objects in it of which nobody can tell if they are equal are so if they are the same ones; or with a
        ``fingerprint``, that of the pickle which the configuration came out of, if they came out of equal pickles.

        Raises ConfigError.
        """
        key = _frozen(config, fingerprint)
        with self._lock:
            pooled = self._by_key.get(key)
            if pooled is None:
                # Made under the lock, which takes a millisecond, so that two threads do not make two.
                pooled = self._by_key[key] = PooledProducer(key, self._make(config))
            pooled.leases += 1
            expired = self._take_expired()
        _close(expired, None)
        return pooled

    def release(self, pooled: PooledProducer, *, failed: bool = False) -> None:
        """Give it back. One whose task ``failed`` is not used again: what is left in it is given up, after a second.

        A task that succeeded has flushed it.
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
        """Close those that nobody uses, and others once they are given back."""
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
    """Something that is equal for equal settings, also after these were pickled, and can be a key."""
    if isinstance(value, Mapping):
        return ("mapping", tuple(sorted((str(key), _frozen(each, fingerprint)) for key, each in value.items())))
    if isinstance(value, (list, tuple, set, frozenset)):
        return (type(value).__name__, tuple(_frozen(each, fingerprint) for each in value))
    if isinstance(value, (str, bytes, int, float, NoneType)) or _is_found_by_name(value):
        return (type(value), value)
    # A lambda, for instance: each task unpickles its own. The id is nobody else's while the producer has the object.
    return ("object", fingerprint or id(value))


def _is_found_by_name(value: Any) -> bool:
    """Whether it is a class or a function that a pickle has the name of, so that it is the same for each task."""
    module = sys.modules.get(getattr(value, "__module__", ""))
    return getattr(module, getattr(value, "__qualname__", ""), None) is value


def _fingerprint(config: Mapping[str, Any]) -> str:
    """The same for settings that unpickle to the same, closures included. Of a pickle with secrets: not to be shown."""
    from hashlib import sha256

    from pyspark import cloudpickle

    return sha256(cloudpickle.dumps(config)).hexdigest()  # type: ignore[no-untyped-call]


_pool = ProducerPool()


def _renew_pool() -> None:
    """In a forked child: the producers are the parent's, and their threads are not here."""
    global _pool  # noqa: PLW0603 - one for each process is what it is for
    _pool = ProducerPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_pool)


def pool() -> ProducerPool:
    """This process's producers."""
    return _pool


def close_shared_producers() -> None:
    """Close the producers that this process keeps for further use; those in use are closed when they no longer are.

    Workers need not call it. On the driver it frees connections after the last ``foreachBatch``.
    """
    _pool.close()


# --- for foreachPartition and foreachBatch ---------------------------------------------------------------------------


class SharedProducer:
    """What ``shared_producer`` returns: enter it in a ``with`` statement, as often as is wanted.

    It pickles as its configuration, and shows none of it but the servers. Thread: any.
    """

    __slots__ = ("_config", "_entered", "_fingerprint")

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
        # A generator that is closed before its end has done what was wanted of it.
        failed = error_type is not None and not issubclass(error_type, GeneratorExit)
        self._entered.stack.pop().end(failed=failed)

    def __reduce__(self) -> tuple[type[SharedProducer], tuple[Mapping[str, Any], str]]:
        return type(self), (self._config, _fingerprint(self._config))

    def __repr__(self) -> str:
        return f"<SharedProducer for {self._config['bootstrap.servers']}>"


class LeasedProducer:
    """The process's producer, for one ``with`` block.

    It has those methods of KafkaProducer that a task needs; the end of the block flushes. Thread: any.
    """

    __slots__ = ("_deliveries", "_pool", "_pooled", "_producer")

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
        """``KafkaProducer.send``. The block's end raises what happens to the record later."""
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
        """``KafkaProducer.send_batch``. The block's end raises what happens to the records later."""
        producer = self._producer or self._ended()
        future = producer.send_batch(
            topic, data, value=value, key=key, headers=headers, timestamp=timestamp, partition=partition
        )
        self._deliveries.add(future)
        return future

    def flush(self, timeout: float | None = None) -> None:
        """``KafkaProducer.flush``: of all records of this process's producer."""
        (self._producer or self._ended()).flush(timeout)

    def partitions_for(self, topic: str) -> set[int]:
        """``KafkaProducer.partitions_for``."""
        return (self._producer or self._ended()).partitions_for(topic)

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """``KafkaProducer.metrics``: of all that this process's producer has done."""
        return (self._producer or self._ended()).metrics(raw)

    def check(self) -> None:
        """Raise KafkaError where some of the records sent so far are known to have failed."""
        self._deliveries.check(f"sent so far by {task_name()}")

    def end(self, *, failed: bool) -> int:
        """Give the producer back, once; called at the end of the ``with`` block. How many records were written.

        Unless the block ``failed``, all records are waited for first, also those that callbacks send meanwhile. Raises
        KafkaError where some were not written.
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
            "the producer of a with block cannot be pickled, as it belongs to this process: let the function that runs "
            "in tasks use what shared_producer() returned, and begin the with block in that function"
        )

    def __repr__(self) -> str:
        return f"<LeasedProducer of {self._pooled.producer!r}>"


def shared_producer(config: Mapping[str, Any] | None = None, /, **kwargs: Any) -> SharedProducer:
    """This process's producer with these settings, for code in tasks: one for each Python worker, kept for later tasks.

    Takes what KafkaProducer takes, and checks it at once, on the driver. Make it anywhere; it pickles as its
    configuration, and is a producer in a ``with`` statement only::

        producer = shared_producer(bootstrap_servers="broker:9092")

        def write(rows):
            with producer as p:
                for row in rows:
                    p.send("orders", key=row.id.encode(), value=row.json.encode())

        df.foreachPartition(write)

    At the end of the block all records are waited for (``delivery.timeout.ms`` bounds it). KafkaError is raised there
    when some were not written, with how many and the first error, so that Spark tries the task again: at least once is
    what is promised. When the block itself fails its records have a second, and the producer is not used again.

    In ``foreachPartition`` it is Spark's way of handing rows to Python that costs most. ``write_arrow`` does without.

    Raises ConfigError.
    """
    made = ProducerConfig(config, **kwargs)
    parse_addresses(made["bootstrap.servers"])
    return SharedProducer(made.originals)


# --- for mapInArrow --------------------------------------------------------------------------------------------------


class ArrowWrite:
    """What ``write_arrow`` returns; pickles, and shows no settings. Thread: any."""

    __slots__ = ("_config", "_fingerprint", "_topic")

    #: For ``mapInArrow``: the columns of what a task returns.
    schema = "partition_id int, records long"

    def __init__(self, config: Mapping[str, Any], topic: str | None, fingerprint: str | None = None) -> None:
        self._config = config
        self._topic = topic
        self._fingerprint = fingerprint

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from pykclient.spark.write_task import KafkaWriteTask

        records = KafkaWriteTask(self._config, self._topic, fingerprint=self._fingerprint).execute(batches)
        counts = [pa.array([task_context()[0]], pa.int32()), pa.array([records], pa.int64())]
        yield pa.record_batch(counts, names=["partition_id", "records"])

    def __reduce__(self) -> tuple[type[ArrowWrite], tuple[Mapping[str, Any], str | None, str]]:
        return type(self), (self._config, self._topic, _fingerprint(self._config))

    def __repr__(self) -> str:
        return f"<ArrowWrite to {self._topic or 'the topics of each row'}>"


def write_arrow(config: Mapping[str, Any], topic: str | None = None) -> ArrowWrite:
    """A function for ``DataFrame.mapInArrow`` that writes all rows to Kafka; a task returns one row, with its counts::

        write = write_arrow({"bootstrap.servers": "broker:9092"}, topic="orders")
        df.select("key", "value").mapInArrow(write, write.schema).collect()

    Columns are those of the sink: value, and perhaps key, headers, partition and topic, which ``topic`` overrides;
    others are ignored. ``config`` is the producer's. What is silent in it is set for large amounts, as in the sink.
    Guarantees and errors are the sink's as well: use it where no ``write`` can be, beside ``foreachPartition`` code for
    instance, whose way through Spark's rows costs a multiple.

    Raises ConfigError at once, on the driver; KafkaError in a task.
    """
    settings = bulk_config(config)
    parse_addresses(ProducerConfig(settings)["bootstrap.servers"])
    return ArrowWrite(settings, topic)
