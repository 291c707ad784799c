"""The round-robin partitioner of kafka-python 1 and 2."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from pykclient.partitioner.abc import Partitioner, partitions_of


class RoundRobinPartitioner(Partitioner):
    """Each record of a topic to the next partition with a leader, whatever its key.

    ``partitions`` are the partitions to use before any are passed in. Thread: any.
    """

    def __init__(self, partitions: Sequence[int] | None = None) -> None:
        self._default = sorted(partitions or ())
        self._lock = threading.Lock()  # guards: _last
        self._last: dict[str, int] = {}

    def partition(
        self,
        topic: str,
        key: Any,  # noqa: ARG002 - the signature of the base
        serialized_key: bytes | None,  # noqa: ARG002
        value: Any,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Any,
    ) -> int:
        everything, available = partitions_of(topic, cluster)
        return self._next(topic, available or everything)

    def __call__(
        self,
        key: bytes | None = None,  # noqa: ARG002 - the signature of the base
        all_partitions: Sequence[int] = (),
        available_partitions: Sequence[int] = (),
    ) -> int:
        """Return the next partition of those given, as in kafka-python 2."""
        return self._next("", sorted(available_partitions or all_partitions or self._default))

    def _next(self, topic: str, partitions: list[int]) -> int:
        """Return the smallest partition above the last one, or the first; so a list that changes skips none."""
        if not partitions:
            raise ValueError("there are no partitions to choose from")
        with self._lock:
            last = self._last.get(topic, -1)
            chosen = next((partition for partition in partitions if partition > last), partitions[0])
            self._last[topic] = chosen
        return chosen
