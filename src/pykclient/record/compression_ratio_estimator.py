"""How well a topic's batches compress, for the size estimates of the next ones (Java: CompressionRatioEstimator).

A batch that came out larger than estimated moves the estimate up fast, one that came out smaller moves it down slowly:
too large an estimate wastes a little room, too small a one makes batches that the broker refuses.
"""

from __future__ import annotations

import threading

from .compression_type import COMPRESSION_TYPES, CompressionType

COMPRESSION_RATIO_IMPROVING_STEP = 0.005
COMPRESSION_RATIO_DETERIORATE_STEP = 0.05


class CompressionRatioEstimator:
    """Compressed size by uncompressed size, per topic and codec. A producer has one of its own. Thread: any."""

    __slots__ = ("_lock", "_ratios")

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards: the lists in _ratios
        self._ratios: dict[str, list[float]] = {}

    def estimation(self, topic: str, compression_type: CompressionType) -> float:
        """The ratio to expect; 1.0 for a topic without batches."""
        ratios = self._ratios.get(topic)
        return compression_type.rate if ratios is None else ratios[compression_type.id]

    def update_estimation(self, topic: str, compression_type: CompressionType, observed_ratio: float) -> float:
        """Learn from a batch; returns the new estimate."""
        with self._lock:
            ratios = self._of_topic(topic)
            current = ratios[compression_type.id]
            if observed_ratio > current:
                current = max(current + COMPRESSION_RATIO_DETERIORATE_STEP, observed_ratio)
            elif observed_ratio < current:
                current = max(current - COMPRESSION_RATIO_IMPROVING_STEP, observed_ratio)
            ratios[compression_type.id] = current
            return current

    def set_estimation(self, topic: str, compression_type: CompressionType, ratio: float) -> None:
        """Put an estimate in place, as when the broker refused a batch that was too large."""
        with self._lock:
            self._of_topic(topic)[compression_type.id] = ratio

    def reset_estimation(self, topic: str) -> None:
        """Forget what was learnt of ``topic``."""
        with self._lock:
            self._ratios.pop(topic, None)

    def _of_topic(self, topic: str) -> list[float]:
        ratios = self._ratios.get(topic)
        if ratios is None:
            ratios = self._ratios[topic] = [compression_type.rate for compression_type in COMPRESSION_TYPES]
        return ratios
