"""The errors of the asyncio clients: those of pykclient.errors, and what aiokafka calls some of them."""

from __future__ import annotations

from typing import Any

from pykclient import errors
from pykclient.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)


class ProducerClosed(IllegalStateError):  # noqa: N818 - aiokafka's name
    """The producer is closed."""


class ConsumerStoppedError(IllegalStateError):
    """The consumer is stopped."""


class GroupIdMissingError(InvalidGroupIdError, IllegalStateError):
    """The call needs a group, and the consumer has no ``group_id``."""


class ArgumentTypeError(IllegalArgumentError, TypeError):
    """An argument has the wrong type."""


class MissingTopicError(KafkaTimeoutError, UnknownTopicOrPartitionError):
    """No broker has described the topic, or the partition, within ``max.block.ms``.

    It is also what aiokafka raises then.
    """


#: aiokafka's names for classes that have another one in pykclient.errors.
_ALIASES = {
    "AuthenticationFailedError": "AuthenticationError",
    "AuthenticationMethodNotSupported": "UnsupportedSaslMechanismError",
    "ConcurrentTransactions": "ConcurrentTransactionsError",
    "DelegationTokenAuthDisabled": "DelegationTokenDisabledError",
    "DelegationTokenAuthorizationFailed": "DelegationTokenAuthorizationError",
    "DelegationTokenExpired": "DelegationTokenExpiredError",
    "DelegationTokenNotFound": "DelegationTokenNotFoundError",
    "DelegationTokenOwnerMismatch": "DelegationTokenOwnerMismatchError",
    "DelegationTokenRequestNotAllowed": "UnsupportedByAuthenticationError",
    "DuplicateSequenceNumber": "DuplicateSequenceError",
    "FetchSessionIdNotFound": "FetchSessionIdNotFoundError",
    "GroupIdNotFound": "GroupIdNotFoundError",
    "IllegalOperation": "IllegalStateError",
    "InvalidFetchSessionEpoch": "InvalidFetchSessionEpochError",
    "InvalidMessageError": "CorruptRecordError",
    "InvalidPrincipalType": "InvalidPrincipalTypeError",
    "InvalidProducerEpoch": "InvalidProducerEpochError",
    "InvalidProducerIdMapping": "InvalidPidMappingError",
    "InvalidTransactionTimeout": "InvalidTxnTimeoutError",
    "InvalidTxnState": "InvalidTxnStateError",
    "ListenerNotFound": "ListenerNotFoundError",
    "LogDirNotFound": "LogDirNotFoundError",
    "MemberIdRequired": "MemberIdRequiredError",
    "NoBrokersAvailable": "KafkaTimeoutError",
    "NonEmptyGroup": "GroupNotEmptyError",
    "OperationNotAttempted": "OperationNotAttemptedError",
    "OutOfOrderSequenceNumber": "OutOfOrderSequenceError",
    "ProducerFenced": "ProducerFencedError",
    "QuotaViolationError": "ThrottlingQuotaExceededError",
    "ReassignmentInProgress": "ReassignmentInProgressError",
    "SaslAuthenticationFailed": "SaslAuthenticationError",
    "SecurityDisabled": "SecurityDisabledError",
    "StaleLeaderEpochCodeError": "NetworkError",
    "TooManyInFlightRequests": "DisconnectError",
    "TransactionCoordinatorFenced": "TransactionCoordinatorFencedError",
    "TransactionalIdAuthorizationFailed": "TransactionalIdAuthorizationError",
    "UnknownProducerId": "UnknownProducerIdError",
}


def __getattr__(name: str) -> Any:
    return getattr(errors, _ALIASES.get(name, name))
