"""Every error that pykclient raises.

``KafkaError`` is the root. An error's class answers three questions: is the call worth a retry (``RetriableError``),
must metadata be refreshed first (``InvalidMetadataError``), and did a broker report the error (``BrokerError``, which
has ``code``). All errors can be pickled, as Spark moves them between processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

_S = TypeVar("_S")


def _rebuild(cls: type[KafkaError], args: tuple[Any, ...], state: dict[str, Any]) -> KafkaError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class KafkaError(Exception):
    """The base class of all errors of this package.

    ``retriable`` is True for each RetriableError, ``invalid_metadata`` for each InvalidMetadataError, as in
    kafka-python.
    """

    retriable = False
    invalid_metadata = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class RetriableError(KafkaError):
    """A transient error; a retry of the same operation may succeed (Java: RetriableException)."""

    retriable = True


class RefreshRetriableError(RetriableError):
    """A transient error; refresh the metadata or look up the coordinator before the retry (KIP-1050)."""


class InvalidMetadataError(RefreshRetriableError):
    """The client's metadata is out of date; the client refreshes it and retries."""

    invalid_metadata = True


class ApplicationRecoverableError(KafkaError):
    """The application can recover by creating a new client or by rejoining the group (KIP-1050)."""


class AuthorizationError(KafkaError):
    """The authenticated principal is not authorized for the operation."""


class AuthenticationError(KafkaError):
    """Authentication with the broker failed; the client does not retry it."""


class InvalidOffsetError(KafkaError):
    """The partition's log does not have the offset, or the partition has no offset to start from."""


# --- raised by the client itself ---------------------------------------------------------------------------------


class KafkaTimeoutError(RetriableError):
    """The operation did not complete within its timeout (Java: TimeoutException)."""


class BufferExhaustedError(KafkaTimeoutError):
    """``buffer.memory`` stayed full for ``max.block.ms``."""


class ConfigError(KafkaError, ValueError):
    """A configuration key is unknown, of the wrong type, out of range or not supported; ``key`` is its name."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class IllegalStateError(KafkaError, RuntimeError):
    """The object's state does not allow this call, for instance after ``close()``."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument has a value that the method does not accept."""


class ConcurrentModificationError(IllegalStateError):
    """A second thread called the consumer while another thread was using it."""


class UseAfterForkError(IllegalStateError):
    """A client created before ``fork()`` was used in the child process."""


class WakeupError(KafkaError):
    """``KafkaConsumer.wakeup()`` interrupted a blocking call."""


class SerializationError(KafkaError):
    """A serializer or deserializer failed; the error it raised is the cause."""


class RecordDeserializationError(SerializationError):
    """A fetched record could not be deserialized.

    ``topic_partition`` and ``offset`` identify the record. The consumer's position stays at the record; ``seek(tp,
    offset + 1)`` skips it. ``part`` is ``"key"`` or ``"value"``. ``record`` is the ConsumerRecord with key and value as
    bytes, for instance for a dead letter topic (KIP-1036).
    """

    def __init__(
        self, message: str, topic_partition: Any = None, offset: int = -1, part: str = "", record: Any = None
    ) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset
        self.part = part
        self.record = record

    @property
    def is_poison(self) -> bool:
        """False if the record is not at fault: a schema registry did not answer, or a rule cannot be executed here.

        Such a record must not be skipped. The next poll reads it again.
        """
        return _blames_record(self.__cause__)

    def caused_by(self, cause: Exception) -> RecordDeserializationError:
        """Return the error for the same record with another cause, whose text replaces that of the present one."""
        text = str(self).replace(reason_and_advice(self.__cause__, self.offset), reason_and_advice(cause, self.offset))
        return RecordDeserializationError(text, self.topic_partition, self.offset, self.part, self.record)


def _blames_record(cause: BaseException | None) -> bool:
    return bool(getattr(cause, "blames_record", True))


def reason_and_advice(cause: BaseException | None, offset: int) -> str:
    """Return the end of an error about a record at ``offset``: why, and what to do."""
    advice = f"Seek to offset {offset + 1} to skip it" if _blames_record(cause) else "It is not at fault: poll again"
    return f"{type(cause).__name__}: {cause}. {advice}"


