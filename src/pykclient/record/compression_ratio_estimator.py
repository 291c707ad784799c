"""Estimates of how well a topic's batches compress, for the sizes of later ones (Java: CompressionRatioEstimator).

A batch that is larger than estimated raises the estimate quickly, a smaller one lowers it slowly. Too high an estimate
wastes a little room; too low an estimate makes batches that the broker rejects.
"""

from __future__ import annotations

import threading
from typing import ClassVar

from pykclient.record.compression_type import COMPRESSION_TYPES, CompressionType
from pykclient.reentry import HERE

COMPRESSION_RATIO_IMPROVING_STEP = 0.005
COMPRESSION_RATIO_DETERIORATE_STEP = 0.05


class CompressionRatioEstimator:
    """The ratio of compressed to uncompressed size, per topic and codec, for all producers of the process.

    Thread: any.
    """

    _lock: ClassVar = threading.Lock()  # guards: _ratios, except for reading a single number
    _ratios: ClassVar[dict[str, list[float]]] = {}

    @classmethod
    def estimation(cls, topic: str, compression_type: CompressionType) -> float:
        """Return the expected ratio; 1.0 for a topic without batches."""
        ratios = cls._ratios.get(topic)
        return compression_type.rate if ratios is None else ratios[compression_type.id]

    @classmethod
    def update_estimation(cls, topic: str, compression_type: CompressionType, observed_ratio: float) -> float:
        """Update the estimate with a batch's ratio, and return it."""
        with HERE.mark, cls._lock:
            ratios = cls._of_topic(topic)
            current = ratios[compression_type.id]
            if observed_ratio > current:
                current = max(current + COMPRESSION_RATIO_DETERIORATE_STEP, observed_ratio)
            elif observed_ratio < current:
                current = max(current - COMPRESSION_RATIO_IMPROVING_STEP, observed_ratio)
            ratios[compression_type.id] = current
            return current

    @classmethod
    def set_estimation(cls, topic: str, compression_type: CompressionType, ratio: float) -> None:
        """Set the estimate, for example after the broker rejected a batch as too large."""
        with HERE.mark, cls._lock:
            cls._of_topic(topic)[compression_type.id] = ratio

    @classmethod
    def reset_estimation(cls, topic: str) -> None:
        """Reset the estimates of ``topic``."""
        with HERE.mark, cls._lock:
            cls._ratios.pop(topic, None)

    @classmethod
    def _of_topic(cls, topic: str) -> list[float]:
        ratios = cls._ratios.get(topic)
        if ratios is None:
            ratios = cls._ratios[topic] = [compression_type.rate for compression_type in COMPRESSION_TYPES]
        return ratios
