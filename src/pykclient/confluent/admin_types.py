"""The values of the admin client in confluent-kafka's shape."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, TypeVar

from pykclient.confluent import constants
from pykclient.confluent.model import ConsumerGroupState, ConsumerGroupType, Node, OrderedEnum, TopicPartitionInfo
from pykclient.confluent.topic_partition import Keyed, TopicPartition, Uuid

E = TypeVar("E", bound=Enum)


def as_enum(value: Any, kind: type[E]) -> E:
    """Return the member of ``kind`` for a member, a name in any case, or a number.

    Raises:
        ValueError: there is no such member.
        TypeError: ``value`` is something else.
    """
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        try:
            return kind[value.upper()]
        except KeyError:
            raise ValueError(f'Unknown value "{value}": should be a {kind.__name__}') from None
    if isinstance(value, int):
        return kind(value)
    raise TypeError(f'Unknown value "{value}": should be a {kind.__name__}')


# --- topics ----------------------------------------------------------------------------------------------------------


def _check_topic(topic: Any, *numbers: Any) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
    for number in numbers:
        if not isinstance(number, int):
            raise TypeError(f"{type(number).__name__!r} object cannot be interpreted as an integer")


@dataclass(eq=False, repr=False)
class NewTopic(Keyed):
    """A topic to create; -1 stands for the brokers' default."""

    topic: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignment: list[list[int]] | None = None
    config: dict[str, str] | None = None

    def __post_init__(self) -> None:
        _check_topic(self.topic, self.num_partitions, self.replication_factor)
        if self.config is not None and not isinstance(self.config, dict):
            raise TypeError("config must be a dict of strings")

    def _key(self) -> tuple[str, int]:
        return self.topic, self.num_partitions

    def __repr__(self) -> str:
        partitions = "" if self.num_partitions == -1 else f",num_partitions={self.num_partitions}"
        return f"NewTopic(topic={self.topic}{partitions})"


@dataclass(eq=False, repr=False)
class NewPartitions(Keyed):
    """The new partition count of a topic."""

    topic: str
    new_total_count: int
    replica_assignment: list[list[int]] | None = None

    def __post_init__(self) -> None:
        _check_topic(self.topic, self.new_total_count)

    def _key(self) -> tuple[str, int]:
        return self.topic, self.new_total_count

    def __repr__(self) -> str:
        return f"NewPartitions(topic={self.topic},new_total_count={self.new_total_count})"


class DeletedRecords:
    """The outcome of deleting records: the first offset that is left."""

    def __init__(self, low_watermark: int) -> None:
        self.low_watermark = low_watermark


# --- access control --------------------------------------------------------------------------------------------------


class ResourceType(OrderedEnum):
    """The kind of a resource."""

    UNKNOWN = constants.RESOURCE_UNKNOWN
    ANY = constants.RESOURCE_ANY
    TOPIC = constants.RESOURCE_TOPIC
    GROUP = constants.RESOURCE_GROUP
    BROKER = constants.RESOURCE_BROKER
    TRANSACTIONAL_ID = constants.RESOURCE_TRANSACTIONAL_ID


class ResourcePatternType(OrderedEnum):
    """The kind of match for a resource's name."""

    UNKNOWN = constants.RESOURCE_PATTERN_UNKNOWN
    ANY = constants.RESOURCE_PATTERN_ANY
    MATCH = constants.RESOURCE_PATTERN_MATCH
    LITERAL = constants.RESOURCE_PATTERN_LITERAL
    PREFIXED = constants.RESOURCE_PATTERN_PREFIXED