class DisconnectError(RetriableError):
    """The connection was lost while a request was in flight (Java: DisconnectException)."""


class InterceptorError(KafkaError):
    """An interceptor could not be created or closed."""


class CommitFailedError(KafkaError):
    """The offsets were not committed: the group has rebalanced, and other members may own the partitions now."""


class RetriableCommitFailedError(RetriableError):
    """An asynchronous commit failed with a transient error and can be retried."""


class NoOffsetForPartitionError(InvalidOffsetError):
    """A partition has no position and no committed offset, and no reset policy is set.

    ``partitions`` is the set of these partitions.
    """

    def __init__(self, message: str, partitions: Any = frozenset()) -> None:
        super().__init__(message)
        self.partitions = partitions


class LogTruncationError(InvalidOffsetError):
    """The log was truncated below the consumer's position (KIP-320).

    ``divergent_offsets`` maps partitions to the first offset at which the log differs from what was consumed.
    ``offset_out_of_range_partitions`` maps partitions to the consumer's positions.
    """

    def __init__(self, message: str, divergent_offsets: Any = None, offset_out_of_range_partitions: Any = None) -> None:
        super().__init__(message)
        self.divergent_offsets = divergent_offsets or {}
        self.offset_out_of_range_partitions = offset_out_of_range_partitions or {}


class TransactionAbortedError(KafkaError):
    """The record was not sent because its transaction was aborted."""


class ProtocolError(KafkaError):
    """Bytes do not conform to the Kafka protocol."""


class LocalProtocolError(ProtocolError):
    """The client was about to write bytes that the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that the protocol does not allow: truncated, oversized or unreadable."""


class ProxyAuthenticationError(AuthenticationError):
    """The proxy of ``proxy.url`` rejects the client's user or password, or requires them."""


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed for a reason that a retry does not fix."""


# --- reported by a broker ------------------------------------------------------------------------------------------

_BY_CODE: dict[int, type[BrokerError]] = {}


class BrokerError(KafkaError):
    """An error with an error code of the Kafka protocol.

    ``code`` is its number (kafka-python: ``errno``), also if this client does not know the number. ``error_name`` is
    its name in the protocol. The default message is the first line of the class's docstring.
    """

    code: int = -1
    errno: int = -1
    error_name: str = "UNKNOWN_SERVER_ERROR"

    def __init_subclass__(cls, code: int | None = None, name: str = "") -> None:
        if code is not None:
            cls.code = cls.errno = code
            cls.error_name = name
            _BY_CODE[code] = cls

    def __init__(self, message: str | None = None, *args: Any) -> None:
        super().__init__(message if message is not None else (type(self).__doc__ or "").split("\n")[0], *args)


class UnknownCodeError(BrokerError):
    """The broker returned an error code that this version of the client does not know."""

    error_name = "UNKNOWN_CODE"


class NoError(BrokerError):
    """Not an error: the class that stands for success in the results of the admin client, as in kafka-python."""

    code = errno = 0
    error_name = "NONE"


class UnknownServerError(BrokerError, code=-1, name="UNKNOWN_SERVER_ERROR"):
    """The broker failed unexpectedly; see the broker's log for the cause."""


class OffsetOutOfRangeError(InvalidOffsetError, BrokerError, code=1, name="OFFSET_OUT_OF_RANGE"):
    """The requested offset is not in the partition's log: already deleted, or not written yet.

    When a consumer raises it, ``offset_out_of_range_partitions`` maps partitions to the consumer's positions.
    """

    def __init__(self, message: str | None = None, offset_out_of_range_partitions: Any = None) -> None:
        super().__init__(message)
        self.offset_out_of_range_partitions = offset_out_of_range_partitions or {}


class CorruptRecordError(RetriableError, BrokerError, code=2, name="CORRUPT_MESSAGE"):
    """A batch fails its checksum or is otherwise invalid."""


class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerError, code=3, name="UNKNOWN_TOPIC_OR_PARTITION"):
    """The broker does not know this topic or partition; it may have just been created, moved or deleted."""


class InvalidFetchSizeError(BrokerError, code=4, name="INVALID_FETCH_SIZE"):
    """The requested fetch size is not valid."""


