"""Configurations of groups."""

from __future__ import annotations

from collections.abc import Mapping

from pykclient.admin import Admin, ConfigResource, ConfigResourceType
from pykclient.testing import EmbeddedCluster
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually


def set_group_configs(brokers: AnyKafka | EmbeddedCluster, group_id: str, configs: Mapping[str, str]) -> None:
    """Set configurations of a group, and wait until a broker knows them, which is a little after the answer."""
    resource = ConfigResource(ConfigResourceType.GROUP, group_id, configs)
    with Admin(bootstrap_servers=brokers.bootstrap_servers) as admin:
        admin.incremental_alter_configs([resource]).all()

        def is_known() -> bool:
            (described,) = admin.describe_configs([resource]).all().values()
            return all(described[name].value == value for name, value in configs.items())

        eventually(is_known, 30.0, "the configurations of the group")
