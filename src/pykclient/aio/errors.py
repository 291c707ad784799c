"""The errors of the asyncio clients: those of pykclient.errors, and what aiokafka calls some of them."""

from __future__ import annotations

from typing import Any

from pykclient import errors
from pykclient.errors import (
    BrokerError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaTimeoutError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)


class ProducerClosed(IllegalStateError):  # noqa: N818 - aiokafka's name
    """The producer is closed."""


class ConsumerStoppedError(RuntimeError):
    """The consumer is stopped.

    Not a KafkaError: a loop that logs Kafka's errors and asks again must end, as with aiokafka.
    """


class GroupIdMissingError(InvalidGroupIdError, IllegalStateError):
    """The call needs a group, and the consumer has no ``group_id``."""


class ArgumentTypeError(IllegalArgumentError, TypeError):
    """An argument has the wrong type."""


class MissingTopicError(KafkaTimeoutError, UnknownTopicOrPartitionError):
    """No broker knew the topic or the partition within ``max.block.ms``.

    It is also what aiokafka raises then.
    """


def for_code(error_code: int) -> type[BrokerError]:
    """Return the class of a protocol error code, as aiokafka does; ``pykclient.errors.for_code`` returns an error."""
    return type(errors.for_code(error_code) or UnknownServerError())


#: aiokafka's names for classes that have another one in pykclient.errors, unless they only lack the "Error" at the end.
_ALIASES = {
    "AuthenticationFailedError": "AuthenticationError",
    "AuthenticationMethodNotSupported": "UnsupportedSaslMechanismError",
    "IllegalOperation": "IllegalStateError",
    "InvalidMessageError": "CorruptRecordError",
    "QuotaViolationError": "ThrottlingQuotaExceededError",
    "StaleLeaderEpochCodeError": "NetworkError",
    "TooManyInFlightRequests": "DisconnectError",
}


def __getattr__(name: str) -> Any:
    found = getattr(errors, f"{name}Error", None)  # such as ProducerFenced
    return getattr(errors, _ALIASES.get(name, name)) if found is None else found
