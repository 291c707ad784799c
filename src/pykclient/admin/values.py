"""The values that an admin client takes and returns, under kafka-python's names; results of calls with many items."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, IntEnum
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from pykclient.argument_values import number, shown, text, whole_number
from pykclient.errors import IllegalArgumentError, KafkaError
from pykclient.types import TopicPartition

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


class Results(Generic[K, V]):
    """The outcome of each item of one call.

    ``results[key]`` returns the item's value or raises its error, and ``all()`` returns all values or raises the first
    error. ``succeeded`` and ``failed`` map keys to values and to errors; each key is in one of the two.
    ``error_of_all`` is the error of a request as a whole, if that is why items have failed. Thread: any.
    """

    __slots__ = ("error_of_all", "failed", "succeeded")

    def __init__(self, succeeded: dict[K, V] | None = None, failed: dict[K, KafkaError] | None = None) -> None:
        self.succeeded: dict[K, V] = {} if succeeded is None else succeeded
        self.failed: dict[K, KafkaError] = {} if failed is None else failed
        self.error_of_all: KafkaError | None = None

    def __getitem__(self, key: K) -> V:
        if key in self.failed:
            raise self.failed[key]
        return self.succeeded[key]

    def __contains__(self, key: object) -> bool:
        return key in self.succeeded or key in self.failed

    def __iter__(self) -> Iterator[K]:
        yield from self.succeeded
        yield from self.failed

    def __len__(self) -> int:
        return len(self.succeeded) + len(self.failed)

    def all(self) -> dict[K, V]:
        """Return the values of all items.

        Raises:
            KafkaError: the error of the first item that failed.
        """
        for error in self.failed.values():
            raise error
        return self.succeeded

    def map(self, convert: Callable[[V], W]) -> Results[K, W]:
        """Return the same results with each value converted."""
        mapped = Results({key: convert(value) for key, value in self.succeeded.items()}, self.failed)
        mapped.error_of_all = self.error_of_all
        return mapped

    def __repr__(self) -> str:
        return f"Results(succeeded={self.succeeded!r}, failed={self.failed!r})"


def _name(value: str) -> str:
    return value.strip().upper().replace("-", "_")


def _member(kind: Any, value: object) -> Any:
    """Return the member with this value or name, in capitals or not, or ``value`` itself if it is a member.

    Raises:
        IllegalArgumentError: there is none.
    """
    plain: object = None
    if isinstance(value, str):
        plain = str.__str__(value)
    else:
        with contextlib.suppress(TypeError):  # it is no number
            plain = whole_number(value)
    for member in kind:
        if plain == member.value or (isinstance(plain, str) and _name(plain) == member.name):
            return member
    names = ", ".join(member.value if isinstance(member.value, str) else member.name for member in kind)
    raise IllegalArgumentError(f"there is no {kind.__name__} {shown(value)}; there are {names}")


class _Kind:
    """The classmethods of kafka-python's enumerations."""

    @classmethod
    def build_from(cls, val: object) -> Self:
        """Return the member with this value or name, in capitals or not, or ``val`` itself if it is a member.

        Raises:
            IllegalArgumentError: there is none.
        """
        member: Self = _member(cls, val)
        return member

    @classmethod
    def value_for(cls, val: object) -> Any:
        """Return the value of the member that ``build_from`` returns."""
        return _member(cls, val).value


class _IntKind(_Kind, IntEnum):
    pass


class _TextKind(_Kind, str, Enum):  # noqa: UP042 - kafka-python's; their str() differs
    pass


