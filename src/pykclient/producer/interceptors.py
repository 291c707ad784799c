"""Hooks that see every record before it is sent, and once it is acknowledged or has failed (KIP-42; Java:
ProducerInterceptor).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pykclient.log_context import LogContext
from pykclient.producer.future import BatchDelivery, OnDelivery
from pykclient.types import Headers, ProducerRecord, RecordMetadata, TopicPartition

UNKNOWN_PARTITION = -1


class ProducerInterceptor:
    """Base class of interceptors; override the methods that you need.

    Errors that an interceptor raises are logged, once for each of its methods, and otherwise ignored. Thread:
    ``on_send`` runs on the application's threads, ``on_acknowledgement`` on the sender's, which it must not block.
    """

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Take the producer's configuration, by its dotted keys. Called once, if the setting names the class."""

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Return the record to send: ``record`` or another one. Keys and values are not serialized yet."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Headers) -> None:
        """Note that the record was written, or failed with ``error``.

        After an error the offset is -1, and so is the partition if none was chosen.
        """

    def on_batch_acknowledgement(
        self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Headers]
    ) -> None:
        """Note that a batch was written, or failed with ``error``. Called before ``on_acknowledgement`` of its records.

        ``metadata`` is that of the first record; ``headers`` has the headers of each record. Java has no such method.
        """

    def close(self) -> None:
        """Release resources. Called when the producer has closed."""


class ProducerInterceptors:
    """A chain of interceptors, each of which gets the record that the previous one returned (Java:
    ProducerInterceptors).

    Thread: any.
    """

    __slots__ = ("_failed", "_interceptors", "_log", "of_batches")

    def __init__(self, interceptors: Sequence[ProducerInterceptor], log_context: LogContext) -> None:
        self._interceptors = tuple(interceptors)
        self._log = log_context.logger(__name__)
        self._failed: set[tuple[int, str]] = set()
        own = ProducerInterceptor.on_batch_acknowledgement
        #: Those that want to know of batches. Interceptors need not be of our class.
        self.of_batches = tuple(
            interceptor
            for interceptor in self._interceptors
            if getattr(type(interceptor), "on_batch_acknowledgement", own) is not own
        )

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Return the record to send. An interceptor that fails is skipped."""
        for interceptor in self._interceptors:
            try:
                returned = interceptor.on_send(record)
                if not isinstance(returned, ProducerRecord):
                    raise TypeError(f"on_send returned {type(returned).__name__}; it must return a ProducerRecord")
                record = returned
            except Exception:  # noqa: BLE001 - an interceptor must not stop the record
                self._log_once(interceptor, "on_send")
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Headers) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error, headers)
            except Exception:  # noqa: BLE001 - nor the sender
                self._log_once(interceptor, "on_acknowledgement")

    def on_batch_acknowledgement(
        self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Headers]
    ) -> None:
        for interceptor in self.of_batches:
            try:
                interceptor.on_batch_acknowledgement(metadata, error, headers)
            except Exception:  # noqa: BLE001 - nor the sender
                self._log_once(interceptor, "on_batch_acknowledgement")

    def on_send_error(self, topic_partition: TopicPartition, error: Exception, headers: Headers) -> None:
        """Tell the interceptors of a record that failed before it reached a batch."""
        self.on_acknowledgement(no_metadata(topic_partition), error, headers)

    def close(self) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:  # noqa: BLE001 - nor the closing
                self._log_once(interceptor, "close")

    def _log_once(self, interceptor: ProducerInterceptor, method: str) -> None:
        if (id(interceptor), method) not in self._failed:
            self._failed.add((id(interceptor), method))
            self._log.exception("%s.%s raised; further errors of it are not logged", type(interceptor).__name__, method)


class InterceptedDelivery(BatchDelivery):
    """The ``on_delivery`` of an intercepted record: calls the interceptors, then the application's callback."""

    __slots__ = ("_headers", "_interceptors", "on_delivery")

    def __init__(self, interceptors: ProducerInterceptors, headers: Headers, on_delivery: OnDelivery | None) -> None:
        self._interceptors = interceptors
        self._headers = headers
        self.on_delivery = on_delivery

    @property
    def sees_batches(self) -> bool:
        """True if an interceptor wants to know of batches."""
        return bool(self._interceptors.of_batches)

    def batch_delivered(
        self, deliveries: list[BatchDelivery], error: Exception | None, metadata: RecordMetadata
    ) -> None:
        """Tell the interceptors of a batch's outcome."""
        headers = [delivery._headers for delivery in deliveries if isinstance(delivery, InterceptedDelivery)]
        self._interceptors.on_batch_acknowledgement(metadata, error, headers)

    def __call__(self, error: Exception | None, metadata: RecordMetadata) -> None:
        self._interceptors.on_acknowledgement(metadata, error, self._headers)
        if self.on_delivery is not None:
            self.on_delivery(error, metadata)


def no_metadata(topic_partition: TopicPartition) -> RecordMetadata:
    """Return the metadata that stands for a record that was not written."""
    return RecordMetadata(topic_partition.topic, topic_partition.partition, topic_partition, -1, -1, None, -1, -1)


def headers_of(headers: Any) -> Headers:
    """Return headers to pass to ``on_acknowledgement``: an empty list if the given ones are invalid."""
    return headers if isinstance(headers, (list, tuple)) else ()
