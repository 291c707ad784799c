"""Configurations of topics, brokers and other resources: the steps of their methods."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pykclient.admin import expect
from pykclient.admin.admin_calls import Steps, ask, run
from pykclient.admin.api import (
    ANY_BROKER,
    AdminApiHandler,
    Answers,
    LookupStrategy,
    QuorumStrategy,
    item_error,
    to_any_broker,
)
from pykclient.admin.descriptions import ConfigEntry, ConfigSynonym
from pykclient.admin.topics import config_value
from pykclient.admin.values import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    Results,
)
from pykclient.argument_values import shown
from pykclient.errors import IllegalArgumentError, UnsupportedVersionError
from pykclient.protocol.message import Request
from pykclient.protocol.messages.alter_configs import AlterConfigsRequest
from pykclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from pykclient.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from pykclient.protocol.messages.list_config_resources import ListConfigResourcesRequest

Described = DescribeConfigsResponse.DescribeConfigsResult

_OF_BROKERS = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


class Change(NamedTuple):
    """A change of one key."""

    key: str
    op: AlterConfigOp
    value: str | None


Changes = Mapping[ConfigResource, Sequence[Change]]
Keys = Mapping[ConfigResource, Sequence[str] | None]


def _lookup(of_nodes: Container[ConfigResourceType] = _OF_BROKERS) -> LookupStrategy[ConfigResource]:
    """Return the strategy for resources: a node knows its own configuration, any node that of the others."""
    return QuorumStrategy(
        lambda resource: int(resource.name) if resource.resource_type in of_nodes and resource.name else ANY_BROKER
    )


def resources(values: object) -> list[ConfigResource]:
    """Return a list of resources.

    Raises:
        IllegalArgumentError: one of them is no ConfigResource, is given twice, or names no broker where it must.
    """
    found = expect.items(values, "config_resources", "ConfigResource")
    for index, resource in enumerate(found):
        if not isinstance(resource, ConfigResource):
            raise IllegalArgumentError(f"config_resources[{index}] is {shown(resource)}; it must be a ConfigResource")
        name = expect.text(resource.name, f"the name of config_resources[{index}]")
        if resource.resource_type in _OF_BROKERS and name and not (name.isascii() and name.isdigit()):
            raise IllegalArgumentError(f"{name!r} names no broker; the name of a broker is its id, such as '1'")
    if len(set(found)) < len(found):
        raise IllegalArgumentError("config_resources names a resource twice")
    return found


# --- describing ---


def all_keys(resources: Iterable[ConfigResource]) -> Keys:
    """Return the arguments that describe all keys of some resources."""
    return dict.fromkeys(resources)


def keys_of(resource: ConfigResource) -> list[str] | None:
    """Return the keys in a resource's ``configs``, a list or a dict; None means all keys.

    Raises:
        IllegalArgumentError: they are no names.
    """
    return None if resource.configs is None else expect.texts(resource.configs, f"configs of {resource}")


def describe_configs(
    wanted: Keys, include_synonyms: bool, include_documentation: bool = False
) -> Steps[Results[ConfigResource, Described]]:
    """Describe the given keys of resources; None means all keys."""

    def request(keys: Sequence[ConfigResource], _timeout_ms: int) -> DescribeConfigsRequest:
        return DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=resource.resource_type.value,
                    resource_name=resource.name,
                    configuration_keys=wanted[resource],
                )
                for resource in keys
            ],
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )

    return run(AdminApiHandler("describe_configs", _lookup(), request, _answers_of("results")), list(wanted))


def _answers_of(field: str) -> Any:
    def answers(keys: Sequence[ConfigResource], response: Any) -> Answers[ConfigResource]:
        asked = {(resource.resource_type.value, resource.name): resource for resource in keys}
        for result in getattr(response, field):
            resource = asked.get((result.resource_type, result.resource_name))
            if resource is not None:
                yield resource, item_error(result), result

    return answers


def config_entries(described: Described) -> dict[str, ConfigEntry]:
    """Return the keys of a description by name."""
    return {
        config.name: ConfigEntry(
            config.name,
            config.value,
            ConfigSourceType.build_from(config.config_source),
            config.read_only,
            config.is_sensitive,
            ConfigType.build_from(config.config_type),
            config.documentation,
            tuple(
                ConfigSynonym(synonym.name, synonym.value, ConfigSourceType.build_from(synonym.source))
                for synonym in config.synonyms
            ),
        )
        for config in described.configs
    }


# --- altering ---


def changes_of(resource: ConfigResource) -> list[Change]:
    """Return the changes in the ``configs`` of a resource: values to set, or pairs of an operation and a value.

    Raises:
        IllegalArgumentError: it is no dict, or a value is of the wrong type.
    """
    configs = expect.optional_mapping(resource.configs, f"configs of {resource}", "values by key")
    changes = []
    for key, given in configs.items():
        name = expect.text(key, f"a key of {resource}")
        what = f"config {name!r} of {resource}"
        op, value = given if isinstance(given, tuple) and len(given) == 2 else (AlterConfigOp.SET, given)
        kind = AlterConfigOp.build_from(op)
        text = None if kind is AlterConfigOp.DELETE else config_value(value, what)
        changes.append(Change(name, kind, text))
    return changes


def alter_configs(changes: Changes, validate_only: bool) -> Steps[Results[ConfigResource, Any]]:
    """Change some keys, and keep the others (KIP-339)."""

    kind = IncrementalAlterConfigsRequest.AlterableConfig
    altered = {
        resource: [kind(name=change.key, config_operation=change.op.value, value=change.value) for change in made]
        for resource, made in changes.items()
    }
    return _change(IncrementalAlterConfigsRequest, altered, validate_only)


def _change(
    kind: Any, altered: Mapping[ConfigResource, Sequence[Any]], validate_only: bool
) -> Steps[Results[ConfigResource, Any]]:
    """Change configurations. The active controller changes those of brokers, but not of loggers."""

    def request(keys: Sequence[ConfigResource], _timeout_ms: int) -> Request:
        resources = [
            kind.AlterConfigsResource(
                resource_type=resource.resource_type.value, resource_name=resource.name, configs=altered[resource]
            )
            for resource in keys
        ]
        made: Request = kind(resources=resources, validate_only=validate_only)
        return made

    client = yield None
    lookup = _lookup((ConfigResourceType.BROKER_LOGGER,)) if client.metadata.uses_controllers else _lookup()
    handler: AdminApiHandler[ConfigResource, Any] = AdminApiHandler(
        "alter_configs", lookup, request, _answers_of("responses")
    )
    return (yield from run(handler, list(altered)))


def replace_configs(changes: Changes, validate_only: bool) -> Steps[Results[ConfigResource, Any]]:
    """Set all keys of resources, for brokers that cannot change single keys (before Kafka 2.3).

    Such brokers reset all keys that a request leaves out. So the other modified keys are read first and sent along;
    a concurrent change is lost.
    """
    for resource, made in changes.items():
        if any(change.op is not AlterConfigOp.SET for change in made):
            raise UnsupportedVersionError(f"brokers before Kafka 2.3 can only set keys, for {resource}")
    described = yield from describe_configs(all_keys(changes), False)
    kind = AlterConfigsRequest.AlterableConfig
    complete = {}
    for resource, description in described.succeeded.items():
        kept = {
            entry.name: entry.value
            for entry in config_entries(description).values()
            if entry.source.is_modified() and entry.value is not None and not entry.is_read_only
        }
        values = {**kept, **{change.key: change.value for change in changes[resource]}}
        complete[resource] = [kind(name=key, value=value) for key, value in values.items()]
    results = yield from _change(AlterConfigsRequest, complete, validate_only)
    results.failed.update(described.failed)
    return results


# --- listing ---


def list_config_resources(types: Iterable[ConfigResourceType]) -> Steps[list[ConfigResource]]:
    """Return the resources that have a configuration of their own, of some types or of all."""
    wanted = [kind.value for kind in types]

    def read(response: Any) -> list[ConfigResource]:
        return [ConfigResource(found.resource_type, found.resource_name) for found in response.config_resources]

    return ask("list_config_resources", to_any_broker(), ListConfigResourcesRequest(resource_types=wanted), read)
