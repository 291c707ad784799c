"""The configurations of topics and brokers (Java: ConfigHelper, ZkConfigManager)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pykclient import errors, topic_names
from pykclient.config.config_def import ConfigKey, Type
from pykclient.protocol.messages.describe_configs import DescribeConfigsResponse
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.config import BrokerConfig
from pykclient.testing.coordination import znodes
from pykclient.testing.coordination.coordination_client import CoordinationClient, KafkaCoordinationClient
from pykclient.testing.log import log_config
from pykclient.testing.log.log_config import LogConfig, server_defaults
from pykclient.testing.log.log_manager import LogManager
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.share import group_config
from pykclient.testing.share.group_config import GroupConfig, GroupConfigManager

# Java: ConfigResource.Type.
UNKNOWN: Final = 0
TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
_TYPE_NAMES: Final = {
    TOPIC: "TOPIC",
    BROKER: "BROKER",
    BROKER_LOGGER: "BROKER_LOGGER",
    CLIENT_METRICS: "CLIENT_METRICS",
    GROUP: "GROUP",
}

# Java: DescribeConfigsResponse.ConfigSource.
TOPIC_CONFIG: Final = 1
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
GROUP_CONFIG: Final = 8

# Java: AlterConfigOp.OpType.
SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3

#: Java: DescribeConfigsResponse.ConfigType.
_TYPE_IDS: Final = {
    Type.BOOLEAN: 1,
    Type.STRING: 2,
    Type.INT: 3,
    Type.SHORT: 4,
    Type.LONG: 5,
    Type.DOUBLE: 6,
    Type.LIST: 7,
    Type.CLASS: 8,
    Type.PASSWORD: 9,
}

#: Kafka's text for an INVALID_REQUEST that has no text of its own.
_MALFORMED: Final = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)

Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


class ConfigResource(NamedTuple):
    """The owner of settings: a topic or a broker."""

    type: int
    name: str


class AlterConfigOp(NamedTuple):
    """A change of one setting: SET (0), DELETE (1), APPEND (2) or SUBTRACT (3)."""

    name: str
    operation: int
    value: str | None


def value_as_string(value: Any, key: ConfigKey | None) -> str | None:
    """Return a value as Kafka writes it (Java: ConfigDef.convertToString)."""
    if value is None or (key is not None and key.type == Type.PASSWORD):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def topic_entries(
    config: BrokerConfig, overrides: Mapping[str, str], dynamic: Collection[str], *, documentation: bool = False
) -> list[Entry]:
    """Return all settings of a topic with their sources. ``dynamic`` names the dynamic defaults of all brokers."""
    values = LogConfig(server_defaults(config), overrides).values
    entries = []
    for name, value in values.items():
        if name.startswith("internal."):
            continue
        key = log_config.DEFINITION.keys[name]
        synonyms: list[Synonym] = []
        if name in overrides:
            synonyms.append(Synonym(name=name, value=value_as_string(value, key), source=TOPIC_CONFIG))
        for broker_name in log_config.SERVER_SYNONYMS.get(name, ()):
            if broker_name in config:
                synonyms += _broker_synonyms(config, broker_name, dynamic)
        entries.append(_entry(key, value, synonyms, documentation, read_only=False))
    return entries


def broker_entries(config: BrokerConfig, dynamic: Collection[str], *, documentation: bool = False) -> list[Entry]:
    """Return all settings of a broker with their sources. They are fixed at its start."""
    return [
        _entry(key, config[name], _broker_synonyms(config, name, dynamic), documentation, read_only=True)
        for name, key in BrokerConfig.DEFINITION.keys.items()
    ]


def group_entries(config: BrokerConfig, overrides: Mapping[str, str], *, documentation: bool = False) -> list[Entry]:
    """Return all settings of a share group with their sources."""
    entries = []
    for name, value in GroupConfig(config, overrides).values.items():
        key = group_config.DEFINITION.keys[name]
        synonyms: list[Synonym] = []
        if name in overrides:
            synonyms.append(Synonym(name=name, value=value_as_string(value, key), source=GROUP_CONFIG))
        if name in group_config.SERVER_SYNONYMS:
            synonyms += _broker_synonyms(config, group_config.SERVER_SYNONYMS[name])
        entries.append(_entry(key, value, synonyms, documentation, read_only=False))
    return entries


def _broker_synonyms(config: BrokerConfig, name: str, dynamic: Collection[str] = ()) -> list[Synonym]:
    key = BrokerConfig.DEFINITION.keys[name]
    synonyms = []
    if name in dynamic:
        value = value_as_string(config[name], key)
        synonyms.append(Synonym(name=name, value=value, source=DYNAMIC_DEFAULT_BROKER_CONFIG))
    if config.is_set(name):
        synonyms.append(Synonym(name=name, value=value_as_string(config[name], key), source=STATIC_BROKER_CONFIG))
    synonyms.append(Synonym(name=name, value=value_as_string(key.default, key), source=DEFAULT_CONFIG))
    return synonyms


def _dynamic_defaults(entries: Iterable[Entry]) -> list[Entry]:
    """Return those of a broker's settings that are dynamic defaults, without their other sources."""
    found = [each for each in entries if each.config_source == DYNAMIC_DEFAULT_BROKER_CONFIG]
    for each in found:
        each.synonyms = each.synonyms[:1]
    return found