class AclOperation(OrderedEnum):
    """An operation that an ACL is about."""

    UNKNOWN = constants.ACL_OPERATION_UNKNOWN
    ANY = constants.ACL_OPERATION_ANY
    ALL = constants.ACL_OPERATION_ALL
    READ = constants.ACL_OPERATION_READ
    WRITE = constants.ACL_OPERATION_WRITE
    CREATE = constants.ACL_OPERATION_CREATE
    DELETE = constants.ACL_OPERATION_DELETE
    ALTER = constants.ACL_OPERATION_ALTER
    DESCRIBE = constants.ACL_OPERATION_DESCRIBE
    CLUSTER_ACTION = constants.ACL_OPERATION_CLUSTER_ACTION
    DESCRIBE_CONFIGS = constants.ACL_OPERATION_DESCRIBE_CONFIGS
    ALTER_CONFIGS = constants.ACL_OPERATION_ALTER_CONFIGS
    IDEMPOTENT_WRITE = constants.ACL_OPERATION_IDEMPOTENT_WRITE


class AclPermissionType(OrderedEnum):
    """The effect of an ACL."""

    UNKNOWN = constants.ACL_PERMISSION_TYPE_UNKNOWN
    ANY = constants.ACL_PERMISSION_TYPE_ANY
    DENY = constants.ACL_PERMISSION_TYPE_DENY
    ALLOW = constants.ACL_PERMISSION_TYPE_ALLOW


class AclBinding(Keyed):
    """An ACL. Enumerations may be given by name or by number."""

    _required: ClassVar[tuple[str, ...]] = (
        "restype",
        "name",
        "resource_pattern_type",
        "principal",
        "host",
        "operation",
        "permission_type",
    )
    _forbidden: ClassVar[frozenset[Enum]] = frozenset(
        (ResourceType.ANY, ResourcePatternType.ANY, ResourcePatternType.MATCH, AclOperation.ANY, AclPermissionType.ANY)
    )

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str | None,
        resource_pattern_type: ResourcePatternType | str | int,
        principal: str | None,
        host: str | None,
        operation: AclOperation | str | int,
        permission_type: AclPermissionType | str | int,
    ) -> None:
        given = (restype, name, resource_pattern_type, principal, host, operation, permission_type)
        for field, value in zip(AclBinding._required, given, strict=True):
            if value is None and field in self._required:
                raise ValueError(f"Expected {field} to be not None")
        for field, text in (("name", name), ("principal", principal), ("host", host)):
            if not isinstance(text, str | None):
                raise TypeError(f"Expected {field} to be a string")
        self.name = name
        self.principal = principal
        self.host = host
        self.restype = as_enum(restype, ResourceType)
        self.resource_pattern_type = as_enum(resource_pattern_type, ResourcePatternType)
        self.operation = as_enum(operation, AclOperation)
        self.permission_type = as_enum(permission_type, AclPermissionType)
        members: tuple[Enum, ...] = (self.restype, self.resource_pattern_type, self.operation, self.permission_type)
        for member in members:
            if member in self._forbidden:
                raise ValueError(f"Cannot use enum {type(member).__name__}, value {member.name} in this class")
        self.restype_int = self.restype.value
        self.resource_pattern_type_int = self.resource_pattern_type.value
        self.operation_int = self.operation.value
        self.permission_type_int = self.permission_type.value

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field) for field in AclBinding._required)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(map(str, self._key()))})"


class AclBindingFilter(AclBinding):
    """A filter of ACLs; None matches any name, principal or host."""

    _required = ("restype", "resource_pattern_type", "operation", "permission_type")
    _forbidden = frozenset(
        (ResourceType.UNKNOWN, ResourcePatternType.UNKNOWN, AclOperation.UNKNOWN, AclPermissionType.UNKNOWN)
    )


def _operations(given: Any) -> list[AclOperation] | None:
    return [as_enum(operation, AclOperation) for operation in given] if given else None


# --- configurations --------------------------------------------------------------------------------------------------


class AlterConfigOpType(Enum):
    """The change of a configuration key."""

    SET = constants.ALTER_CONFIG_OP_TYPE_SET
    DELETE = constants.ALTER_CONFIG_OP_TYPE_DELETE
    APPEND = constants.ALTER_CONFIG_OP_TYPE_APPEND
    SUBTRACT = constants.ALTER_CONFIG_OP_TYPE_SUBTRACT


