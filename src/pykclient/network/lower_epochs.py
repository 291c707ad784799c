"""Decides when to accept a leader epoch below the known one."""

from __future__ import annotations

import logging

from pykclient.types import TopicPartition

#: A lower epoch is accepted if at least this many responses in a row contain one,
_RESPONSES = 3
#: for this long, or for metadata.max.age.ms if that is less.
_BELIEVED_AFTER_MS = 60_000
#: A warning is logged after responses have contained a lower epoch for this long.
_WARNED_AFTER_MS = 5_000

#: A log line (level, text, arguments), kept until the lock is released.
Note = tuple[int, str, tuple[object, ...]]


class _LowerEpoch:
    """Consecutive responses with a lower leader epoch of a partition than the known one. Thread: owner."""

    __slots__ = ("responses", "since_ms", "warned")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.responses = 0
        self.warned = False


class LowerEpochs:
    """Decides when lower leader epochs have lasted for so long that the known epoch must be wrong.

    Usually the broker that responded lags behind, and the next response is right. But the known epoch may be that of a
    deleted topic that was created again, in a cluster without topic ids, or if the epoch came from a commit or a seek.
    Then no response is ever right, and the partition would never have a leader again (as in Java). A broker that is cut
    off from its cluster also reports old epochs, hence the long time; with topic ids it is told apart.

    Thread: any, under the lock of Metadata.
    """

    __slots__ = ("_believed_after_ms", "_by_partition")

    def __init__(self, metadata_expire_ms: int) -> None:
        self._believed_after_ms = min(metadata_expire_ms, _BELIEVED_AFTER_MS)
        self._by_partition: dict[TopicPartition, _LowerEpoch] = {}

    def forget(self, partition: TopicPartition) -> None:
        """Start over, because a response contained the known epoch or a newer one."""
        self._by_partition.pop(partition, None)

    def believes(
        self,
        partition: TopicPartition,
        epoch: int,
        known: int,
        now_ms: int,
        notes: list[Note],
        *,
        is_behind: bool,
    ) -> bool:
        """Return True if ``epoch``, which a response contained and which is below ``known``, is to be accepted.

        ``is_behind``: another response had a higher epoch for the same topic id, so this one is certainly old. The
        method appends log lines to ``notes``.
        """
        lower = self._by_partition.setdefault(partition, _LowerEpoch(now_ms))
        lower.responses += 1
        for_ms = now_ms - lower.since_ms
        if not is_behind and lower.responses >= _RESPONSES and for_ms >= self._believed_after_ms:
            text = (
                "Metadata has had leader epoch %d of %s for %d ms, although epoch %d was seen before: the topic was "
                "probably deleted and created again, or a commit or seek() had a wrong epoch. So epoch %d counts from "
                "now on"
            )
            notes.append((logging.WARNING, text, (epoch, partition, for_ms, known, epoch)))
            return True
        if not lower.warned and for_ms >= _WARNED_AFTER_MS:
            lower.warned = True
            text = "Metadata keeps having leader epoch %d of %s, although epoch %d was seen before. "
            if is_behind:
                text += "Brokers are cut off from the cluster. The known leader is kept until this ends"
                notes.append((logging.WARNING, text, (epoch, partition, known)))
            else:
                text += (
                    "Either brokers are cut off from the cluster, or the topic was deleted and created again, or a "
                    "commit or seek() had a wrong epoch. The known leader is kept until this ends, or until it has "
                    "lasted for %d ms"
                )
                notes.append((logging.WARNING, text, (epoch, partition, known, self._believed_after_ms)))
        else:
            notes.append((logging.DEBUG, "Ignoring leader epoch %d of %s, %d is known", (epoch, partition, known)))
        return False