def _entry(key: ConfigKey, value: Any, synonyms: list[Synonym], documentation: bool, *, read_only: bool) -> Entry:
    source = synonyms[0].source if synonyms else DEFAULT_CONFIG
    return Entry(
        name=key.name,
        value=value_as_string(value, key),
        read_only=read_only,
        config_source=source,
        is_sensitive=key.type == Type.PASSWORD,
        synonyms=synonyms,
        config_type=_TYPE_IDS.get(key.type, 0),
        documentation=key.doc if documentation else None,
    )


@dataclass(eq=False, repr=False)
class ConfigManager:
    """Describes and alters settings, and learns of changes made by other brokers. Thread: loop."""

    _broker: BrokerContext
    _coordination: CoordinationClient
    _store: KafkaCoordinationClient
    _metadata_cache: MetadataCache
    _log_manager: LogManager
    _group_configs: GroupConfigManager
    _on_topic_config_change: Callable[[str], None]
    _seen_changes: set[str] = field(default_factory=set)

    # --- changes -------------------------------------------------------------------------------------------------

    def startup(self) -> None:
        """Watch for changes. Logs read earlier ones when they are opened."""
        coordination = self._coordination
        coordination.register_child_change_handler(znodes.CONFIG_CHANGES, self._on_change)
        coordination.register_reconnect_listener(self._on_reconnect)
        if coordination.connected:
            self._seen_changes.update(coordination.get_children(znodes.CONFIG_CHANGES))

    def _on_reconnect(self) -> None:
        # A new session needs a new watch, and logs may have been opened without settings meanwhile.
        if self._coordination.connected:
            self._on_change()
            self._group_configs.forget()
            for topic in dict.fromkeys(log.topic_partition.topic for log in self._log_manager.all_logs):
                self._apply(topic)

    def _on_change(self) -> None:
        coordination = self._coordination
        if not coordination.connected:
            return
        changes = coordination.get_children(znodes.CONFIG_CHANGES)
        self._seen_changes.intersection_update(changes)
        for change in changes:
            if change not in self._seen_changes:
                self._seen_changes.add(change)
                entity, _ = coordination.get_data(f"{znodes.CONFIG_CHANGES}/{change}")
                kind, _, name = entity.partition("/")
                if kind == "topics":
                    self._apply(name)
                    self._on_topic_config_change(name)
                elif kind == "groups":
                    self._group_configs.forget()

    def _apply(self, topic: str) -> None:
        self._log_manager.update_topic_config(topic, self._store.topic_config(topic))

    # --- describing ----------------------------------------------------------------------------------------------

    def describe(self, resource: ConfigResource, *, documentation: bool) -> list[Entry]:
        """Return the settings of a resource.

        Raises:
            InvalidTopicError: the topic's name is not valid.
            UnknownTopicOrPartitionError: the topic does not exist.
            InvalidRequestError: another broker must be asked, or there is no such resource.
        """
        if resource.type == TOPIC:
            topic_names.validate(resource.name)
            if not self._metadata_cache.contains(resource.name):
                raise errors.UnknownTopicOrPartitionError("")
            overrides = self._store.topic_config(resource.name)
            return topic_entries(self._broker.config, overrides, self.dynamic_defaults, documentation=documentation)
        if resource.type == BROKER:
            if resource.name:
                self._check_broker(resource.name)
            found = broker_entries(self._broker.config, self.dynamic_defaults, documentation=documentation)
            return found if resource.name else _dynamic_defaults(found)
        if resource.type == BROKER_LOGGER:
            if not resource.name:
                raise errors.InvalidRequestError("Broker id must not be empty")
            self._check_broker(resource.name, "")
            return []
        if resource.type in (CLIENT_METRICS, GROUP):
            if not resource.name:
                what = "Group name" if resource.type == GROUP else "Client metrics subscription name"
                raise errors.InvalidRequestError(f"{what} must not be empty")
            if resource.type == GROUP:
                overrides = self._group_configs.overrides(resource.name)
                return group_entries(self._broker.config, overrides, documentation=documentation)
            return []
        raise errors.InvalidRequestError(_MALFORMED)

    @property
    def dynamic_defaults(self) -> Collection[str]:
        """The settings that the controller has written for all brokers. Others cannot be altered."""
        return ("min.insync.replicas",) if self._broker.profile.has_dynamic_min_insync_replicas else ()

    def _check_broker(self, name: str, alternative: str = " or empty string,") -> None:
        id = self._broker.id
        try:
            wanted = int(name)
        except ValueError:
            raise errors.InvalidRequestError(f"Broker id must be an integer, but it is: {name}") from None
        if wanted != id:
            raise errors.InvalidRequestError(f"Unexpected broker id, expected {id}{alternative} but received {name}")

    def list_resources(self, types: Collection[int]) -> list[ConfigResource]:
        """Return the topics and brokers that have settings."""
        snapshot = self._metadata_cache.snapshot
        found = [ConfigResource(TOPIC, topic) for topic in snapshot.partition_states] if TOPIC in types else []
        for type in (BROKER, BROKER_LOGGER):
            if type in types:
                found += [ConfigResource(type, str(id)) for id in snapshot.alive_brokers]
        return found

    # --- altering ------------------------------------------------------------------------------------------------

    def alter(
        self, resource: ConfigResource, operations: Sequence[AlterConfigOp], replace: bool, validate_only: bool
    ) -> None:
        """Change settings of a resource. ``replace`` replaces all of them (the old AlterConfigs).

        Raises:
            BrokerError: they cannot be changed.
        """
        if resource.type == BROKER:
            if resource.name:
                self._check_own(resource.name)
            if operations:
                refused = ", ".join(operation.name for operation in operations)
                raise errors.InvalidRequestError(f"Cannot update these configs dynamically: [{refused}]")
            return
        if resource.type == GROUP:
            self._alter_group(resource.name, operations, replace, validate_only)
            return
        if resource.type != TOPIC:
            if resource.type not in _TYPE_NAMES:
                raise errors.InvalidRequestError(f"Unknown resource type {resource.type}")
            kind = _TYPE_NAMES[resource.type]
            raise errors.InvalidRequestError(
                f"Unexpected resource type {kind}; settings of topics and groups can be altered here"
            )
        if not resource.name:
            raise errors.InvalidRequestError("Default topic resources are not allowed.")
        topic_names.validate(resource.name)
        if not self._store.topic_exists(resource.name):
            raise errors.UnknownTopicOrPartitionError(f"The topic '{resource.name}' does not exist.")
        current = self._store.topic_config(resource.name)
        altered = _altered(current, operations, replace)
        log_config.validate(altered, has_message_formats=self._broker.profile.has_message_formats)
        if not validate_only and altered != current:
            self._store.set_config(znodes.topic_config_path(resource.name), altered)

    def _alter_group(
        self, group_id: str, operations: Sequence[AlterConfigOp], replace: bool, validate_only: bool
    ) -> None:
        if not group_id:
            raise errors.InvalidRequestError("Default group resources are not allowed.")
        current = self._group_configs.overrides(group_id)
        altered = _altered(current, operations, replace)
        group_config.validate(altered)
        if not validate_only and altered != current:
            self._group_configs.set_overrides(group_id, altered)

    def _check_own(self, name: str) -> None:
        if not name.isdecimal():
            raise errors.InvalidRequestError(f"Node id must be an integer, but it is: {name}")
        if int(name) != self._broker.id:
            raise errors.InvalidRequestError(f"Unexpected broker id, expected {self._broker.id}, but received {name}")