class LeaderNotAvailableError(InvalidMetadataError, BrokerError, code=5, name="LEADER_NOT_AVAILABLE"):
    """The partition has no leader at the moment; an election is in progress."""


class NotLeaderOrFollowerError(InvalidMetadataError, BrokerError, code=6, name="NOT_LEADER_OR_FOLLOWER"):
    """The broker is not the partition's leader (or not a replica, for a fetch); leadership has moved."""


class RequestTimedOutError(KafkaTimeoutError, BrokerError, code=7, name="REQUEST_TIMED_OUT"):
    """The broker could not complete the request within the request's timeout."""


class BrokerNotAvailableError(BrokerError, code=8, name="BROKER_NOT_AVAILABLE"):
    """The broker is not available."""


class ReplicaNotAvailableError(InvalidMetadataError, BrokerError, code=9, name="REPLICA_NOT_AVAILABLE"):
    """The replica is not available on this broker."""


class RecordTooLargeError(BrokerError, code=10, name="MESSAGE_TOO_LARGE"):
    """The batch is larger than the topic or the broker allows (max.message.bytes, message.max.bytes)."""


class ControllerMovedError(BrokerError, code=11, name="STALE_CONTROLLER_EPOCH"):
    """The request came from a controller that has been replaced."""


class OffsetMetadataTooLargeError(BrokerError, code=12, name="OFFSET_METADATA_TOO_LARGE"):
    """The metadata committed with the offset is longer than the broker allows (offset.metadata.max.bytes)."""


class NetworkError(InvalidMetadataError, BrokerError, code=13, name="NETWORK_EXCEPTION"):
    """The connection was closed before the response arrived."""


class CoordinatorLoadInProgressError(RetriableError, BrokerError, code=14, name="COORDINATOR_LOAD_IN_PROGRESS"):
    """The coordinator is still loading the state of the group or transaction; retry shortly."""


class CoordinatorNotAvailableError(RefreshRetriableError, BrokerError, code=15, name="COORDINATOR_NOT_AVAILABLE"):
    """The group or transaction has no coordinator at the moment."""


class NotCoordinatorError(RefreshRetriableError, BrokerError, code=16, name="NOT_COORDINATOR"):
    """The broker is not the coordinator of this group or transaction; the coordinator has moved."""


class InvalidConfigurationError(BrokerError, code=40, name="INVALID_CONFIG"):
    """The configuration is not valid."""


class InvalidTopicError(InvalidConfigurationError, code=17, name="INVALID_TOPIC_EXCEPTION"):
    """The topic's name is not valid, or the topic does not allow this operation (an internal topic, for instance)."""


class RecordBatchTooLargeError(InvalidConfigurationError, code=18, name="RECORD_LIST_TOO_LARGE"):
    """The batch is larger than a log segment."""


class NotEnoughReplicasError(RetriableError, BrokerError, code=19, name="NOT_ENOUGH_REPLICAS"):
    """Fewer replicas are in sync than min.insync.replicas requires; nothing was written."""


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerError, code=20, name="NOT_ENOUGH_REPLICAS_AFTER_APPEND"):
    """The batch was written, but fewer replicas are in sync than min.insync.replicas requires."""


class InvalidRequiredAcksError(InvalidConfigurationError, code=21, name="INVALID_REQUIRED_ACKS"):
    """The broker does not accept this value of acks."""


class IllegalGenerationError(ApplicationRecoverableError, BrokerError, code=22, name="ILLEGAL_GENERATION"):
    """The group has moved on to another generation; this member must rejoin the group."""


class InconsistentGroupProtocolError(BrokerError, code=23, name="INCONSISTENT_GROUP_PROTOCOL"):
    """This member has no assignor or protocol type in common with the other members of its group."""


class InvalidGroupIdError(BrokerError, code=24, name="INVALID_GROUP_ID"):
    """The group id is not valid, for instance empty."""


class UnknownMemberIdError(ApplicationRecoverableError, BrokerError, code=25, name="UNKNOWN_MEMBER_ID"):
    """The coordinator no longer knows this member; the member must rejoin the group."""


class InvalidSessionTimeoutError(BrokerError, code=26, name="INVALID_SESSION_TIMEOUT"):
    """session.timeout.ms is outside the broker's limits (group.min. and group.max.session.timeout.ms)."""


