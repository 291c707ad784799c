"""The methods of KafkaAdminClient for configurations, as kafka-python has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykclient.admin import expect
from pykclient.admin.admin_base import AdminBase
from pykclient.admin.configs import (
    Change,
    Described,
    all_keys,
    alter_configs,
    changes_of,
    config_entries,
    describe_configs,
    keys_of,
    list_config_resources,
    replace_configs,
    resources,
)
from pykclient.admin.operation import CallContext, Operation
from pykclient.admin.plain import is_answer, plain, shown_error
from pykclient.admin.results import Results
from pykclient.admin.values import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
)
from pykclient.errors import IllegalArgumentError, UnsupportedVersionError


class ConfigCalls(AdminBase):
    """Configurations of topics, brokers and other resources."""

    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: ConfigFilterType | str = "modified",
    ) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
        """Return the configurations of resources, as ``{type: {name: {key: values}}}``.

        ``configs`` of a resource names the keys to return; None is for all. ``config_filter`` chooses keys by where
        their value comes from: ``"modified"`` (set for the resource itself), ``"dynamic"`` (can be altered), ``"all"``,
        ``"default"`` or ``"static"``. Unlike kafka-python's, this raises the error of a resource.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            TopicAuthorizationError: not authorized to describe the configuration of a topic.
            ClusterAuthorizationError: not authorized to describe the configuration of a broker.
            KafkaError: any other error of a resource.
        """
        wanted = {resource: keys_of(resource) for resource in resources(config_resources)}
        chosen = ConfigFilterType.build_from(config_filter)
        with_synonyms = expect.flag(include_synonyms, "include_synonyms")
        results = self._run("describe_configs", None, lambda it: describe_configs(it, wanted, with_synonyms))
        found: dict[str, dict[str, Any]] = {}
        for resource, described in results.all().items():
            of_type = found.setdefault(resource.resource_type.name.lower(), {})
            of_type[resource.name] = _plain_configs(described, chosen)
        return found

    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str] | None = None
    ) -> dict[str, list[str]]:
        """Return the names of resources that have configurations, by type; of some types, or of all.

        Brokers before Kafka 4.1 list only client metrics.
        """
        given = [] if resource_types is None else expect.items(resource_types, "resource_types", "types")
        types = [ConfigResourceType.build_from(kind) for kind in given]
        found: dict[str, list[str]] = {}
        for resource in self._run("list_config_resources", None, lambda it: list_config_resources(it, types)):
            found.setdefault(resource.resource_type.name.lower(), []).append(resource.name)
        return found

    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Change configurations, and return ``{type: {name: "OK" or the error}}``.

        ``configs`` of a resource maps keys to values, or to pairs of an AlterConfigOp and a value. Other keys stay as
        they are. With ``raise_on_unknown``, a key that the resource does not have is an error before anything is
        changed. Brokers before Kafka 2.3, or ``incremental=False``, take all modified keys at once; then only SET is
        possible, and a change that somebody else makes at the same time may be lost.

        Raises:
            IllegalArgumentError: an argument is wrong, or a key is unknown.
            KafkaError: an error that no broker has reported for one resource, such as a timeout.
        """
        changed = {resource: changes_of(resource) for resource in resources(config_resources)}
        return self._alter("alter_configs", changed, validate_only, raise_on_unknown, incremental)

    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Reset configurations to their defaults, and return ``{type: {name: "OK" or the error}}``.

        ``configs`` of a resource names the keys, as a list or a dict; without any, all modified keys are reset.
        Needs brokers of Kafka 2.3 or newer.

        Raises:
            IllegalArgumentError: an argument is wrong, or a key is unknown.
            KafkaError: an error that no broker has reported for one resource, such as a timeout.
        """
        if incremental is False:
            raise IllegalArgumentError("resetting single keys needs incremental changes: leave out incremental=False")
        given = resources(config_resources)
        named = {resource: keys_of(resource) or [] for resource in given}
        bare = all_keys(resource for resource, keys in named.items() if not keys)
        modified = self._run("describe_configs", None, lambda it: describe_configs(it, bare, False)).all()
        changed = {}
        for resource, keys in named.items():
            if resource in modified:
                entries = config_entries(modified[resource]).values()
                keys[:] = [entry.name for entry in entries if entry.source.is_modified() and not entry.is_read_only]
            changed[resource] = [Change(key, AlterConfigOp.DELETE, None) for key in keys]
        return self._alter("reset_configs", changed, validate_only, raise_on_unknown, True)

    def _alter(
        self,
        name: str,
        changed: Mapping[ConfigResource, list[Change]],
        validate_only: bool,
        raise_on_unknown: bool,
        incremental: bool | None,
    ) -> dict[str, dict[str, str]]:
        is_trial = expect.flag(validate_only, "validate_only")
        refuses_unknown = expect.flag(raise_on_unknown, "raise_on_unknown")
        if incremental is not None:
            incremental = expect.flag(incremental, "incremental")

        def begin(context: CallContext) -> Operation[Results[ConfigResource, Any]]:
            if refuses_unknown:
                known = yield from describe_configs(context, all_keys(changed), False)
                for resource, described in known.all().items():
                    can_be_set = {config.name for config in described.configs if not config.read_only}
                    unknown = {change.key for change in changed[resource]} - can_be_set
                    if unknown:
                        raise IllegalArgumentError(f"{resource} has no dynamic configs {sorted(unknown)}")
            if incremental is False:
                return (yield from replace_configs(context, changed, is_trial))
            results = yield from alter_configs(context, changed, is_trial)
            if incremental is None and any(type(e) is UnsupportedVersionError for e in results.failed.values()):
                return (yield from replace_configs(context, changed, is_trial))
            return results

        results = self._run(name, None, begin)
        found: dict[str, dict[str, str]] = {}
        for resource in changed:
            error = results.failed.get(resource)
            if error is not None and not is_answer(error):
                raise error
            shown = "OK" if error is None else shown_error(error)
            found.setdefault(resource.resource_type.name.lower(), {})[resource.name] = shown
        return found


def _plain_configs(described: Described, chosen: ConfigFilterType) -> dict[str, dict[str, Any]]:
    found = {}
    for config in described.configs:
        source = ConfigSourceType.build_from(config.config_source)
        if (chosen is ConfigFilterType.DYNAMIC and config.read_only) or chosen.should_skip(source):
            continue
        values = plain(config)
        del values["is_default"]
        values["config_source"] = source.name
        values["config_type"] = ConfigType.build_from(config.config_type).name
        for synonym in values["synonyms"]:
            synonym["source"] = ConfigSourceType.build_from(synonym["source"]).name
        found[values.pop("name")] = values
    return found