def _apply(config: dict[str, str], change: AlterConfigOp) -> None:
    name, operation, value = change
    if operation == DELETE:
        config.pop(name, None)
        return
    if operation not in (SET, APPEND, SUBTRACT):
        raise errors.InvalidRequestError(f"Unknown config operation {operation} for {name}")
    if value is None:
        raise errors.InvalidRequestError(f"Null value not supported for : {name}")
    if operation == SET:
        config[name] = value
        return
    key = log_config.DEFINITION.keys.get(name)
    if key is None or key.type != Type.LIST:
        verb = "APPEND" if operation == APPEND else "SUBTRACT"
        raise errors.InvalidConfigurationError(f"Can't {verb} to key {name} because its type is not LIST.")
    present = _entries(config.get(name, value_as_string(key.default, key) or ""))
    if operation == APPEND:
        present += [entry for entry in _entries(value) if entry not in present]
    else:
        removed = _entries(value)
        present = [entry for entry in present if entry not in removed]
    config[name] = ",".join(present)


def _altered(config: Mapping[str, str], operations: Sequence[AlterConfigOp], replace: bool) -> dict[str, str]:
    if len({operation.name for operation in operations}) < len(operations):
        raise errors.InvalidRequestError("Error due to duplicate config keys")
    altered = {} if replace else dict(config)
    for operation in operations:
        _apply(altered, operation)
    return altered


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def select(entries: Iterable[Entry], names: Collection[str] | None) -> list[Entry]:
    """Return the requested entries, or all if no names were given."""
    return [entry for entry in entries if not names or entry.name in names]
