"""One line in the log for each kind of error in a produce response, however many partitions have it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykclient.producer.producer_batch import ProducerBatch
    from pykclient.types import TopicPartition

#: The most partitions that a line names.
_MOST_NAMED: Final = 10


class ProduceWarnings:
    """Gathers the warnings about the batches of one response, and logs them together.

    While brokers restart, thousands of partitions may have no leader for some seconds. A line for each of them and each
    attempt would hide all others. Thread: io.
    """

    __slots__ = ("_log", "_missing", "_retried", "noted")

    def __init__(self, log: logging.Logger | logging.LoggerAdapter[logging.Logger]) -> None:
        self._log = log
        self._retried: dict[type[Exception], tuple[Exception, list[ProducerBatch]]] = {}
        self._missing: list[TopicPartition] = []
        #: True if there is anything to ``write``.
        self.noted = False

    def retry(self, batch: ProducerBatch, error: Exception) -> None:
        """Note that a batch is retried because of ``error``."""
        self.noted = True
        self._retried.setdefault(type(error), (error, []))[1].append(batch)

    def missing(self, partition: TopicPartition) -> None:
        """Note that a broker does not know a partition."""
        self.noted = True
        self._missing.append(partition)

    def write(self) -> None:
        """Log what was noted, and forget it."""
        self.noted = False
        retried, self._retried = self._retried, {}
        missing, self._missing = self._missing, []
        for error, batches in retried.values():
            if len(batches) == 1:
                (batch,) = batches
                self._log.warning("Retrying %s after attempt %d: %s", batch, batch.attempts, error)
            else:
                self._log.warning(
                    "Retrying the batches of %d partitions, after up to %d attempts, because of %s: %s (%s)",
                    len(batches),
                    max(batch.attempts for batch in batches),
                    type(error).__name__,
                    error,
                    _listed([batch.topic_partition for batch in batches]),
                )
        if len(missing) == 1:
            self._log.warning("Partition %s does not exist, or this user is not authorized to describe it", missing[0])
        elif missing:
            self._log.warning(
                "%d partitions do not exist, or this user is not authorized to describe them: %s",
                len(missing),
                _listed(missing),
            )


def _listed(partitions: Sequence[TopicPartition]) -> str:
    more = len(partitions) - _MOST_NAMED
    named = ", ".join(map(str, partitions[:_MOST_NAMED]))
    return f"{named} and {more} more" if more > 0 else named