class RebalanceInProgressError(BrokerError, code=27, name="REBALANCE_IN_PROGRESS"):
    """The group is rebalancing; this member must rejoin the group."""


class InvalidCommitOffsetSizeError(BrokerError, code=28, name="INVALID_COMMIT_OFFSET_SIZE"):
    """The committed offsets do not fit into a message of the size that the broker allows."""


class TopicAuthorizationError(AuthorizationError, BrokerError, code=29, name="TOPIC_AUTHORIZATION_FAILED"):
    """Not authorized for this topic."""


class GroupAuthorizationError(AuthorizationError, BrokerError, code=30, name="GROUP_AUTHORIZATION_FAILED"):
    """Not authorized for this group."""


class ClusterAuthorizationError(AuthorizationError, BrokerError, code=31, name="CLUSTER_AUTHORIZATION_FAILED"):
    """Not authorized for this operation on the cluster."""


class InvalidTimestampError(BrokerError, code=32, name="INVALID_TIMESTAMP"):
    """The record's timestamp is further from the broker's clock than the topic allows."""


class UnsupportedSaslMechanismError(AuthenticationError, BrokerError, code=33, name="UNSUPPORTED_SASL_MECHANISM"):
    """The broker does not support this SASL mechanism."""


class IllegalSaslStateError(AuthenticationError, BrokerError, code=34, name="ILLEGAL_SASL_STATE"):
    """The request is not valid at this stage of SASL authentication."""


class UnsupportedVersionError(InvalidConfigurationError, code=35, name="UNSUPPORTED_VERSION"):
    """The broker does not support this version of the request; its release and the client's are too far apart."""


class TopicExistsError(BrokerError, code=36, name="TOPIC_ALREADY_EXISTS"):
    """A topic with this name already exists."""


class InvalidPartitionsError(BrokerError, code=37, name="INVALID_PARTITIONS"):
    """The number of partitions is not valid, for instance smaller than the current number."""


class InvalidReplicationFactorError(InvalidConfigurationError, code=38, name="INVALID_REPLICATION_FACTOR"):
    """The replication factor is below 1 or above the number of brokers."""


class InvalidReplicaAssignmentError(BrokerError, code=39, name="INVALID_REPLICA_ASSIGNMENT"):
    """The replica assignment is not valid: duplicate or unknown brokers, or lists of different lengths."""


class NotControllerError(RetriableError, BrokerError, code=41, name="NOT_CONTROLLER"):
    """The broker is not the controller; the controller has moved."""


class InvalidRequestError(BrokerError, code=42, name="INVALID_REQUEST"):
    """The request is malformed or inconsistent; see the broker's log for details."""


