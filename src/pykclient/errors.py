"""Every error that pykclient raises.

``KafkaError`` is the root. Three questions can be asked of any error by its class: may the same call be tried
again (``RetriableError``), should metadata be refreshed first (``InvalidMetadataError``), and did a broker
say it (``BrokerError``, which has ``code``). All errors can be pickled, as Spark moves them between processes.
"""

from __future__ import annotations

from typing import Any


def _rebuild(cls: type[KafkaError], args: tuple[Any, ...], state: dict[str, Any]) -> KafkaError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class KafkaError(Exception):
    """Root of all errors of this package."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class RetriableError(KafkaError):
    """The same operation may succeed when it is tried again (Java: RetriableException)."""


class RefreshRetriableError(RetriableError):
    """Retriable after the client has refreshed what it knows: metadata or the coordinator (KIP-1050)."""


class InvalidMetadataError(RefreshRetriableError):
    """The client's picture of the cluster is out of date; it refreshes its metadata and tries again."""


class ApplicationRecoverableError(KafkaError):
    """The application can go on after it has made a new client or has joined again (KIP-1050)."""


class AuthorizationError(KafkaError):
    """The authenticated principal may not do what it asked for."""


class AuthenticationError(KafkaError):
    """The connection could not prove who it is. Never retried by itself."""


class InvalidOffsetError(KafkaError):
    """An offset that the log does not have, or a partition that has none."""


# --- raised by the client itself ---------------------------------------------------------------------------------


class KafkaTimeoutError(RetriableError):
    """Something did not happen in the time it was given (Java: TimeoutException)."""


class BufferExhaustedError(KafkaTimeoutError):
    """``buffer.memory`` stayed full for ``max.block.ms``."""


class ConfigError(KafkaError, ValueError):
    """A configuration key that is unknown, of the wrong type, out of range or not supported; ``key`` tells which."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class IllegalStateError(KafkaError, RuntimeError):
    """The call is not allowed in the state that the object is in, such as any use after ``close()``."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument has a value that the method cannot use."""


class ConcurrentModificationError(IllegalStateError):
    """A second thread called a consumer while another one was inside it."""


class UseAfterForkError(IllegalStateError):
    """A client made before ``fork()`` was used in the child process."""


class WakeupError(KafkaError):
    """``KafkaConsumer.wakeup()`` ended a blocking call."""


class SerializationError(KafkaError):
    """A serializer or deserializer failed; its own error is the cause."""


class RecordDeserializationError(SerializationError):
    """A fetched record could not be deserialized.

    ``topic_partition`` and ``offset`` tell which; the position stays on it, so ``seek(tp, offset + 1)`` passes it over.
    """

    def __init__(self, message: str, topic_partition: Any = None, offset: int = -1) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset


class DisconnectError(RetriableError):
    """The connection was lost while a request was on its way (Java: DisconnectException)."""


class InterceptorError(KafkaError):
    """An interceptor could not be made or closed."""


class CommitFailedError(KafkaError):
    """Offsets were not committed because the group has moved on; the partitions belong to others now."""


class RetriableCommitFailedError(RetriableError):
    """An asynchronous commit failed in a way that allows another try."""


class NoOffsetForPartitionError(InvalidOffsetError):
    """A partition has neither a position, nor a committed offset, nor a reset policy.

    ``partitions`` is the set of those.
    """

    def __init__(self, message: str, partitions: Any = frozenset()) -> None:
        super().__init__(message)
        self.partitions = partitions


class LogTruncationError(InvalidOffsetError):
    """The log lost records that were consumed (KIP-320). ``divergent_offsets`` maps partitions to where they differ."""

    def __init__(self, message: str, divergent_offsets: Any = None) -> None:
        super().__init__(message)
        self.divergent_offsets = divergent_offsets or {}


class TransactionAbortedError(KafkaError):
    """The record was not sent because its transaction was aborted."""


class ProtocolError(KafkaError):
    """Bytes that do not mean what they should."""


