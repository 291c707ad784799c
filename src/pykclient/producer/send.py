"""The beginnings of ``send``: the path of common records, which is compiled, and the wait for a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic

from pykclient import topic_names
from pykclient.clock import HERE, Clock
from pykclient.errors import (
    InvalidTopicError,
    KafkaTimeoutError,
)
from pykclient.implementation import use_compiled
from pykclient.network.metadata import Cluster
from pykclient.producer.future import FutureRecordMetadata, OnDelivery
from pykclient.producer.outbox import Outbox
from pykclient.serialization import Serializer
from pykclient.types import Headers, K, ProducerRecord, V

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.producer.producer_components import ProducerComponents

#: Upper bound, in bytes, of what a batch of one record without headers adds to its key and value.
RECORD_OVERHEAD: Final = 128


class TopicWait:
    """Waits for the metadata of topics (Java: KafkaProducer.waitOnMetadata). Thread: any."""

    def __init__(self, components: ProducerComponents, max_block_ms: int) -> None:
        """``max_block_ms`` is the configured limit, for the text of errors."""
        self._components = components
        self._max_block_ms = max_block_ms

    def wait(self, topic: str, partition: int | None, max_block_ms: int) -> tuple[Cluster, int, int]:
        """Wait until ``topic`` and ``partition`` are in the metadata.

        Return the cluster, the number of the topic's partitions, and the rest of ``max_block_ms``.

        Raises:
            InvalidTopicError: the name of the topic is not valid.
            KafkaTimeoutError: the metadata did not arrive in time.
        """
        clock, metadata = self._components.clock, self._components.metadata
        start_ms = clock.now_ms()
        waited_ms = 0
        topic_names.validate(topic)
        while (found := self.look(topic, partition, start_ms + waited_ms)) is None:
            version = self.request(topic, partition, waited_ms, max_block_ms)
            thread = self._components.sender_thread
            if thread.is_current:
                raise KafkaTimeoutError(
                    f"topic {topic!r} or its partition {partition} is not in the metadata yet, and a callback or a "
                    "__del__ needs it on the sender's thread, which cannot wait for metadata. The producer has "
                    "requested it: send again later, or from another thread"
                )
            try:
                metadata.await_update(version, max_block_ms - waited_ms)
            except KafkaTimeoutError:
                raise self.missing(topic, partition)  # noqa: B904 - the error has its own cause
            with HERE.mark:
                metadata.maybe_throw_exception_for_topic(topic)
            waited_ms = clock.now_ms() - start_ms
        self._components.producer_metrics.record_metadata_wait(waited_ms)
        return *found, max_block_ms - waited_ms

    # --- the steps of a wait, none of which blocks -----------------------------------------------------------------

    def look(self, topic: str, partition: int | None, now_ms: int) -> tuple[Cluster, int] | None:
        """Return the cluster and the number of the topic's partitions; None if they are not in the metadata yet.

        Raises:
            InvalidTopicError: brokers have refused the name.
        """
        metadata = self._components.metadata
        cluster = metadata.fetch()
        if topic in cluster.invalid_topics:
            raise InvalidTopicError(f"topic {topic!r} has a name that the cluster does not allow")
        with HERE.mark:
            metadata.add(topic, now_ms)
        count = cluster.partition_count_for_topic(topic)
        return None if count is None or (partition is not None and partition >= count) else (cluster, count)

    def request(self, topic: str, partition: int | None, waited_ms: int, max_block_ms: int) -> int:
        """Request the metadata of ``topic``; return the version that must be exceeded before the next ``look``.

        Raises:
            KafkaTimeoutError: no time is left.
            KafkaError: the sender's thread has failed.
        """
        if waited_ms >= max_block_ms:
            raise self.missing(topic, partition)
        with HERE.mark:
            version = self._components.metadata.request_update_for_topic(topic)
        self._components.sender.wakeup()
        self._components.sender_thread.ensure_alive()
        return version

    def missing(self, topic: str, partition: int | None) -> KafkaTimeoutError:
        """Return the error for a topic or partition that was not in the metadata within ``max.block.ms``."""
        metadata = self._components.metadata
        report = self._components.client.connection_report()
        count = metadata.fetch().partition_count_for_topic(topic)
        return metadata.missing(topic, partition, count, self._max_block_ms, report)


class SendPath:
    """The settings for the fast path of ``send``, read only by the compiled form. Thread: any.

    A producer with a partitioner of its own has none.
    """

    __slots__ = ()

    def __init__(
        self,
        outbox: Outbox,
        clock: Clock | None,
        key_serializer: Serializer[Any],
        value_serializer: Serializer[Any],
        *,
        plain_keys: bool,
        plain_values: bool,
        ignore_keys: bool,
        max_record_size: int,
        share: Callable[[Any, OnDelivery | None], tuple[Any, OnDelivery]] | None,
    ) -> None:
        """``max_record_size`` is in bytes.

        If ``clock`` is None, records get the machine's time. ``plain_keys`` and ``plain_values``: bytes and None need
        no serializer. ``share`` is what interceptors make of the headers and the ``on_delivery`` of a record.
        """


class SendState(Generic[K, V]):
    """``send`` of a producer, and the path of its common records. Thread: any."""

    __slots__ = ("_send_path",)
    #: None where the Python code has to handle all records.
    _send_path: SendPath | None

    def send(
        self,
        topic: str | ProducerRecord[K, V],
        value: V | None = None,
        key: K | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> FutureRecordMetadata:
        """Append a record to a batch, which the background thread sends soon after.

        ``topic`` may be a ProducerRecord, in place of all arguments but ``on_delivery``. ``headers`` are
        pairs of a name and bytes or None. If ``partition`` is None, the partitioner chooses. ``timestamp_ms`` is in
        milliseconds since the epoch; None means now. ``on_delivery(error, metadata)`` is called once the record is
        acknowledged or has failed; FutureRecordMetadata describes when, and on which thread.

        Blocks up to ``max.block.ms`` while the topic's metadata is missing or ``buffer.memory`` is used up.

        The returned future fails with the errors that a broker reports for this record or its topic, with those of a
        record that is too large, and with authentication errors. All others are raised.

        Raises:
            KafkaTimeoutError: no metadata arrived within ``max.block.ms``.
            BufferExhaustedError: no memory became free within ``max.block.ms``.
            SerializationError: a serializer failed.
            IllegalArgumentError: an argument has the wrong type or value.
            IllegalStateError: the producer is closed.
            KafkaError: the producer hit a fatal error, or was closed during the call.
        """
        return self._send(topic, value, key, headers, partition, timestamp_ms, on_delivery)

    def _send(
        self,
        topic: str | ProducerRecord[K, V],
        value: V | None,
        key: K | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> FutureRecordMetadata:
        """Send a record that is not a common one, or all of them."""
        raise NotImplementedError


use_compiled(__name__)
