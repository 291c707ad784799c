"""The records of __transaction_state, equal to Kafka's (Java: TransactionLog).

A key begins with its type, a value with its version, two bytes each. A record without a value is a tombstone.
"""

from __future__ import annotations

from typing import Final

from pykclient.errors import UnsupportedVersionError
from pykclient.protocol.messages.transaction_log_key import TransactionLogKey
from pykclient.protocol.messages.transaction_log_value import TransactionLogValue
from pykclient.protocol.wire import BytesLike, Reader, Writer
from pykclient.testing.transaction.transaction_metadata import TransactionMetadata, TxnTransitMetadata
from pykclient.testing.transaction.transaction_state import BY_ID, EMPTY
from pykclient.types import TopicPartition

_KEY_TYPE: Final = 0

#: The version of values since transaction.version=1, which has tagged fields, and the one before.
_FLEXIBLE_VALUE: Final = 1
_FIRST_VALUE: Final = 0


def key_to_bytes(transactional_id: str) -> bytes:
    w = Writer()
    w.int16(_KEY_TYPE)
    TransactionLogKey(transactional_id=transactional_id).write(w, 0)
    return w.getvalue()


def value_to_bytes(transit: TxnTransitMetadata, transaction_version: int) -> bytes:
    """Return the value for the log of a cluster with this transaction.version."""
    version = _FLEXIBLE_VALUE if transaction_version >= 1 else _FIRST_VALUE
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(transit.topic_partitions):
        partitions.setdefault(topic, []).append(partition)
    value = TransactionLogValue(
        producer_id=transit.producer_id,
        producer_epoch=transit.producer_epoch,
        transaction_timeout_ms=transit.txn_timeout_ms,
        transaction_status=transit.state.id,
        transaction_partitions=None
        if transit.state is EMPTY
        else [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=numbers)
            for topic, numbers in partitions.items()
        ],
        transaction_last_update_timestamp_ms=transit.txn_last_update_ms,
        transaction_start_timestamp_ms=transit.txn_start_ms,
    )
    if version == _FLEXIBLE_VALUE:
        value.previous_producer_id = transit.prev_producer_id
        value.next_producer_id = transit.next_producer_id
        value.next_producer_epoch = transit.next_producer_epoch
        value.client_transaction_version = transit.client_transaction_version
    w = Writer()
    w.int16(version)
    value.write(w, version)
    return w.getvalue()


def read_key(key: BytesLike) -> str | None:
    """Return the transactional id, or None for a key of another type.

    Raises:
        RemoteProtocolError: the bytes are not a key.
    """
    reader = Reader(key)
    return TransactionLogKey.read(reader, 0).transactional_id if reader.int16() == _KEY_TYPE else None


def read_value(transactional_id: str, value: BytesLike) -> TransactionMetadata:
    """Decode the value of a record.

    Raises:
        RemoteProtocolError, UnsupportedVersionError: the value cannot be decoded.
    """
    reader = Reader(value)
    read = TransactionLogValue.read(reader, reader.int16())
    state = BY_ID.get(read.transaction_status)
    if state is None:
        raise UnsupportedVersionError(f"{transactional_id!r} has state {read.transaction_status}, which is unknown")
    return TransactionMetadata(
        transactional_id,
        read.producer_id,
        read.transaction_timeout_ms,
        read.transaction_last_update_timestamp_ms,
        producer_epoch=read.producer_epoch,
        prev_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        next_producer_epoch=read.next_producer_epoch,
        state=state,
        topic_partitions=[
            TopicPartition(topic.topic, partition)
            for topic in read.transaction_partitions or ()
            for partition in topic.partition_ids
        ],
        txn_start_ms=read.transaction_start_timestamp_ms,
        client_transaction_version=read.client_transaction_version,
    )
