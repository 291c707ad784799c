"""Responses that wait for a poll, and what a poll takes from them (Java: ShareFetchBuffer, ShareFetchCollector)."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from pykclient import errors
from pykclient.consumer.share.share_fetch import ShareFetch
from pykclient.errors import KafkaError, TopicAuthorizationError, for_code
from pykclient.network.authorization_errors import topics_denied

if TYPE_CHECKING:
    from pykclient.clock import Clock
    from pykclient.consumer.consumer_metadata import ConsumerMetadata
    from pykclient.consumer.deserializers import Deserializers
    from pykclient.consumer.share.acknowledgements import NodeAcknowledgements
    from pykclient.consumer.share.share_completed_fetch import ShareCompletedFetch
    from pykclient.consumer.share.share_fetch_config import ShareFetchConfig
    from pykclient.log_context import LogContext

#: After these errors a new leader or fresh metadata is enough; the number is the level of the log.
_MENDED_BY_METADATA: dict[type[KafkaError], int] = {
    errors.NotLeaderOrFollowerError: logging.DEBUG,
    errors.ReplicaNotAvailableError: logging.DEBUG,
    errors.KafkaStorageError: logging.DEBUG,
    errors.FencedLeaderEpochError: logging.DEBUG,
    errors.OffsetNotAvailableError: logging.DEBUG,
    errors.LeaderNotAvailableError: logging.DEBUG,
    errors.UnknownTopicOrPartitionError: logging.WARNING,
    errors.UnknownTopicIdError: logging.WARNING,
    errors.InconsistentTopicIdError: logging.WARNING,
}


class ShareFetchBuffer:
    """The responses that no poll has returned yet, by partition.

    ``add`` and ``clear`` belong to the holder of the I/O lease. Thread: application, for all else.
    """

    __slots__ = ("_clock", "_config", "_deserializers", "_log", "_metadata", "_next_in_line", "_waiting")

    def __init__(
        self,
        log_context: LogContext,
        metadata: ConsumerMetadata,
        config: ShareFetchConfig,
        deserializers: Deserializers,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._log = log_context.logger(__name__)
        self._metadata = metadata
        self._config = config
        self._deserializers = deserializers
        self._waiting: deque[ShareCompletedFetch] = deque()
        self._next_in_line: ShareCompletedFetch | None = None

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to return or to raise."""
        return not self._waiting and (self._next_in_line is None or self._next_in_line.is_consumed)

    def add(self, completed: ShareCompletedFetch) -> None:
        self._waiting.append(completed)

    def clear(self) -> None:
        """Drop everything, as the records are no longer locked for this consumer."""
        self._waiting.clear()
        self._next_in_line = None

    def release_all(self) -> list[NodeAcknowledgements]:
        """Drop everything, and return acknowledgements that release the records."""
        waiting = ([] if self._next_in_line is None else [self._next_in_line]) + list(self._waiting)
        self.clear()
        released = []
        for completed in waiting:
            fetch = ShareFetch()
            fetch.add(completed.release(), None)
            released += fetch.take_acknowledged()
        return released

    def collect(self) -> ShareFetch:
        """Return the records for one poll, of whole batches.

        An error is put into ``error`` of the result, and only if there is no record before it to return.
        """
        fetch = ShareFetch()
        while (wanted := self._config.max_poll_records - fetch.num_records) > 0:
            completed = self._next_in_line
            if completed is None or completed.is_consumed:
                if not self._waiting:
                    break
                completed = self._waiting[0]
                if completed.partition_data.error_code:
                    if not self._handle_error(completed, fetch):
                        break
                    continue
                self._next_in_line = self._waiting.popleft()
            if self._clock.now_ms() >= completed.lock_end_ms:
                # Other members may have processed them; if not, the broker delivers them again.
                tp = completed.partition.topic_partition
                self._log.info("Dropping fetched records of %s, as their locks expired before a poll took them", tp)
                completed.drain()
                continue
            if not fetch.can_add(completed.node_id, completed.partition):
                break  # the leader has changed; the next poll returns these
            batch, error = completed.fetch_records(
                self._config, self._deserializers, wanted, may_fail=not fetch.num_records
            )
            fetch.add(batch, completed.lock_timeout_ms)
            if error is not None:
                fetch.error = error
                break
            if not completed.is_consumed:
                break  # an error follows, or there are enough records
        return fetch

    def _handle_error(self, completed: ShareCompletedFetch, fetch: ShareFetch) -> bool:
        """Handle the error of a partition. Return False if it ends the collection."""
        tp = completed.partition.topic_partition
        error = for_code(completed.partition_data.error_code, completed.partition_data.error_message)
        level = _MENDED_BY_METADATA.get(type(error)) if error is not None else None
        if level is not None:
            self._log.log(level, "Fetching from %s failed, requesting metadata: %s", tp, error)
            self._metadata.request_update(False)
        elif isinstance(error, (errors.UnknownLeaderEpochError, errors.UnknownServerError)):
            self._log.warning("Fetching from %s failed: %s", tp, error)
        else:
            if fetch.num_records:
                return False  # the next poll raises it
            if isinstance(error, TopicAuthorizationError):
                self._log.warning("Not authorized to read %s", tp)
                fetch.error = topics_denied(self._log.principal, [tp.topic], "READ")
            else:
                fetch.error = error
        self._waiting.popleft()
        completed.drain()
        return fetch.error is None