class LocalProtocolError(ProtocolError):
    """This side was about to write what the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The other side sent what the protocol does not allow: truncated, oversized or unreadable."""


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed for a reason that will not go away by itself."""


# --- said by a broker ----------------------------------------------------------------------------------------------

_BY_CODE: dict[int, type[BrokerError]] = {}


class BrokerError(KafkaError):
    """An error code of the Kafka protocol. ``code`` is its number; unknown numbers are kept."""

    code: int = -1

    def __init_subclass__(cls, code: int | None = None) -> None:
        if code is not None:
            cls.code = code
            _BY_CODE[code] = cls

    def __init__(self, message: str | None = None, *args: Any) -> None:
        super().__init__(message if message is not None else (type(self).__doc__ or "").split("\n")[0], *args)


class UnknownCodeError(BrokerError):
    """The broker answered with an error code that this version of the client does not know."""


class UnknownServerError(BrokerError, code=-1):
    """UNKNOWN_SERVER_ERROR."""


class OffsetOutOfRangeError(InvalidOffsetError, BrokerError, code=1):
    """OFFSET_OUT_OF_RANGE."""


class CorruptRecordError(RetriableError, BrokerError, code=2):
    """CORRUPT_MESSAGE."""


class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerError, code=3):
    """UNKNOWN_TOPIC_OR_PARTITION."""


class InvalidFetchSizeError(BrokerError, code=4):
    """INVALID_FETCH_SIZE."""


class LeaderNotAvailableError(InvalidMetadataError, BrokerError, code=5):
    """LEADER_NOT_AVAILABLE."""


class NotLeaderOrFollowerError(InvalidMetadataError, BrokerError, code=6):
    """NOT_LEADER_OR_FOLLOWER."""


class RequestTimedOutError(KafkaTimeoutError, BrokerError, code=7):
    """REQUEST_TIMED_OUT."""


class BrokerNotAvailableError(BrokerError, code=8):
    """BROKER_NOT_AVAILABLE."""


class ReplicaNotAvailableError(InvalidMetadataError, BrokerError, code=9):
    """REPLICA_NOT_AVAILABLE."""


class RecordTooLargeError(BrokerError, code=10):
    """MESSAGE_TOO_LARGE."""


class ControllerMovedError(BrokerError, code=11):
    """STALE_CONTROLLER_EPOCH."""


class OffsetMetadataTooLargeError(BrokerError, code=12):
    """OFFSET_METADATA_TOO_LARGE."""


class NetworkError(InvalidMetadataError, BrokerError, code=13):
    """NETWORK_EXCEPTION."""


class CoordinatorLoadInProgressError(RetriableError, BrokerError, code=14):
    """COORDINATOR_LOAD_IN_PROGRESS."""


class CoordinatorNotAvailableError(RefreshRetriableError, BrokerError, code=15):
    """COORDINATOR_NOT_AVAILABLE."""


class NotCoordinatorError(RefreshRetriableError, BrokerError, code=16):
    """NOT_COORDINATOR."""


class InvalidConfigurationError(BrokerError, code=40):
    """INVALID_CONFIG."""


class InvalidTopicError(InvalidConfigurationError, code=17):
    """INVALID_TOPIC_EXCEPTION."""


class RecordBatchTooLargeError(InvalidConfigurationError, code=18):
    """RECORD_LIST_TOO_LARGE."""


class NotEnoughReplicasError(RetriableError, BrokerError, code=19):
    """NOT_ENOUGH_REPLICAS."""


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerError, code=20):
    """NOT_ENOUGH_REPLICAS_AFTER_APPEND."""


class InvalidRequiredAcksError(InvalidConfigurationError, code=21):
    """INVALID_REQUIRED_ACKS."""


class IllegalGenerationError(ApplicationRecoverableError, BrokerError, code=22):
    """ILLEGAL_GENERATION."""


class InconsistentGroupProtocolError(BrokerError, code=23):
    """INCONSISTENT_GROUP_PROTOCOL."""


class InvalidGroupIdError(BrokerError, code=24):
    """INVALID_GROUP_ID."""


class UnknownMemberIdError(ApplicationRecoverableError, BrokerError, code=25):
    """UNKNOWN_MEMBER_ID."""


class InvalidSessionTimeoutError(BrokerError, code=26):
    """INVALID_SESSION_TIMEOUT."""


class RebalanceInProgressError(BrokerError, code=27):
    """REBALANCE_IN_PROGRESS."""


class InvalidCommitOffsetSizeError(BrokerError, code=28):
    """INVALID_COMMIT_OFFSET_SIZE."""


class TopicAuthorizationError(AuthorizationError, BrokerError, code=29):
    """TOPIC_AUTHORIZATION_FAILED."""


class GroupAuthorizationError(AuthorizationError, BrokerError, code=30):
    """GROUP_AUTHORIZATION_FAILED."""


class ClusterAuthorizationError(AuthorizationError, BrokerError, code=31):
    """CLUSTER_AUTHORIZATION_FAILED."""


class InvalidTimestampError(BrokerError, code=32):
    """INVALID_TIMESTAMP."""


class UnsupportedSaslMechanismError(AuthenticationError, BrokerError, code=33):
    """UNSUPPORTED_SASL_MECHANISM."""


class IllegalSaslStateError(AuthenticationError, BrokerError, code=34):
    """ILLEGAL_SASL_STATE."""


class UnsupportedVersionError(InvalidConfigurationError, code=35):
    """UNSUPPORTED_VERSION."""


class TopicExistsError(BrokerError, code=36):
    """TOPIC_ALREADY_EXISTS."""


class InvalidPartitionsError(BrokerError, code=37):
    """INVALID_PARTITIONS."""


class InvalidReplicationFactorError(InvalidConfigurationError, code=38):
    """INVALID_REPLICATION_FACTOR."""


class InvalidReplicaAssignmentError(BrokerError, code=39):
    """INVALID_REPLICA_ASSIGNMENT."""


class NotControllerError(RetriableError, BrokerError, code=41):
    """NOT_CONTROLLER."""


class InvalidRequestError(BrokerError, code=42):
    """INVALID_REQUEST."""


class UnsupportedForMessageFormatError(InvalidConfigurationError, code=43):
    """UNSUPPORTED_FOR_MESSAGE_FORMAT."""


class PolicyViolationError(BrokerError, code=44):
    """POLICY_VIOLATION."""


class OutOfOrderSequenceError(BrokerError, code=45):
    """OUT_OF_ORDER_SEQUENCE_NUMBER."""


class DuplicateSequenceError(BrokerError, code=46):
    """DUPLICATE_SEQUENCE_NUMBER."""


class InvalidProducerEpochError(ApplicationRecoverableError, BrokerError, code=47):
    """INVALID_PRODUCER_EPOCH."""


class InvalidTxnStateError(BrokerError, code=48):
    """INVALID_TXN_STATE."""


class InvalidPidMappingError(ApplicationRecoverableError, BrokerError, code=49):
    """INVALID_PRODUCER_ID_MAPPING."""


class InvalidTxnTimeoutError(BrokerError, code=50):
    """INVALID_TRANSACTION_TIMEOUT."""


class ConcurrentTransactionsError(RetriableError, BrokerError, code=51):
    """CONCURRENT_TRANSACTIONS."""


class TransactionCoordinatorFencedError(BrokerError, code=52):
    """TRANSACTION_COORDINATOR_FENCED."""


class TransactionalIdAuthorizationError(AuthorizationError, BrokerError, code=53):
    """TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""


