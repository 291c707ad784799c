"""Throttle times in responses: which of them require the client to wait (KIP-219), and their metric."""

from __future__ import annotations

from typing import Final

from pykclient.metrics import Sensor
from pykclient.metrics.stats import Tally
from pykclient.protocol.api_keys import ApiKeys

#: The interval at which throttle times of zero are recorded together.
_INTERVAL_MS: Final = 100

#: With earlier versions, brokers wait themselves before they respond. APIs that are not listed never require waiting.
_CLIENT_THROTTLES_FROM: Final[dict[int, int]] = {
    ApiKeys.PRODUCE: 6,
    ApiKeys.FETCH: 8,
    ApiKeys.LIST_OFFSETS: 3,
    ApiKeys.METADATA: 6,
    ApiKeys.OFFSET_COMMIT: 4,
    ApiKeys.OFFSET_FETCH: 4,
    ApiKeys.FIND_COORDINATOR: 2,
    ApiKeys.JOIN_GROUP: 3,
    ApiKeys.HEARTBEAT: 2,
    ApiKeys.LEAVE_GROUP: 2,
    ApiKeys.SYNC_GROUP: 2,
    ApiKeys.DESCRIBE_GROUPS: 2,
    ApiKeys.LIST_GROUPS: 2,
    ApiKeys.API_VERSIONS: 2,
    ApiKeys.CREATE_TOPICS: 3,
    ApiKeys.DELETE_TOPICS: 2,
    ApiKeys.DELETE_RECORDS: 1,
    ApiKeys.INIT_PRODUCER_ID: 1,
    ApiKeys.ADD_PARTITIONS_TO_TXN: 1,
    ApiKeys.ADD_OFFSETS_TO_TXN: 1,
    ApiKeys.END_TXN: 1,
    ApiKeys.TXN_OFFSET_COMMIT: 1,
    ApiKeys.DESCRIBE_ACLS: 1,
    ApiKeys.CREATE_ACLS: 1,
    ApiKeys.DELETE_ACLS: 1,
    ApiKeys.DESCRIBE_CONFIGS: 2,
    ApiKeys.ALTER_CONFIGS: 1,
    ApiKeys.ALTER_REPLICA_LOG_DIRS: 1,
    ApiKeys.DESCRIBE_LOG_DIRS: 1,
    ApiKeys.CREATE_PARTITIONS: 1,
    ApiKeys.CREATE_DELEGATION_TOKEN: 1,
    ApiKeys.RENEW_DELEGATION_TOKEN: 1,
    ApiKeys.EXPIRE_DELEGATION_TOKEN: 1,
    ApiKeys.DESCRIBE_DELEGATION_TOKEN: 1,
    ApiKeys.DELETE_GROUPS: 1,
    ApiKeys.ELECT_LEADERS: 0,
    ApiKeys.INCREMENTAL_ALTER_CONFIGS: 0,
    ApiKeys.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKeys.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKeys.OFFSET_DELETE: 0,
    ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKeys.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKeys.UNREGISTER_BROKER: 0,
    ApiKeys.DESCRIBE_TOPIC_PARTITIONS: 0,
}


def should_client_throttle(api_key: int, version: int) -> bool:
    """Return whether the client must wait for the throttle time of such a response."""
    first = _CLIENT_THROTTLES_FROM.get(api_key)
    return first is not None and version >= first


class ThrottleTimes:
    """Records the throttle times of responses in a sensor, those of zero together. Thread: owner."""

    __slots__ = ("_sensor", "due_ms", "zeros")

    def __init__(self, sensor: Sensor | None) -> None:
        self._sensor = sensor
        #: The number of times of zero that are not recorded yet. The owner adds to it, unless ``due_ms`` has passed.
        self.zeros = 0
        self.due_ms = 0

    def record(self, throttle_ms: int, now_ms: int) -> None:
        """Record a throttle time, and before it the collected zeros."""
        zeros, self.zeros = self.zeros, 0
        self.due_ms = now_ms + _INTERVAL_MS
        if self._sensor is None:
            return
        tally = Tally.of(0)
        tally.count = zeros
        self._sensor.record_all(tally, now_ms)
        self._sensor.record(throttle_ms, now_ms)
