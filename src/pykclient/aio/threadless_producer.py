"""A producer without a thread, for use on an event loop's thread: instead of waiting it raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pykclient.errors import KafkaError
from pykclient.network.cluster import Cluster
from pykclient.producer import open_producers
from pykclient.producer.buffer_pool import BufferPool, MustWait
from pykclient.producer.future import FutureRecordMetadata
from pykclient.producer.interceptors import InterceptedDelivery, ProducerInterceptors
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.producer.producer_components import ProducerComponents
from pykclient.producer.send import TopicWait

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.aio.loop_environment import LoopEnvironment
    from pykclient.config.producer_config import ProducerConfig
    from pykclient.producer.columns import ColumnSenderContext, Route
    from pykclient.producer.producer_batch import RowsInBatch
    from pykclient.record.row_columns import RowRun
    from pykclient.types import Headers


class TopicIsMissing(BaseException):
    """The topic, or its partition, has left the metadata, and this thread must not block for it.

    Not an Exception, for the reason of ``MustWait``.
    """


class ThreadlessComponents(ProducerComponents):
    """The components of a producer that must not wait for memory. Creating them starts no thread."""

    __slots__ = ()

    def _row_backlog(self, pool: BufferPool) -> None:
        """Set no limit but the memory for rows: ``AIOKafkaProducer.send_columns`` gives way after each window."""

    def _before_wait_for_memory(self, size: int) -> NoReturn:
        """Have the driver send what holds the memory, and leave the wait to the caller.

        Raises:
            MustWait: always.
        """
        self.client.wakeup()
        raise MustWait(size)


class _NoTopicWait(TopicWait):
    """Looks for a topic, and leaves the wait to the caller. Thread: the loop's."""

    __slots__ = ()

    def wait(self, topic: str, partition: int | None, max_block_ms: int) -> tuple[Cluster, int, int]:
        """Return what ``TopicWait.wait`` does.

        Raises:
            TopicIsMissing: it would have to wait.
        """
        if self._components.metadata.fetch().partition_count_for_topic(topic) is None:
            raise TopicIsMissing  # before `look` has the metadata ask for a name that nobody has checked
        found = self.look(topic, partition, self._components.clock.now_ms())
        if found is None:
            raise TopicIsMissing
        return *found, max_block_ms


class ThreadlessProducer(KafkaProducer[Any, Any]):
    """The part of an AIOKafkaProducer that appends records to batches, with all rules of a KafkaProducer.

    It never blocks: an append raises MustWait if memory is missing, and TopicIsMissing without metadata. In both cases
    nothing has happened, and the call can be repeated. Thread: the loop's.
    """

    __slots__ = ("wake_driver",)

    def __init__(self, config: ProducerConfig, environment: LoopEnvironment) -> None:
        self._begin(config, ThreadlessComponents(config, environment))
        #: Has the driver's next turn in the next iteration of the loop.
        self.wake_driver: Callable[[], object] = self._sender.wakeup
        self._topic_wait = _NoTopicWait(self._components, self._max_block_ms)

    @property
    def components(self) -> ProducerComponents:
        return self._components

    @property
    def topic_wait(self) -> TopicWait:
        return self._topic_wait

    @property
    def interceptors(self) -> ProducerInterceptors | None:
        return self._interceptors

    @property
    def max_block_ms(self) -> int:
        return self._max_block_ms

    @property
    def refusal(self) -> KafkaError | None:
        """The error that every call must raise; None while the producer is usable."""
        return None if self._refusal is None else self._refused()

    def knows(self, topic: str, partition: int | None) -> bool:
        """Return True if the topic, and the partition if one is given, are in the metadata."""
        count = self._metadata.fetch().partition_count_for_topic(topic)
        return count is not None and (partition is None or partition < count)

    def append(
        self,
        topic: str,
        value: object,
        key: object,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: InterceptedDelivery | None = None,
        serialized: tuple[bytes | None, bytes | None] | None = None,
    ) -> FutureRecordMetadata:
        """Append a record. ``serialized`` has its key and value as bytes, where there are serializers.

        Raises:
            MustWait, TopicIsMissing: the call would have to wait.
            Exception: the record is refused, also for reasons that ``send`` reports with its future.
        """
        record = self._do_send(topic, value, key, headers, partition, timestamp_ms, on_delivery, serialized)
        error = record.exception
        if error is not None:
            raise error
        return record

    def append_run(self, topic: str, partition: int, run: RowRun) -> RowsInBatch:
        """Append the rows of ``run`` to a batch of their own; return where they are.

        Raises:
            MustWait: the call would have to wait.
            KafkaError: the producer hit a fatal error, or is closed.
        """
        if self._id_manager is not None:
            self._id_manager.maybe_fail_with_error()
        accumulator = self._accumulator
        accumulator.close_open_batch(topic, partition)
        taken, _, _ = accumulator.append_rows(topic, partition, run, self._max_block_ms, self._metadata.fetch())
        assert taken is not None
        accumulator.close_open_batch(topic, partition)
        self._sender.wakeup()
        return taken

    def note_failure(self, error: Exception) -> None:
        """Note that a record or row did not get into a batch: a transaction can then only be aborted."""
        self._note_in_transaction(error)

    def failed(self, error: Exception, topic: str, partition: int | None, headers: Headers) -> None:
        """Count a record that failed before it could be appended, and tell the interceptors."""
        self._components.producer_metrics.record_error()
        self.note_failure(error)
        self._note_failure(error, topic, partition, headers)

    def column_sender_context(self, topic: str) -> ColumnSenderContext:
        """Return what a ColumnSender needs. A partition that is not in the metadata is an error of its rows."""
        context = self._column_sender_context(topic)

        def route(partition: int | None) -> Route:
            try:
                return context.route(partition)
            except TopicIsMissing:
                raise self._topic_wait.missing(topic, partition) from None

        return context._replace(route=route)

    def _wake_sender(self) -> None:
        self._accumulator.waiting.expect_look()
        self.wake_driver()

    # --- closing ---------------------------------------------------------------------------------------------------

    def initiate_close(self, *, keep_transaction: bool = False) -> None:
        """Accept no more records. The driver sends the remaining ones, and then closes the connections."""
        self._refuse_as_closed()
        self._sender.initiate_close(keep_transaction=keep_transaction)

    def force_close(self) -> None:
        """Accept no more records, and have the driver fail the remaining ones in its next turn."""
        self._refuse_as_closed()
        self._sender.force_close()

    def abandon(self) -> None:
        """Close as ``initiate_close``, but without taking a lock: for a destructor. Thread: any."""
        self._refuse_as_closed()
        self._sender.abandon()

    def _refuse_as_closed(self) -> None:
        self._refuse("the producer is closed")
        open_producers.closed(self)

    def close(self, timeout: float | None = None, *, keep_transaction: bool = False) -> None:  # noqa: ARG002
        """Refuse further calls. Called when the interpreter exits, when no loop can send what is left."""
        self._refuse_as_closed()

    def __del__(self) -> None:
        """Do nothing: the AIOKafkaProducer warns."""