class _Value:
    """An object that equals others of its class, or of a subclass, with equal ``_FIELDS``."""

    __slots__ = ()
    _FIELDS: ClassVar[tuple[str, ...]]

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._FIELDS)

    @classmethod
    def _check(cls, value: object, kind: type, name: str) -> None:
        if not isinstance(value, kind):
            article = "an" if kind.__name__.startswith("A") else "a"
            raise IllegalArgumentError(f"{name} must be {article} {kind.__name__}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Value) or not (isinstance(other, type(self)) or isinstance(self, type(other))):
            return False
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


# --- topics ----------------------------------------------------------------------------------------------------------


class NewTopic:
    """A topic to create.

    ``num_partitions`` and ``replication_factor`` -1 are for the brokers' defaults. ``replica_assignments`` maps
    partitions to lists of broker ids, in place of both. ``topic_configs`` maps keys to values.
    """

    def __init__(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignments: Mapping[int, list[int]] | None = None,
        topic_configs: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = {} if replica_assignments is None else replica_assignments
        self.topic_configs = {} if topic_configs is None else topic_configs

    def __repr__(self) -> str:
        return f"NewTopic({self.name!r}, {self.num_partitions}, {self.replication_factor})"


class NewPartitions(NamedTuple):
    """The new partition count of a topic. ``new_assignments`` has the replicas of each added partition."""

    total_count: int
    new_assignments: list[list[int]] | None = None


class OffsetSpec(IntEnum):
    """A place in a partition, for ``list_partition_offsets``."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class OffsetTimestamp(int):
    """A time in milliseconds since the epoch; stands for the offset of the first record at or after it."""

    def __new__(cls, value: int) -> Self:
        if value < 0:
            raise IllegalArgumentError("a timestamp is not negative; for special places there is OffsetSpec")
        return super().__new__(cls, value)


class IsolationLevel(_IntKind):
    """The isolation level of the latest offset: after all records, or before the first open transaction."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ElectionType(_IntKind):
    """The kind of a leader election: the preferred replica, or any, even out of sync (which can lose records)."""

    PREFERRED = 0
    UNCLEAN = 1


class TopicPartitionReplica(NamedTuple):
    """One replica of a partition."""

    topic: str
    partition: int
    broker_id: int


# --- configurations --------------------------------------------------------------------------------------------------


class AlterConfigOp(_IntKind):
    """The change of a configuration key. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSourceType(_IntKind):
    """The origin of the value of a configuration key."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    def is_modified(self) -> bool:
        """Return True if the value was set on this resource itself."""
        return self.value not in (3, 4, 5)


class ConfigFilterType(_IntKind):
    """A filter for configuration keys by the source of their values."""

    ALL = 0
    DYNAMIC = 1
    MODIFIED = 2
    DEFAULT = 3
    STATIC = 4

    def should_skip(self, config_source: ConfigSourceType) -> bool:
        """Return True if this filter excludes values from ``config_source``."""
        if self is ConfigFilterType.MODIFIED:
            return not config_source.is_modified()
        if self is ConfigFilterType.DEFAULT:
            return config_source.is_modified()
        if self is ConfigFilterType.STATIC:
            return config_source is not ConfigSourceType.STATIC_BROKER_CONFIG
        return False


class ConfigResourceType(_IntKind):
    """The kind of a resource with a configuration."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigType(_IntKind):
    """The type of a configuration key."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigResource(_Value):
    """A topic, broker, group or another resource with a configuration.

    ``configs`` is a list of keys, or a dict of changes by key, which the method describes. Two objects with the same
    type and name are equal, whatever their configs. Raises IllegalArgumentError if there is no such type.
    """

    _FIELDS = ("resource_type", "name")

    def __init__(self, resource_type: ConfigResourceType | str | int, name: str, configs: Any = None) -> None:
        self.resource_type = ConfigResourceType.build_from(resource_type)
        self.name = name
        self.configs = configs

    def __str__(self) -> str:
        return f"ConfigResource {self.name}={self.resource_type.name}"

    def __repr__(self) -> str:
        keys = None if self.configs is None else list(self.configs)  # values may be secrets
        return f"ConfigResource({self.resource_type.name}, {self.name!r}, keys={keys})"


class UpdateFeatureType(_IntKind):
    """The direction of a change of a feature's level."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


# --- groups ----------------------------------------------------------------------------------------------------------


class MemberToRemove(NamedTuple):
    """A member of a group: a dynamic one by ``member_id``, or a static one by ``group_instance_id``."""

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None


class GroupState(_TextKind):
    """The state of a group, as its coordinator names it."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


class GroupType(_TextKind):
    """The protocol of a group."""

    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


# --- access control --------------------------------------------------------------------------------------------------


class ResourceType(_IntKind):
    """The kind of a resource of an ACL. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class ACLOperation(_IntKind):
    """An operation that an ACL allows or denies. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ACLPermissionType(_IntKind):
    """The effect of an ACL: allow or deny. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ACLResourcePatternType(_IntKind):
    """The kind of match for the name of an ACL's resource (KIP-290). ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class ResourcePatternFilter(_Value):
    """Resources of ACLs, by type, name (None: any) and kind of pattern."""

    _FIELDS = ("resource_type", "resource_name", "pattern_type")

    def __init__(
        self, resource_type: ResourceType, resource_name: str | None, pattern_type: ACLResourcePatternType
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.pattern_type = pattern_type
        self.validate()

    def validate(self) -> None:
        """Check the types.

        Raises:
            IllegalArgumentError: one of them is wrong.
        """
        self._check(self.resource_type, ResourceType, "resource_type")
        self._check(self.pattern_type, ACLResourcePatternType, "pattern_type")

    def __repr__(self) -> str:
        return (
            f"<ResourcePattern type={self.resource_type.name}, name={self.resource_name}, "
            f"pattern={self.pattern_type.name}>"
        )


class ResourcePattern(ResourcePatternFilter):
    """The resources of one ACL."""

    def __init__(
        self,
        resource_type: ResourceType,
        resource_name: str,
        pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL,
    ) -> None:
        super().__init__(resource_type, resource_name, pattern_type)

    def validate(self) -> None:
        super().validate()
        if self.resource_type == ResourceType.ANY:
            raise IllegalArgumentError("resource_type cannot be ANY")
        if self.pattern_type in (ACLResourcePatternType.ANY, ACLResourcePatternType.MATCH):
            raise IllegalArgumentError(f"the pattern_type of a ResourcePattern cannot be {self.pattern_type.name}")


class ACLFilter(_Value):
    """ACLs to describe or delete. None matches any principal or host."""

    _FIELDS = ("principal", "host", "operation", "permission_type", "resource_pattern")

    def __init__(
        self,
        principal: str | None,
        host: str | None,
        operation: ACLOperation,
        permission_type: ACLPermissionType,
        resource_pattern: ResourcePatternFilter,
    ) -> None:
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type
        self.resource_pattern = resource_pattern
        self.validate()

    def validate(self) -> None:
        """Check the types.

        Raises:
            IllegalArgumentError: one of them is wrong.
        """
        self._check(self.operation, ACLOperation, "operation")
        self._check(self.permission_type, ACLPermissionType, "permission_type")
        self._check(self.resource_pattern, ResourcePatternFilter, "resource_pattern")

    def __repr__(self) -> str:
        return (
            f"<ACL principal={self.principal}, resource={self.resource_pattern}, operation={self.operation.name}, "
            f"type={self.permission_type.name}, host={self.host}>"
        )


class ACL(ACLFilter):
    """A permission or denial of an operation on resources, for one principal and host."""

    def validate(self) -> None:
        super().validate()
        if self.operation == ACLOperation.ANY:
            raise IllegalArgumentError("operation cannot be ANY")
        if self.permission_type == ACLPermissionType.ANY:
            raise IllegalArgumentError("permission_type cannot be ANY")
        self._check(self.resource_pattern, ResourcePattern, "resource_pattern")


def authorized_operations(bits: int) -> list[str] | None:
    """Return the names of the operations in a bit field; None if it was not requested or is unsupported."""
    if bits == _NOT_ASKED:
        return None
    return [operation.name for operation in ACLOperation if operation > ACLOperation.ALL and bits >> operation & 1]


_NOT_ASKED = -(1 << 31)


# --- users -----------------------------------------------------------------------------------------------------------


class ScramMechanism(_IntKind):
    """A SCRAM mechanism."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def hash_name(self) -> str:
        """The name of the hash function for ``hashlib``."""
        return {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}[self]


class UserScramCredentialDeletion:
    """A SCRAM credential to delete. Raises IllegalArgumentError if an argument is wrong."""

    def __init__(self, user: str, mechanism: ScramMechanism | int | str) -> None:
        self.user = text(user, "user")
        self.mechanism = ScramMechanism.build_from(mechanism)

    def __repr__(self) -> str:
        return f"UserScramCredentialDeletion({self.user}, {self.mechanism.name})"


class UserScramCredentialUpsertion:
    """A SCRAM credential to create or replace.

    Only the salted password is kept and sent; ``salt`` is random by default. Raises IllegalArgumentError if an argument
    is wrong.
    """

    DEFAULT_ITERATIONS = 4096
    #: Brokers accept fewer; more would keep the caller busy for long.
    MAX_ITERATIONS = 131_072

    def __init__(
        self,
        user: str,
        mechanism: ScramMechanism | int | str,
        password: bytes | str,
        iterations: int | None = None,
        salt: bytes | None = None,
    ) -> None:
        self.user = text(user, "user")
        self.mechanism = ScramMechanism.build_from(mechanism)
        if self.mechanism is ScramMechanism.UNKNOWN:
            raise IllegalArgumentError("the SCRAM mechanism must not be UNKNOWN")
        given = self.DEFAULT_ITERATIONS if iterations is None else iterations
        self.iterations = number(given, "iterations", 1, self.MAX_ITERATIONS)
        self.salt = os.urandom(24) if salt is None else salt
        if not isinstance(self.salt, bytes):
            raise IllegalArgumentError(f"salt is {shown(salt)}; it must be bytes")
        secret = text(password, "password").encode() if isinstance(password, str) else password
        if not isinstance(secret, bytes):
            raise IllegalArgumentError("the password must be bytes or a str")
        self.salted_password = hashlib.pbkdf2_hmac(self.mechanism.hash_name, secret, self.salt, self.iterations)

    def __repr__(self) -> str:
        return f"UserScramCredentialUpsertion({self.user}, {self.mechanism.name}, iterations={self.iterations})"


# --- transactions ----------------------------------------------------------------------------------------------------


class TransactionState(_TextKind):
    """The state of a transaction, as its coordinator names it."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"


class TransactionListing(NamedTuple):
    """A transactional id, and the state of its transaction."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """The state of a transaction, according to its coordinator. Times are in milliseconds."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class ProducerState(NamedTuple):
    """An active producer of a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionProducerState(NamedTuple):
    """The producers of a partition."""

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """A producer's transaction on one partition, to abort. ``coordinator_epoch`` -1 skips its check."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1