class UnsupportedForMessageFormatError(InvalidConfigurationError, code=43, name="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
    """The topic's message format is too old for this operation."""


class PolicyViolationError(BrokerError, code=44, name="POLICY_VIOLATION"):
    """A policy of the cluster does not allow this operation."""


class OutOfOrderSequenceError(BrokerError, code=45, name="OUT_OF_ORDER_SEQUENCE_NUMBER"):
    """The broker received a batch with an unexpected sequence number: an earlier batch of the producer is missing."""


class DuplicateSequenceError(BrokerError, code=46, name="DUPLICATE_SEQUENCE_NUMBER"):
    """The broker already has this batch and later ones."""


class InvalidProducerEpochError(ApplicationRecoverableError, BrokerError, code=47, name="INVALID_PRODUCER_EPOCH"):
    """The producer's epoch is outdated: a newer producer has its transactional.id, or its transaction timed out."""


class InvalidTxnStateError(BrokerError, code=48, name="INVALID_TXN_STATE"):
    """The transaction's current state does not allow this operation."""


class InvalidPidMappingError(ApplicationRecoverableError, BrokerError, code=49, name="INVALID_PRODUCER_ID_MAPPING"):
    """The producer id does not belong to this transactional.id, or no longer does."""


class InvalidTxnTimeoutError(BrokerError, code=50, name="INVALID_TRANSACTION_TIMEOUT"):
    """transaction.timeout.ms is above the broker's limit (transaction.max.timeout.ms)."""


class ConcurrentTransactionsError(RetriableError, BrokerError, code=51, name="CONCURRENT_TRANSACTIONS"):
    """An earlier transaction of this producer is still completing; retry shortly."""


class TransactionCoordinatorFencedError(BrokerError, code=52, name="TRANSACTION_COORDINATOR_FENCED"):
    """The transaction marker came from a coordinator that has been replaced."""


class TransactionalIdAuthorizationError(
    AuthorizationError, BrokerError, code=53, name="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
):
    """Not authorized for this transactional.id."""


class SecurityDisabledError(BrokerError, code=54, name="SECURITY_DISABLED"):
    """The cluster has no authorizer, so there are no ACLs to list or change."""


class OperationNotAttemptedError(BrokerError, code=55, name="OPERATION_NOT_ATTEMPTED"):
    """The broker did not attempt this operation because another part of the same request failed."""


class KafkaStorageError(InvalidMetadataError, BrokerError, code=56, name="KAFKA_STORAGE_ERROR"):
    """The broker has lost the disk that holds the partition."""


class LogDirNotFoundError(BrokerError, code=57, name="LOG_DIR_NOT_FOUND"):
    """The broker has no such log directory."""


class SaslAuthenticationError(AuthenticationError, BrokerError, code=58, name="SASL_AUTHENTICATION_FAILED"):
    """Authentication failed: the credentials are wrong, or the broker does not accept them."""


class UnknownProducerIdError(OutOfOrderSequenceError, code=59, name="UNKNOWN_PRODUCER_ID"):
    """The broker no longer knows this producer, because the producer's last records in the partition were deleted."""


class ReassignmentInProgressError(BrokerError, code=60, name="REASSIGNMENT_IN_PROGRESS"):
    """A reassignment of the partition's replicas is already in progress."""


class DelegationTokenDisabledError(BrokerError, code=61, name="DELEGATION_TOKEN_AUTH_DISABLED"):
    """The cluster does not use delegation tokens."""


class DelegationTokenNotFoundError(BrokerError, code=62, name="DELEGATION_TOKEN_NOT_FOUND"):
    """The delegation token does not exist, or no longer exists."""


class DelegationTokenOwnerMismatchError(BrokerError, code=63, name="DELEGATION_TOKEN_OWNER_MISMATCH"):
    """The delegation token belongs to another owner."""


class UnsupportedByAuthenticationError(BrokerError, code=64, name="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
    """Delegation tokens can be requested only over an authenticated connection that itself uses no delegation token."""


class DelegationTokenAuthorizationError(
    AuthorizationError, BrokerError, code=65, name="DELEGATION_TOKEN_AUTHORIZATION_FAILED"
):
    """Not authorized for this delegation token."""


class DelegationTokenExpiredError(BrokerError, code=66, name="DELEGATION_TOKEN_EXPIRED"):
    """The delegation token has expired."""


class InvalidPrincipalTypeError(BrokerError, code=67, name="INVALID_PRINCIPAL_TYPE"):
    """This type of principal is not supported."""


class GroupNotEmptyError(BrokerError, code=68, name="NON_EMPTY_GROUP"):
    """The group still has members."""


class GroupIdNotFoundError(BrokerError, code=69, name="GROUP_ID_NOT_FOUND"):
    """The group does not exist."""


class FetchSessionIdNotFoundError(RetriableError, BrokerError, code=70, name="FETCH_SESSION_ID_NOT_FOUND"):
    """The broker has dropped the fetch session; the client creates a new one."""


class InvalidFetchSessionEpochError(RetriableError, BrokerError, code=71, name="INVALID_FETCH_SESSION_EPOCH"):
    """The fetch session's epoch does not match the broker's; the client creates a new session."""


class ListenerNotFoundError(InvalidMetadataError, BrokerError, code=72, name="LISTENER_NOT_FOUND"):
    """The leader has no listener with the name that this connection uses."""


class TopicDeletionDisabledError(BrokerError, code=73, name="TOPIC_DELETION_DISABLED"):
    """The cluster does not delete topics (delete.topic.enable=false)."""


class FencedLeaderEpochError(InvalidMetadataError, BrokerError, code=74, name="FENCED_LEADER_EPOCH"):
    """The leader epoch in the request is older than the broker's; leadership has changed."""


class UnknownLeaderEpochError(RetriableError, BrokerError, code=75, name="UNKNOWN_LEADER_EPOCH"):
    """The leader epoch in the request is newer than the broker's; the broker has yet to learn of it."""


class UnsupportedCompressionTypeError(BrokerError, code=76, name="UNSUPPORTED_COMPRESSION_TYPE"):
    """The broker does not support this compression type, or not in this version of the request."""


class StaleBrokerEpochError(BrokerError, code=77, name="STALE_BROKER_EPOCH"):
    """The broker has registered again since the request was created."""


class OffsetNotAvailableError(RetriableError, BrokerError, code=78, name="OFFSET_NOT_AVAILABLE"):
    """The leader is new and does not know the high watermark yet."""


class MemberIdRequiredError(BrokerError, code=79, name="MEMBER_ID_REQUIRED"):
    """The member must rejoin the group with the member id that the coordinator gave it."""


class PreferredLeaderNotAvailableError(
    InvalidMetadataError, BrokerError, code=80, name="PREFERRED_LEADER_NOT_AVAILABLE"
):
    """The preferred leader is not available."""


class GroupMaxSizeReachedError(BrokerError, code=81, name="GROUP_MAX_SIZE_REACHED"):
    """The group has as many members as the broker allows (group.max.size)."""


class FencedInstanceIdError(ApplicationRecoverableError, BrokerError, code=82, name="FENCED_INSTANCE_ID"):
    """Another member has the same group.instance.id."""


class EligibleLeadersNotAvailableError(
    InvalidMetadataError, BrokerError, code=83, name="ELIGIBLE_LEADERS_NOT_AVAILABLE"
):
    """No eligible replica is available to become the leader."""


class ElectionNotNeededError(InvalidMetadataError, BrokerError, code=84, name="ELECTION_NOT_NEEDED"):
    """The partition already has the right leader; no election is needed."""


class NoReassignmentInProgressError(BrokerError, code=85, name="NO_REASSIGNMENT_IN_PROGRESS"):
    """No reassignment of the partition's replicas is in progress."""


class GroupSubscribedToTopicError(BrokerError, code=86, name="GROUP_SUBSCRIBED_TO_TOPIC"):
    """Members of the group subscribe to this topic, so its offsets cannot be deleted."""


class InvalidRecordError(InvalidConfigurationError, code=87, name="INVALID_RECORD"):
    """The broker rejected the record: no key in a compacted topic, or a timestamp that is not allowed."""


class UnstableOffsetCommitError(RetriableError, BrokerError, code=88, name="UNSTABLE_OFFSET_COMMIT"):
    """The offset was committed in a transaction that is still open."""


class ThrottlingQuotaExceededError(RetriableError, BrokerError, code=89, name="THROTTLING_QUOTA_EXCEEDED"):
    """A quota is exceeded; retry after the time that the broker returned."""


class ProducerFencedError(ApplicationRecoverableError, BrokerError, code=90, name="PRODUCER_FENCED"):
    """A newer producer with the same transactional.id has taken over."""


class ResourceNotFoundError(BrokerError, code=91, name="RESOURCE_NOT_FOUND"):
    """The resource does not exist."""


class DuplicateResourceError(BrokerError, code=92, name="DUPLICATE_RESOURCE"):
    """The resource already exists."""


class UnacceptableCredentialError(BrokerError, code=93, name="UNACCEPTABLE_CREDENTIAL"):
    """The credential is not acceptable, for instance too weak."""


class InconsistentVoterSetError(BrokerError, code=94, name="INCONSISTENT_VOTER_SET"):
    """The two sides disagree on the set of voters."""


class InvalidUpdateVersionError(BrokerError, code=95, name="INVALID_UPDATE_VERSION"):
    """The version given for the update is not valid."""


class FeatureUpdateFailedError(BrokerError, code=96, name="FEATURE_UPDATE_FAILED"):
    """The feature could not be updated."""


class PrincipalDeserializationError(BrokerError, code=97, name="PRINCIPAL_DESERIALIZATION_FAILURE"):
    """The forwarding broker sent a principal that cannot be deserialized."""


class SnapshotNotFoundError(BrokerError, code=98, name="SNAPSHOT_NOT_FOUND"):
    """The snapshot does not exist."""


class PositionOutOfRangeError(BrokerError, code=99, name="POSITION_OUT_OF_RANGE"):
    """The position is outside the snapshot."""


class UnknownTopicIdError(InvalidMetadataError, BrokerError, code=100, name="UNKNOWN_TOPIC_ID"):
    """The broker does not know this topic id; the topic may have just been created or deleted."""


class DuplicateBrokerRegistrationError(BrokerError, code=101, name="DUPLICATE_BROKER_REGISTRATION"):
    """A live broker is already registered under this id."""


class BrokerIdNotRegisteredError(BrokerError, code=102, name="BROKER_ID_NOT_REGISTERED"):
    """No broker is registered under this id."""


class InconsistentTopicIdError(InvalidMetadataError, BrokerError, code=103, name="INCONSISTENT_TOPIC_ID"):
    """The topic id does not belong to the topic's name; the topic was deleted and created again."""


class InconsistentClusterIdError(BrokerError, code=104, name="INCONSISTENT_CLUSTER_ID"):
    """The peer belongs to another cluster."""


class TransactionalIdNotFoundError(BrokerError, code=105, name="TRANSACTIONAL_ID_NOT_FOUND"):
    """No transaction with this transactional.id exists."""


class FetchSessionTopicIdError(RetriableError, BrokerError, code=106, name="FETCH_SESSION_TOPIC_ID_ERROR"):
    """The fetch session changed between topic names and topic ids; the client creates a new session."""


class IneligibleReplicaError(BrokerError, code=107, name="INELIGIBLE_REPLICA"):
    """The replica is not eligible to be in sync: it is shutting down, fenced or behind."""


class NewLeaderElectedError(BrokerError, code=108, name="NEW_LEADER_ELECTED"):
    """The change was applied, but it led to the election of a new leader."""


class OffsetMovedToTieredStorageError(BrokerError, code=109, name="OFFSET_MOVED_TO_TIERED_STORAGE"):
    """The offset is no longer on the broker's disk but in tiered storage."""


class FencedMemberEpochError(BrokerError, code=110, name="FENCED_MEMBER_EPOCH"):
    """The coordinator has fenced this member of the group; the member must rejoin the group."""


class UnreleasedInstanceIdError(BrokerError, code=111, name="UNRELEASED_INSTANCE_ID"):
    """The member that uses this group.instance.id has not left the group yet."""


class UnsupportedAssignorError(BrokerError, code=112, name="UNSUPPORTED_ASSIGNOR"):
    """The group coordinator does not support this assignor."""


class StaleMemberEpochError(BrokerError, code=113, name="STALE_MEMBER_EPOCH"):
    """The member's epoch is out of date; the next heartbeat brings it up to date."""


class MismatchedEndpointTypeError(BrokerError, code=114, name="MISMATCHED_ENDPOINT_TYPE"):
    """The request went to a broker instead of a controller, or to a controller instead of a broker."""


class UnsupportedEndpointTypeError(BrokerError, code=115, name="UNSUPPORTED_ENDPOINT_TYPE"):
    """This type of endpoint is not supported here."""


class UnknownControllerIdError(BrokerError, code=116, name="UNKNOWN_CONTROLLER_ID"):
    """The controller's id is not known."""


class UnknownSubscriptionIdError(BrokerError, code=117, name="UNKNOWN_SUBSCRIPTION_ID"):
    """The metrics subscription is unknown or has changed."""


class TelemetryTooLargeError(BrokerError, code=118, name="TELEMETRY_TOO_LARGE"):
    """The pushed metrics are larger than the broker allows."""


class InvalidRegistrationError(BrokerError, code=119, name="INVALID_REGISTRATION"):
    """The controller rejected the broker's registration."""


class TransactionAbortableError(BrokerError, code=120, name="TRANSACTION_ABORTABLE"):
    """The transaction has failed and can only be aborted."""


class InvalidRecordStateError(BrokerError, code=121, name="INVALID_RECORD_STATE"):
    """The record's state does not allow this operation, for instance because it was already acknowledged."""


class ShareSessionNotFoundError(RetriableError, BrokerError, code=122, name="SHARE_SESSION_NOT_FOUND"):
    """The broker has dropped the share session; the client creates a new one."""


class InvalidShareSessionEpochError(RetriableError, BrokerError, code=123, name="INVALID_SHARE_SESSION_EPOCH"):
    """The share session's epoch does not match the broker's; the client creates a new session."""


class FencedStateEpochError(BrokerError, code=124, name="FENCED_STATE_EPOCH"):
    """The state's epoch is older than the coordinator's."""


class InvalidVoterKeyError(BrokerError, code=125, name="INVALID_VOTER_KEY"):
    """The voter's key does not match."""


class DuplicateVoterError(BrokerError, code=126, name="DUPLICATE_VOTER"):
    """The voter already exists."""


class VoterNotFoundError(BrokerError, code=127, name="VOTER_NOT_FOUND"):
    """The voter does not exist."""


class InvalidRegularExpressionError(BrokerError, code=128, name="INVALID_REGULAR_EXPRESSION"):
    """The broker does not accept the regular expression (RE2 syntax)."""


class RebootstrapRequiredError(BrokerError, code=129, name="REBOOTSTRAP_REQUIRED"):
    """The broker's metadata does not fit this client, which must bootstrap again from bootstrap.servers."""


class StreamsInvalidTopologyError(BrokerError, code=130, name="STREAMS_INVALID_TOPOLOGY"):
    """The topology of the streams application is not valid."""


class StreamsInvalidTopologyEpochError(BrokerError, code=131, name="STREAMS_INVALID_TOPOLOGY_EPOCH"):
    """The epoch of the streams application's topology is not valid."""


class StreamsTopologyFencedError(BrokerError, code=132, name="STREAMS_TOPOLOGY_FENCED"):
    """The streams application's topology is older than the topology of its group."""


class ShareSessionLimitReachedError(RetriableError, BrokerError, code=133, name="SHARE_SESSION_LIMIT_REACHED"):
    """The broker has reached its limit of share sessions."""


def check_move(kind: str, moves: Mapping[_S, Container[_S]], source: _S, target: _S) -> None:
    """Check that the table ``moves`` of a state machine has a transition. ``kind`` says whose states these are.

    Raises:
        IllegalStateError: it has no transition from ``source`` to ``target``.
    """
    if target not in moves[source]:
        raise IllegalStateError(f"{kind} cannot go from {source} to {target}")


def for_code(code: int, message: str | None = None) -> BrokerError | None:
    """Return the error for a protocol error code, or None for 0 (NONE).

    ``message`` replaces the default message.
    """
    if code == 0:
        return None
    cls = _BY_CODE.get(code)
    if cls is None:
        error = UnknownCodeError(message or f"unknown error code {code}")
        error.code = error.errno = code
        return error
    return cls(message)


# kafka-python's names for the classes above, so that `except` clauses of ported programs keep working.
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
    "CorruptRecordException": "CorruptRecordError",
    "DelegationTokenAuthDisabledError": "DelegationTokenDisabledError",
    "DelegationTokenRequestNotAllowedError": "UnsupportedByAuthenticationError",
    "PrincipalDeserializationFailureError": "PrincipalDeserializationError",
    "IncompatibleBrokerVersion": "UnsupportedVersionError",
    "UnrecognizedBrokerVersion": "UnsupportedVersionError",
    "CorrelationIdError": "RemoteProtocolError",
    "InvalidReceiveError": "RemoteProtocolError",
    "Cancelled": "DisconnectError",
    "NodeNotReadyError": "DisconnectError",
    "StaleMetadata": "InvalidMetadataError",
    "MetadataEmptyBrokerList": "InvalidMetadataError",
    # Names of kafka-python 2 that version 3 no longer has.
    "NoBrokersAvailable": "KafkaTimeoutError",
    "KafkaUnavailableError": "KafkaTimeoutError",
    "GroupCoordinatorNotAvailableError": "CoordinatorNotAvailableError",
    "GroupLoadInProgressError": "CoordinatorLoadInProgressError",
    "NotCoordinatorForGroupError": "NotCoordinatorError",
}


def __getattr__(name: str) -> type[KafkaError]:
    if name in _ALIASES:
        cls: type[KafkaError] = globals()[_ALIASES[name]]
        return cls
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
