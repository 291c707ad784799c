"""Hooks that see every record before it is sent, and once it is acknowledged or has failed (KIP-42; Java:
ProducerInterceptor).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pykclient.log_context import LogContext
from pykclient.producer import record_arguments
from pykclient.producer.future import BatchDelivery, OnDelivery, ProduceRequestResult
from pykclient.types import Header, Headers, ProducerRecord, RecordMetadata, TopicPartition

UNKNOWN_PARTITION = -1


class AcknowledgedBatch(NamedTuple):
    """A batch that was written, or failed with ``error``."""

    #: That of the first record.
    metadata: RecordMetadata
    error: Exception | None
    #: The headers of its records in order. Of adjacent records with only the same ``common_headers``, those of the
    #: first.
    headers: Sequence[Headers]
    record_count: int
    #: The time from its first record to now, in milliseconds.
    age_ms: float


class ProducerInterceptor:
    """Base class of interceptors; override the methods that you need.

    Errors that an interceptor raises are logged, once for each of its methods, and otherwise ignored. Thread:
    ``on_send`` runs on the application's threads, ``on_acknowledgement`` on the sender's, which it must not block.
    """

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Receive the producer's configuration by dotted keys. Called once, if the class is configured by name."""

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Return the record to send: ``record`` or another one. Keys and values are not serialized yet."""
        return record

    def common_headers(self) -> tuple[Header, ...]:
        """Return headers for the record that is being sent, unless it has a header of one of these names.

        For headers that many records share, such as a trace context. As long as they are the same, return the same
        tuple. A producer whose interceptors override neither ``on_send`` nor ``on_acknowledgement`` then needs hardly
        more time for a record than one without interceptors. Java has no such method.
        """
        return ()

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Headers) -> None:
        """Handle the outcome of a record: written, or failed with ``error``.

        After an error the offset is -1, and so is the partition if none was chosen.
        """

    def on_batch_acknowledgement(self, batch: AcknowledgedBatch) -> None:
        """Handle the outcome of a batch. Called before ``on_acknowledgement`` of its records.

        Java has no such method.
        """

    def close(self) -> None:
        """Release resources. Called when the producer has closed."""


class ProducerInterceptors:
    """A chain of interceptors, each of which gets the record that the previous one returned (Java:
    ProducerInterceptors).

    Thread: any.
    """

    def __init__(self, interceptors: Sequence[ProducerInterceptor], log_context: LogContext) -> None:
        self._interceptors = tuple(interceptors)
        self._log = log_context.logger(__name__)
        self._failed: set[tuple[int, str]] = set()
        # Interceptors that override a method. They need not be of our class.
        self._of_sends = self._with("on_send")
        self._of_headers = self._with("common_headers")
        self._of_acknowledgements = self._with("on_acknowledgement")
        self.of_batches = self._with("on_batch_acknowledgement")
        #: True if no interceptor sees single records: ``shared`` then replaces ``on_send``.
        self.share_records = not self._of_sends and not self._of_acknowledgements
        self._added: tuple[tuple[Headers, ...], tuple[Header, ...]] = ((), ())
        self._last = InterceptedDelivery(self, (), None)

    def _with(self, method: str) -> tuple[ProducerInterceptor, ...]:
        own = getattr(ProducerInterceptor, method)
        return tuple(each for each in self._interceptors if getattr(type(each), method, own) is not own)

    def intercepted(
        self, record: ProducerRecord[Any, Any], on_delivery: OnDelivery | None
    ) -> tuple[ProducerRecord[Any, Any], Headers, InterceptedDelivery]:
        """Return the record to send, with its headers and its ``on_delivery``.

        Raises:
            IllegalArgumentError: an argument is wrong; no interceptor has seen the record.
        """
        record_arguments.checked_fields(
            record.topic, record.headers, record.partition, record.timestamp_ms, on_delivery
        )
        if self.share_records:
            headers, delivery = self.shared(record.headers, on_delivery)
            return record, () if headers is None else headers, delivery
        record = self.on_send(record)
        own = tuple(record_arguments.checked_headers(record.headers))
        return record, own, InterceptedDelivery(self, own, on_delivery)

    def shared(
        self, headers: Headers | None, on_delivery: OnDelivery | None
    ) -> tuple[Headers | None, InterceptedDelivery]:
        """Return the headers and the ``on_delivery`` of a record, if no interceptor handles single records.

        Records in a row with the same common headers, and without any of their own, have the same.
        """
        if on_delivery is not None or not (headers is None or (isinstance(headers, (list, tuple)) and not headers)):
            merged = self._with_common(headers)
            return merged, InterceptedDelivery(self, tuple(headers_of(merged)), on_delivery)
        added = self._common_headers()
        last = self._last
        if last.headers is not added:
            # Threads that take turns replace each other's; that costs time only.
            last = self._last = InterceptedDelivery(self, added, None)
        return added, last

    def _common_headers(self) -> tuple[Header, ...]:
        """Return the common headers of all interceptors, and the same tuple while they are the same."""
        found = []
        for interceptor in self._of_headers:
            try:
                headers = interceptor.common_headers()
                if not isinstance(headers, tuple):
                    raise TypeError(f"common_headers returned {type(headers).__name__}; it must return a tuple")
                found.append(headers)
            except Exception:  # noqa: BLE001 - an interceptor must not stop the record
                self._log_once(interceptor, "common_headers")
        if len(found) == 1:
            return found[0]
        parts, added = self._added
        if len(parts) != len(found) or any(map(operator.is_not, parts, found)):
            added = tuple(itertools.chain(*found))
            self._added = (tuple(found), added)
        return added

    def _with_common(self, headers: Headers | None) -> Headers | None:
        """Return a record's headers with the common ones. Invalid headers are returned as they are."""
        if not (headers is None or isinstance(headers, (list, tuple))):
            return headers
        added = self._common_headers()
        if not headers:
            return added
        names = {name for name, _ in added}
        for header in headers:
            name = header[0] if isinstance(header, (list, tuple)) and header else None
            if isinstance(name, str) and name.lower() in names:
                return headers
        return (*headers, *added)

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Return the record to send. An interceptor that fails is skipped."""
        for interceptor in self._of_sends:
            try:
                returned = interceptor.on_send(record)
                if not isinstance(returned, ProducerRecord):
                    raise TypeError(f"on_send returned {type(returned).__name__}; it must return a ProducerRecord")
                record = returned
            except Exception:  # noqa: BLE001 - an interceptor must not stop the record
                self._log_once(interceptor, "on_send")
        if self._of_headers:
            headers: Any = self._with_common(record.headers)
            if headers is not record.headers:
                record = ProducerRecord(
                    record.topic, record.value, record.key, headers, record.partition, record.timestamp_ms
                )
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Headers) -> None:
        self._tell(self._of_acknowledgements, "on_acknowledgement", metadata, error, headers)

    def on_batch_acknowledgement(self, batch: AcknowledgedBatch) -> None:
        self._tell(self.of_batches, "on_batch_acknowledgement", batch)

    def on_send_error(self, topic_partition: TopicPartition, error: Exception, headers: Headers) -> None:
        """Tell the interceptors of a record that failed before it reached a batch."""
        self.on_acknowledgement(no_metadata(topic_partition), error, headers)

    def close(self) -> None:
        self._tell(self._interceptors, "close")

    def _tell(self, interceptors: Iterable[ProducerInterceptor], method: str, *args: object) -> None:
        for interceptor in interceptors:
            try:
                getattr(interceptor, method)(*args)
            except Exception:  # noqa: BLE001 - an interceptor must not stop the sender, nor the closing
                self._log_once(interceptor, method)

    def _log_once(self, interceptor: ProducerInterceptor, method: str) -> None:
        if (id(interceptor), method) not in self._failed:
            self._failed.add((id(interceptor), method))
            self._log.exception("%s.%s raised; further errors of it are not logged", type(interceptor).__name__, method)


class InterceptedDelivery(BatchDelivery):
    """The ``on_delivery`` of an intercepted record: calls the interceptors, then the application's callback.

    Several records have the same one if no interceptor sees single records, and there is no callback.
    """

    __slots__ = ("_interceptors", "headers", "on_delivery")

    def __init__(self, interceptors: ProducerInterceptors, headers: Headers, on_delivery: OnDelivery | None) -> None:
        self._interceptors = interceptors
        self.headers = headers
        self.on_delivery = on_delivery

    @property
    def sees_batches(self) -> bool:
        """True if an interceptor handles batches."""
        return bool(self._interceptors.of_batches)

    def batch_delivered(
        self,
        deliveries: list[BatchDelivery],
        result: ProduceRequestResult,
        error: Exception | None,
        metadata: RecordMetadata,
    ) -> None:
        """Tell the interceptors of a batch's outcome."""
        headers: list[Headers] = []
        last: BatchDelivery | None = None
        for delivery in deliveries:
            if delivery is not last and isinstance(delivery, InterceptedDelivery):
                headers.append(delivery.headers)
            last = delivery
        batch = AcknowledgedBatch(metadata, error, headers, result.record_count, result.age_ms())
        self._interceptors.on_batch_acknowledgement(batch)

    def __call__(self, error: Exception | None, metadata: RecordMetadata) -> None:
        self._interceptors.on_acknowledgement(metadata, error, self.headers)
        if self.on_delivery is not None:
            self.on_delivery(error, metadata)


def no_metadata(topic_partition: TopicPartition) -> RecordMetadata:
    """Return placeholder metadata for a record that was not written."""
    return RecordMetadata(topic_partition.topic, topic_partition.partition, topic_partition, -1, -1, None, -1, -1)


def headers_of(headers: Any) -> Headers:
    """Return headers to pass to ``on_acknowledgement``: an empty list if the given ones are invalid."""
    return headers if isinstance(headers, (list, tuple)) else ()
