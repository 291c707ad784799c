"""Metadata of the topics that the producer writes to (Java: ProducerMetadata)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, ClassVar

from pykclient import errors
from pykclient.clock import HERE, Clock, Signal
from pykclient.errors import KafkaError, KafkaTimeoutError
from pykclient.log_context import LogContext
from pykclient.network.metadata import ClusterResourceListeners, Metadata

if TYPE_CHECKING:
    from pykclient.network.metadata import MetadataRequestBuilder, MetadataSnapshot
    from pykclient.producer.outbox import Outbox
    from pykclient.protocol.messages.metadata import MetadataResponse


#: The number of times at most for which a topic in use is noted within ``metadata_idle_ms``.
_RENEWALS = 100


class ProducerMetadata(Metadata):
    """The metadata of the topics in use.

    A topic is added when the producer first writes to it, and removed after ``metadata_idle_ms`` without a record.

    Thread: any.
    """

    needed_operation: ClassVar[str] = "WRITE"

    def __init__(
        self,
        refresh_backoff_ms: int,
        refresh_backoff_max_ms: int,
        metadata_expire_ms: int,
        metadata_idle_ms: int,
        log_context: LogContext,
        clock: Clock,
        cluster_resource_listeners: ClusterResourceListeners | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(
            refresh_backoff_ms, refresh_backoff_max_ms, metadata_expire_ms, log_context, cluster_resource_listeners, rng
        )
        self._outbox: Outbox | None = None
        self._metadata_idle_ms = metadata_idle_ms
        self._renewal_ms = metadata_idle_ms // _RENEWALS
        self._clock = clock
        # Guarded by the base's lock.
        self._waiting: tuple[Signal, ...] = ()  # of the threads in ``await_update``
        self._topics: dict[str, int] = {}  # by topic: when it may be removed
        self._new_topics: set[str] = set()
        self._errors: dict[str, int] = {}  # by topic: the error code of the last response

    def update_outbox(self, outbox: Outbox) -> None:
        """Set ``outbox.snapshot``, now and whenever the metadata changes."""
        with self._lock:
            self._outbox = outbox
            outbox.snapshot = self._snapshot

    def _replace_snapshot(self, snapshot: MetadataSnapshot) -> None:
        super()._replace_snapshot(snapshot)
        if self._outbox is not None:
            self._outbox.snapshot = snapshot

    def new_metadata_request_builder(self) -> MetadataRequestBuilder:
        from pykclient.network.metadata import MetadataRequestBuilder

        return MetadataRequestBuilder.for_topic_names(list(self._topics), True)

    def new_metadata_request_builder_for_new_topics(self) -> MetadataRequestBuilder | None:
        from pykclient.network.metadata import MetadataRequestBuilder

        return MetadataRequestBuilder.for_topic_names(list(self._new_topics), True)

    def add(self, topic: str, now_ms: int) -> None:
        """Add ``topic``, or keep it for another ``metadata_idle_ms``; request its metadata if it is new."""
        expire_ms = now_ms + self._metadata_idle_ms
        # A topic that is in use stays: an update removes only those whose time has come.
        if expire_ms - self._topics.get(topic, 0) < self._renewal_ms:
            return
        with HERE.mark, self._lock:
            is_new = topic not in self._topics
            self._topics[topic] = expire_ms
            if is_new:
                self._new_topics.add(topic)
                self.request_update_for_new_topics()

    def request_update_for_topic(self, topic: str) -> int:
        """Request the metadata of ``topic`` if it is new, else of all topics. Return the version to exceed."""
        with HERE.mark, self._lock:
            if topic in self._new_topics:
                return self.request_update_for_new_topics()
            return self.request_update(False)

    @property
    def topics(self) -> frozenset[str]:
        with HERE.mark, self._lock:
            return frozenset(self._topics)

    @property
    def new_topics(self) -> frozenset[str]:
        with HERE.mark, self._lock:
            return frozenset(self._new_topics)

    def retain_topic(self, topic: str, is_internal: bool, now_ms: int) -> bool:  # noqa: ARG002 - the base's signature
        expire_ms = self._topics.get(topic)
        if expire_ms is None:
            return False
        if topic in self._new_topics or expire_ms > now_ms:
            return True
        del self._topics[topic]
        return False

    def await_update(self, last_version: int, timeout_ms: int) -> None:
        """Wait until the metadata's version exceeds ``last_version``.

        The caller looks up errors of single topics.

        Raises:
            KafkaTimeoutError: no update arrived within ``timeout_ms``.
            KafkaError: the metadata has a fatal error, or the producer was closed meanwhile.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        signal = self._clock.new_signal()
        try:
            with HERE.mark, self._lock:
                self._waiting += (signal,)
            while self.update_version <= last_version and not self._is_closed:
                with HERE.mark:
                    self.maybe_throw_fatal_exception()
                remaining_ms = deadline_ms - self._clock.now_ms()
                if remaining_ms <= 0:
                    raise KafkaTimeoutError(f"no metadata arrived within {timeout_ms / 1000} s")
                signal.wait(remaining_ms)
        finally:
            with HERE.mark, self._lock:
                self._waiting = tuple(other for other in self._waiting if other is not signal)
        if self._is_closed:
            raise KafkaError("the producer was closed while waiting for metadata")

    def update(self, request_version: int, response: MetadataResponse, is_partial_update: bool, now_ms: int) -> None:
        super().update(request_version, response, is_partial_update, now_ms)
        with HERE.mark, self._lock:
            self._errors = {
                topic.name: topic.error_code for topic in response.topics if topic.name and topic.error_code
            }
            # Topics with an error are no longer new either: the next full update retries them.
            self._new_topics.difference_update(topic.name for topic in response.topics if topic.name)
            self._wake()

    def get_error(self, topic: str) -> errors.BrokerError | None:
        """Return the error of ``topic`` in the last response; None if there was none."""
        with HERE.mark, self._lock:
            return errors.for_code(self._errors.get(topic, 0))

    def missing(
        self, topic: str, partition: int | None, count: int | None, waited_ms: int, connection_report: str
    ) -> KafkaTimeoutError:
        """Return the error for a topic or partition that was not in the metadata in time.

        ``count`` is the topic's number of partitions, None if the topic itself is missing.
        """
        if count is None:
            text = f"topic {topic!r} not in metadata after {waited_ms / 1000} s"
        else:
            text = (
                f"partition {partition} of topic {topic!r} not in metadata after {waited_ms / 1000} s: it has {count}"
            )
        broker_error = self.get_error(topic)
        reasons = [connection_report, "" if broker_error is None else repr(broker_error)]
        if isinstance(broker_error, errors.UnknownTopicOrPartitionError):
            reasons.append("create the topic, or check its name")
        why = "; ".join(reason for reason in reasons if reason)
        error = KafkaTimeoutError(f"{text}: {why}" if why else f"{text} (max.block.ms)")
        error.__cause__ = broker_error
        return error

    def fatal_error(self, error: KafkaError) -> None:
        with HERE.mark, self._lock:
            super().fatal_error(error)
            self._wake()

    def close(self) -> None:
        with HERE.mark, self._lock:
            super().close()
            self._wake()

    def _wake(self) -> None:
        for signal in self._waiting:
            signal.set()