class SecurityDisabledError(BrokerError, code=54):
    """SECURITY_DISABLED."""


class OperationNotAttemptedError(BrokerError, code=55):
    """OPERATION_NOT_ATTEMPTED."""


class KafkaStorageError(InvalidMetadataError, BrokerError, code=56):
    """KAFKA_STORAGE_ERROR."""


class LogDirNotFoundError(BrokerError, code=57):
    """LOG_DIR_NOT_FOUND."""


class SaslAuthenticationError(AuthenticationError, BrokerError, code=58):
    """SASL_AUTHENTICATION_FAILED."""


class UnknownProducerIdError(OutOfOrderSequenceError, code=59):
    """UNKNOWN_PRODUCER_ID."""


class ReassignmentInProgressError(BrokerError, code=60):
    """REASSIGNMENT_IN_PROGRESS."""


class DelegationTokenDisabledError(BrokerError, code=61):
    """DELEGATION_TOKEN_AUTH_DISABLED."""


class DelegationTokenNotFoundError(BrokerError, code=62):
    """DELEGATION_TOKEN_NOT_FOUND."""


class DelegationTokenOwnerMismatchError(BrokerError, code=63):
    """DELEGATION_TOKEN_OWNER_MISMATCH."""


class UnsupportedByAuthenticationError(BrokerError, code=64):
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED."""


class DelegationTokenAuthorizationError(AuthorizationError, BrokerError, code=65):
    """DELEGATION_TOKEN_AUTHORIZATION_FAILED."""


class DelegationTokenExpiredError(BrokerError, code=66):
    """DELEGATION_TOKEN_EXPIRED."""


class InvalidPrincipalTypeError(BrokerError, code=67):
    """INVALID_PRINCIPAL_TYPE."""


class GroupNotEmptyError(BrokerError, code=68):
    """NON_EMPTY_GROUP."""


class GroupIdNotFoundError(BrokerError, code=69):
    """GROUP_ID_NOT_FOUND."""


class FetchSessionIdNotFoundError(RetriableError, BrokerError, code=70):
    """FETCH_SESSION_ID_NOT_FOUND."""


class InvalidFetchSessionEpochError(RetriableError, BrokerError, code=71):
    """INVALID_FETCH_SESSION_EPOCH."""


class ListenerNotFoundError(InvalidMetadataError, BrokerError, code=72):
    """LISTENER_NOT_FOUND."""


class TopicDeletionDisabledError(BrokerError, code=73):
    """TOPIC_DELETION_DISABLED."""


class FencedLeaderEpochError(InvalidMetadataError, BrokerError, code=74):
    """FENCED_LEADER_EPOCH."""


class UnknownLeaderEpochError(RetriableError, BrokerError, code=75):
    """UNKNOWN_LEADER_EPOCH."""


class UnsupportedCompressionTypeError(BrokerError, code=76):
    """UNSUPPORTED_COMPRESSION_TYPE."""


class StaleBrokerEpochError(BrokerError, code=77):
    """STALE_BROKER_EPOCH."""


class OffsetNotAvailableError(RetriableError, BrokerError, code=78):
    """OFFSET_NOT_AVAILABLE."""


class MemberIdRequiredError(BrokerError, code=79):
    """MEMBER_ID_REQUIRED."""


class PreferredLeaderNotAvailableError(InvalidMetadataError, BrokerError, code=80):
    """PREFERRED_LEADER_NOT_AVAILABLE."""


class GroupMaxSizeReachedError(BrokerError, code=81):
    """GROUP_MAX_SIZE_REACHED."""


class FencedInstanceIdError(ApplicationRecoverableError, BrokerError, code=82):
    """FENCED_INSTANCE_ID."""


class EligibleLeadersNotAvailableError(InvalidMetadataError, BrokerError, code=83):
    """ELIGIBLE_LEADERS_NOT_AVAILABLE."""


class ElectionNotNeededError(InvalidMetadataError, BrokerError, code=84):
    """ELECTION_NOT_NEEDED."""


class NoReassignmentInProgressError(BrokerError, code=85):
    """NO_REASSIGNMENT_IN_PROGRESS."""


class GroupSubscribedToTopicError(BrokerError, code=86):
    """GROUP_SUBSCRIBED_TO_TOPIC."""


class InvalidRecordError(InvalidConfigurationError, code=87):
    """INVALID_RECORD."""


class UnstableOffsetCommitError(RetriableError, BrokerError, code=88):
    """UNSTABLE_OFFSET_COMMIT."""


class ThrottlingQuotaExceededError(RetriableError, BrokerError, code=89):
    """THROTTLING_QUOTA_EXCEEDED."""


class ProducerFencedError(ApplicationRecoverableError, BrokerError, code=90):
    """PRODUCER_FENCED."""


class ResourceNotFoundError(BrokerError, code=91):
    """RESOURCE_NOT_FOUND."""


class DuplicateResourceError(BrokerError, code=92):
    """DUPLICATE_RESOURCE."""


class UnacceptableCredentialError(BrokerError, code=93):
    """UNACCEPTABLE_CREDENTIAL."""


class InconsistentVoterSetError(BrokerError, code=94):
    """INCONSISTENT_VOTER_SET."""


class InvalidUpdateVersionError(BrokerError, code=95):
    """INVALID_UPDATE_VERSION."""


class FeatureUpdateFailedError(BrokerError, code=96):
    """FEATURE_UPDATE_FAILED."""


class PrincipalDeserializationError(BrokerError, code=97):
    """PRINCIPAL_DESERIALIZATION_FAILURE."""


class SnapshotNotFoundError(BrokerError, code=98):
    """SNAPSHOT_NOT_FOUND."""


class PositionOutOfRangeError(BrokerError, code=99):
    """POSITION_OUT_OF_RANGE."""


class UnknownTopicIdError(InvalidMetadataError, BrokerError, code=100):
    """UNKNOWN_TOPIC_ID."""


class DuplicateBrokerRegistrationError(BrokerError, code=101):
    """DUPLICATE_BROKER_REGISTRATION."""


class BrokerIdNotRegisteredError(BrokerError, code=102):
    """BROKER_ID_NOT_REGISTERED."""


class InconsistentTopicIdError(InvalidMetadataError, BrokerError, code=103):
    """INCONSISTENT_TOPIC_ID."""


class InconsistentClusterIdError(BrokerError, code=104):
    """INCONSISTENT_CLUSTER_ID."""


class TransactionalIdNotFoundError(BrokerError, code=105):
    """TRANSACTIONAL_ID_NOT_FOUND."""


class FetchSessionTopicIdError(RetriableError, BrokerError, code=106):
    """FETCH_SESSION_TOPIC_ID_ERROR."""


class IneligibleReplicaError(BrokerError, code=107):
    """INELIGIBLE_REPLICA."""


class NewLeaderElectedError(BrokerError, code=108):
    """NEW_LEADER_ELECTED."""


class OffsetMovedToTieredStorageError(BrokerError, code=109):
    """OFFSET_MOVED_TO_TIERED_STORAGE."""


class FencedMemberEpochError(BrokerError, code=110):
    """FENCED_MEMBER_EPOCH."""


class UnreleasedInstanceIdError(BrokerError, code=111):
    """UNRELEASED_INSTANCE_ID."""


class UnsupportedAssignorError(BrokerError, code=112):
    """UNSUPPORTED_ASSIGNOR."""


class StaleMemberEpochError(BrokerError, code=113):
    """STALE_MEMBER_EPOCH."""


class MismatchedEndpointTypeError(BrokerError, code=114):
    """MISMATCHED_ENDPOINT_TYPE."""


class UnsupportedEndpointTypeError(BrokerError, code=115):
    """UNSUPPORTED_ENDPOINT_TYPE."""


class UnknownControllerIdError(BrokerError, code=116):
    """UNKNOWN_CONTROLLER_ID."""


class UnknownSubscriptionIdError(BrokerError, code=117):
    """UNKNOWN_SUBSCRIPTION_ID."""


class TelemetryTooLargeError(BrokerError, code=118):
    """TELEMETRY_TOO_LARGE."""


class InvalidRegistrationError(BrokerError, code=119):
    """INVALID_REGISTRATION."""


class TransactionAbortableError(BrokerError, code=120):
    """TRANSACTION_ABORTABLE."""


class InvalidRecordStateError(BrokerError, code=121):
    """INVALID_RECORD_STATE."""


class ShareSessionNotFoundError(RetriableError, BrokerError, code=122):
    """SHARE_SESSION_NOT_FOUND."""


class InvalidShareSessionEpochError(RetriableError, BrokerError, code=123):
    """INVALID_SHARE_SESSION_EPOCH."""


class FencedStateEpochError(BrokerError, code=124):
    """FENCED_STATE_EPOCH."""


class InvalidVoterKeyError(BrokerError, code=125):
    """INVALID_VOTER_KEY."""


class DuplicateVoterError(BrokerError, code=126):
    """DUPLICATE_VOTER."""


class VoterNotFoundError(BrokerError, code=127):
    """VOTER_NOT_FOUND."""


class InvalidRegularExpressionError(BrokerError, code=128):
    """INVALID_REGULAR_EXPRESSION."""


class RebootstrapRequiredError(BrokerError, code=129):
    """REBOOTSTRAP_REQUIRED."""


class StreamsInvalidTopologyError(BrokerError, code=130):
    """STREAMS_INVALID_TOPOLOGY."""


class StreamsInvalidTopologyEpochError(BrokerError, code=131):
    """STREAMS_INVALID_TOPOLOGY_EPOCH."""


class StreamsTopologyFencedError(BrokerError, code=132):
    """STREAMS_TOPOLOGY_FENCED."""


class ShareSessionLimitReachedError(RetriableError, BrokerError, code=133):
    """SHARE_SESSION_LIMIT_REACHED."""


def for_code(code: int, message: str | None = None) -> BrokerError | None:
    """The error for a protocol error code, or None for 0 (NONE). ``message`` replaces the default text."""
    if code == 0:
        return None
    cls = _BY_CODE.get(code)
    if cls is None:
        error = UnknownCodeError(message or f"unknown error code {code}")
        error.code = code
        return error
    return cls(message)


# Names of kafka-python for the classes above, so that `except` clauses of ported programs keep working.
_ALIASES = {
    "KafkaConfigurationError": "ConfigError",
    "NotLeaderForPartitionError": "NotLeaderOrFollowerError",
    "MessageSizeTooLargeError": "RecordTooLargeError",
    "RecordListTooLargeError": "RecordBatchTooLargeError",
    "NetworkExceptionError": "NetworkError",
    "KafkaConnectionError": "DisconnectError",
    "TopicAlreadyExistsError": "TopicExistsError",
    "TopicAuthorizationFailedError": "TopicAuthorizationError",
    "GroupAuthorizationFailedError": "GroupAuthorizationError",
    "ClusterAuthorizationFailedError": "ClusterAuthorizationError",
    "TransactionalIdAuthorizationFailedError": "TransactionalIdAuthorizationError",
    "DelegationTokenAuthorizationFailedError": "DelegationTokenAuthorizationError",
    "SaslAuthenticationFailedError": "SaslAuthenticationError",
    "OutOfOrderSequenceNumberError": "OutOfOrderSequenceError",
    "DuplicateSequenceNumberError": "DuplicateSequenceError",
    "InvalidProducerIdMappingError": "InvalidPidMappingError",
    "InvalidTransactionTimeoutError": "InvalidTxnTimeoutError",
    "NonEmptyGroupError": "GroupNotEmptyError",
    "InvalidReplicationAssignmentError": "InvalidReplicaAssignmentError",
    "InvalidFetchRequestError": "InvalidFetchSizeError",
    "StaleControllerEpochError": "ControllerMovedError",
    "UnknownError": "UnknownServerError",
    "BrokerResponseError": "BrokerError",
    "KafkaProtocolError": "ProtocolError",
    "UnsupportedCodecError": "UnsupportedCompressionTypeError",
}


def __getattr__(name: str) -> type[KafkaError]:
    if name in _ALIASES:
        cls: type[KafkaError] = globals()[_ALIASES[name]]
        return cls
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
