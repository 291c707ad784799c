"""The codecs that batches name in their attributes, and their errors (Java: CompressionType).

Estimates of how well a topic's batches compress, for the sizes of later ones (Java: CompressionRatioEstimator).

A batch that is larger than estimated raises the estimate quickly, a smaller one lowers it slowly. Too high an estimate
wastes a little room; too low an estimate makes batches that the broker rejects.
"""

from __future__ import annotations

import threading
from typing import ClassVar

from pykclient.clock import HERE
from pykclient.errors import CorruptRecordError, IllegalArgumentError, UnsupportedCompressionTypeError


class CompressionType:
    """A codec: its ``id`` on the wire, its ``name`` in configurations, and its levels (KIP-390).

    There is one instance per codec, so compare with ``is``. Levels are None for codecs without levels.
    """

    __slots__ = ("default_level", "id", "max_level", "min_level", "name", "rate")

    NONE: ClassVar[CompressionType]
    GZIP: ClassVar[CompressionType]
    SNAPPY: ClassVar[CompressionType]
    LZ4: ClassVar[CompressionType]
    ZSTD: ClassVar[CompressionType]

    def __init__(
        self,
        id: int,
        name: str,
        min_level: int | None = None,
        max_level: int | None = None,
        default_level: int | None = None,
    ) -> None:
        self.id = id
        self.name = name
        self.min_level = min_level
        self.max_level = max_level
        self.default_level = default_level
        #: The initial estimate of the compression ratio.
        self.rate = 1.0

    @staticmethod
    def for_id(id: int) -> CompressionType:
        """Return the codec of a batch.

        Raises:
            CorruptRecordError: no version of Kafka defines ``id``.
        """
        if 0 <= id < len(COMPRESSION_TYPES):
            return COMPRESSION_TYPES[id]
        raise CorruptRecordError(
            f"compression type id {id} is not defined; known are 0 to {len(COMPRESSION_TYPES) - 1}"
        )

    @staticmethod
    def for_name(name: str) -> CompressionType:
        """Return the codec with this name in configurations.

        Raises:
            IllegalArgumentError: there is none.
        """
        for compression_type in COMPRESSION_TYPES:
            if compression_type.name == name:
                return compression_type
        names = ", ".join(known.name for known in COMPRESSION_TYPES)
        raise IllegalArgumentError(f"compression type {name!r} is not one of {names}")

    def ensure_level(self, level: int) -> int:
        """``level``, if the codec takes it; gzip's -1 means zlib's own default.

        Raises:
            IllegalArgumentError: it does not.
        """
        if self.min_level is None or self.max_level is None:
            raise IllegalArgumentError(f"compression type {self.name} has no levels")
        if not self.min_level <= level <= self.max_level and level != self.default_level:
            extra = "" if self.default_level is None or self.default_level >= self.min_level else " or -1"
            raise IllegalArgumentError(
                f"compression level {level} is outside {self.min_level} to {self.max_level}{extra} for {self.name}"
            )
        return level

    def __repr__(self) -> str:
        return f"CompressionType.{self.name.upper()}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return repr(self)


COMPRESSION_TYPES = (
    CompressionType(0, "none"),
    CompressionType(1, "gzip", 1, 9, -1),
    CompressionType(2, "snappy"),
    CompressionType(3, "lz4", 1, 17, 9),
    CompressionType(4, "zstd", -131072, 22, 3),
)
for _type in COMPRESSION_TYPES:
    setattr(CompressionType, _type.name.upper(), _type)


def not_installed(codec: str, package: str, error: ImportError) -> UnsupportedCompressionTypeError:
    return UnsupportedCompressionTypeError(
        f"{codec} needs a package that cannot be imported ({error}); install it: pip install {package}"
    )


def too_large(codec: str, size: int, limit: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"{size} bytes of {codec} decompress to more than {limit} bytes; "
        "if that is intended, raise max.decompressed.batch.bytes"
    )


def unreadable(codec: str, error: Exception | str) -> CorruptRecordError:
    return CorruptRecordError(f"unreadable {codec} data: {error}")


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
            ratios = cls._ratios.get(topic) or cls._of_topic(topic)
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