class ConfigSource(Enum):
    """The origin of a configuration key's value."""

    UNKNOWN_CONFIG = constants.CONFIG_SOURCE_UNKNOWN_CONFIG
    DYNAMIC_TOPIC_CONFIG = constants.CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG
    DYNAMIC_BROKER_CONFIG = constants.CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG
    DYNAMIC_DEFAULT_BROKER_CONFIG = constants.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG
    STATIC_BROKER_CONFIG = constants.CONFIG_SOURCE_STATIC_BROKER_CONFIG
    DEFAULT_CONFIG = constants.CONFIG_SOURCE_DEFAULT_CONFIG
    GROUP_CONFIG = constants.CONFIG_SOURCE_GROUP_CONFIG


@dataclass(eq=False, repr=False)
class ConfigEntry:
    """A configuration key with its value and origin; a secret's value is None."""

    name: str
    value: str | None
    source: ConfigSource | int = ConfigSource.UNKNOWN_CONFIG
    is_read_only: bool = False
    is_default: bool = False
    is_sensitive: bool = False
    is_synonym: bool = False
    synonyms: dict[str, ConfigEntry] = None  # type: ignore[assignment]  # None becomes {}
    incremental_operation: AlterConfigOpType | None = None

    def __post_init__(self) -> None:
        for flag in ("is_read_only", "is_default", "is_sensitive", "is_synonym"):
            setattr(self, flag, bool(getattr(self, flag)))
        if self.synonyms is None:
            self.synonyms = {}

    def __repr__(self) -> str:
        return f'ConfigEntry({self.name}="{self.value}")'

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'


class ConfigResource(Keyed):
    """A topic, broker or group with configuration keys to set, or with those that were described."""

    Type = ResourceType

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        set_config: dict[str, str] | None = None,
        described_configs: dict[str, ConfigEntry] | None = None,
        error: Any = None,
        incremental_configs: list[ConfigEntry] | None = None,
    ) -> None:
        if name is None:
            raise ValueError("Expected resource name to be a string")
        if isinstance(restype, str) and restype.upper() not in ResourceType.__members__:
            raise ValueError(f'Unknown resource type "{restype}": should be a ConfigResource.Type')
        self.restype = as_enum(restype, ResourceType)
        self.restype_int = int(self.restype.value)
        self.name = name
        self.set_config_dict = {} if set_config is None else dict(set_config)
        self.incremental_configs = list(incremental_configs or [])
        self.configs = described_configs
        self.error = error

    def __repr__(self) -> str:
        error = "" if self.error is None else f",{self.error!r}"
        return f"ConfigResource({self.restype},{self.name}{error})"

    def _key(self) -> tuple[ResourceType, str]:
        return self.restype, self.name

    def __len__(self) -> int:
        return len(self.set_config_dict)

    def set_config(self, name: str, value: str, overwrite: bool = True) -> None:
        """Set a key; without ``overwrite`` only if it is not set yet."""
        if overwrite or name not in self.set_config_dict:
            self.set_config_dict[name] = value

    def add_incremental_config(self, config_entry: ConfigEntry) -> None:
        """Add a change."""
        self.incremental_configs.append(config_entry)


# --- groups ----------------------------------------------------------------------------------------------------------


class ConsumerGroupListing:
    """A group in the list of groups."""

    def __init__(
        self,
        group_id: str,
        is_simple_consumer_group: bool,
        state: ConsumerGroupState | str | int | None = None,
        type: ConsumerGroupType | str | int | None = None,
    ) -> None:
        self.group_id = group_id
        self.is_simple_consumer_group = is_simple_consumer_group
        if state is not None:
            self.state = as_enum(state, ConsumerGroupState)
        if type is not None:
            self.type = as_enum(type, ConsumerGroupType)


@dataclass(eq=False, repr=False)
class ListConsumerGroupsResult:
    """The groups, and the errors of brokers that could not list theirs."""

    valid: list[ConsumerGroupListing] | None = None
    errors: list[Exception] | None = None


class MemberAssignment:
    """The partitions of a member."""

    def __init__(self, topic_partitions: list[TopicPartition] | None) -> None:
        self.topic_partitions = topic_partitions or []


