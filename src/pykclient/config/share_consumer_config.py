"""The share consumer's keys: those of a consumer, without what brokers decide for share groups.

Java: ShareConsumerConfig.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pykclient.config.config_def import ConfigDef
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.errors import ConfigError

_GROUP_CONFIG = "it is a setting of the group on the brokers"

#: The keys that share consumers do not have, and what to do instead.
_NOT_IN_SHARE_GROUPS = {
    "auto.offset.reset": f"{_GROUP_CONFIG} (share.auto.offset.reset)",
    "enable.auto.commit": "records are acknowledged one by one (share.acknowledgement.mode)",
    "group.instance.id": "share groups have no static members",
    "isolation.level": f"{_GROUP_CONFIG} (share.isolation.level)",
    "partition.assignment.strategy": "the brokers assign partitions",
    "interceptor.classes": "share consumers have no interceptors",
    "session.timeout.ms": f"{_GROUP_CONFIG} (share.session.timeout.ms)",
    "heartbeat.interval.ms": f"{_GROUP_CONFIG} (share.heartbeat.interval.ms)",
    "group.protocol": "share groups have a protocol of their own",
    "group.remote.assignor": "the brokers assign partitions",
}


class ShareConsumerConfig(ConsumerConfig):
    """A share consumer's configuration.

    Raises:
        ConfigError: a key is unknown, a value is wrong, or a share consumer cannot have the key.
    """

    __slots__ = ()

    DEFINITION: ClassVar[ConfigDef] = ConsumerConfig.DEFINITION

    def _post_process(self, values: dict[str, Any]) -> None:
        for name, instead in _NOT_IN_SHARE_GROUPS.items():
            if self.is_set(name):
                raise ConfigError(f"{name} cannot be set for a KafkaShareConsumer: {instead}", key=name)
        super()._post_process(values)

    def _check_group_protocol(self, values: dict[str, Any]) -> None:
        """Do nothing: the keys of the protocols were checked before."""
