"""The user data of the sticky assignor: a member's previous assignment (Java: StickyAssignor's schemas).

::

    version 0: [topic STRING, [partition INT32]]
    version 1: [topic STRING, [partition INT32]] generation INT32

The version is not part of the data, except in that of kafka-python 3, which begins with it (INT16). librdkafka also
sends version 1 for its cooperative-sticky assignor.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykclient.consumer.assignors.owned_partitions import DEFAULT_GENERATION, MemberData
from pykclient.errors import RemoteProtocolError
from pykclient.protocol.wire import BytesLike, Reader, Writer
from pykclient.types import TopicPartition

_VERSION = 1
_INT32_BYTES = 4


def serialize_member_data(partitions: Iterable[TopicPartition], generation_id: int) -> bytes:
    """Encode a previous assignment in version 1."""
    numbers: dict[str, list[int]] = {}
    for tp in partitions:
        numbers.setdefault(tp.topic, []).append(tp.partition)
    writer = Writer()
    writer.array_length(len(numbers), flexible=False)
    for topic, some in numbers.items():
        writer.string(topic, flexible=False)
        writer.int32_array(some, flexible=False)
    writer.int32(generation_id)
    return writer.getvalue()


def deserialize_member_data(user_data: BytesLike | None) -> MemberData:
    """Decode a previous assignment of either version. If it cannot be read, the member owned nothing."""
    if not user_data:
        return MemberData(())
    try:
        return _read_member_data(Reader(user_data))
    except RemoteProtocolError:
        pass
    try:
        reader = Reader(user_data)
        if reader.int16() == _VERSION:
            return _read_member_data(reader)
    except RemoteProtocolError:
        pass
    return MemberData(())


def _read_member_data(reader: Reader) -> MemberData:
    partitions: list[TopicPartition] = []
    for _ in range(reader.array_length(flexible=False)):
        topic = reader.string(flexible=False)
        partitions += [TopicPartition(topic, number) for number in reader.int32_array(flexible=False)]
    return MemberData(partitions, reader.int32() if reader.remaining >= _INT32_BYTES else DEFAULT_GENERATION)