@dataclass(eq=False, repr=False)
class MemberDescription:
    """A member of a group."""

    member_id: str
    client_id: str
    host: str
    assignment: MemberAssignment
    group_instance_id: str | None = None
    target_assignment: MemberAssignment | None = None


class ConsumerGroupDescription:
    """A group with its members."""

    def __init__(
        self,
        group_id: str,
        is_simple_consumer_group: bool,
        members: list[MemberDescription],
        partition_assignor: str,
        state: ConsumerGroupState | str | int | None,
        coordinator: Node | None,
        authorized_operations: list[Any] | None = None,
        type: ConsumerGroupType | str | int = ConsumerGroupType.UNKNOWN,
    ) -> None:
        self.group_id = group_id
        self.is_simple_consumer_group = is_simple_consumer_group
        self.members = members
        self.authorized_operations = _operations(authorized_operations)
        self.partition_assignor = partition_assignor
        if state is not None:
            self.state = as_enum(state, ConsumerGroupState)
        if type is not None:
            self.type = as_enum(type, ConsumerGroupType)
        self.coordinator = coordinator


# --- descriptions ----------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class DescribeClusterResult:
    """The cluster's controller and brokers."""

    controller: Node | None
    nodes: list[Node]
    cluster_id: str | None = None
    authorized_operations: list[Any] | None = None

    def __post_init__(self) -> None:
        self.authorized_operations = _operations(self.authorized_operations)


@dataclass(eq=False, repr=False)
class TopicDescription:
    """A topic with its partitions."""

    name: str
    topic_id: Uuid | None
    is_internal: bool
    partitions: list[TopicPartitionInfo]
    authorized_operations: list[Any] | None = None

    def __post_init__(self) -> None:
        self.authorized_operations = _operations(self.authorized_operations)


# --- offsets ---------------------------------------------------------------------------------------------------------


class OffsetSpec(Keyed):
    """A place in a partition: the earliest or latest offset, that of the largest timestamp, or that of a time."""

    def __init__(self, index: int) -> None:
        self._value = index

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """Return the place of the first record."""
        return cls(constants.OFFSET_SPEC_EARLIEST)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """Return the place after the last record."""
        return cls(constants.OFFSET_SPEC_LATEST)

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """Return the place of the record with the largest timestamp."""
        return cls(constants.OFFSET_SPEC_MAX_TIMESTAMP)

    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec:
        """Return the place of the first record at or after a time in milliseconds."""
        return cls(timestamp)

    def _key(self) -> int:
        return self._value


class ListOffsetsResultInfo:
    """An offset, the timestamp of its record in ms, and the leader's epoch."""

    def __init__(self, offset: int, timestamp: int, leader_epoch: int) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.leader_epoch = None if leader_epoch < 0 else leader_epoch


# --- SCRAM -----------------------------------------------------------------------------------------------------------


class ScramMechanism(OrderedEnum):
    """A SCRAM mechanism."""

    UNKNOWN = constants.SCRAM_MECHANISM_UNKNOWN
    SCRAM_SHA_256 = constants.SCRAM_MECHANISM_SHA_256
    SCRAM_SHA_512 = constants.SCRAM_MECHANISM_SHA_512


@dataclass(eq=False, repr=False)
class ScramCredentialInfo:
    """The mechanism and iterations of a credential."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(eq=False, repr=False)
class UserScramCredentialsDescription:
    """The credentials of a user."""

    user: str
    scram_credential_infos: list[ScramCredentialInfo]


@dataclass(eq=False, repr=False)
class UserScramCredentialAlteration:
    """Base class of changes of a user's credentials."""

    user: str


@dataclass(eq=False, repr=False)
class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """A credential to create or replace; the salt is random by default."""

    scram_credential_info: ScramCredentialInfo
    password: bytes
    salt: bytes | None = None


@dataclass(eq=False, repr=False)
class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """A credential to delete."""

    mechanism: ScramMechanism
