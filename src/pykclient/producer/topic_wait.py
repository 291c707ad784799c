"""Waiting until the metadata contains a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient import topic_names
from pykclient.errors import InvalidTopicError, KafkaTimeoutError
from pykclient.network.cluster import Cluster
from pykclient.reentry import HERE

if TYPE_CHECKING:
    from pykclient.producer.producer_components import ProducerComponents


class TopicWait:
    """Waits for the metadata of topics (Java: KafkaProducer.waitOnMetadata). Thread: any."""

    __slots__ = ("_components", "_max_block_ms")

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
