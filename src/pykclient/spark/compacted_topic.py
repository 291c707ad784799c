"""A compacted topic of one partition: the ledger of the exactly-once sink, and the tokens of its tasks."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pykclient.admin.admin import Admin
from pykclient.admin.descriptions import TopicDescription
from pykclient.admin.values import ConfigResource, OffsetSpec
from pykclient.clock import SYSTEM_CLOCK
from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.consumer_record import ConsumerRecord
from pykclient.errors import (
    AuthorizationError,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from pykclient.types import TopicPartition

_logger = logging.getLogger(__name__)

_POLICY, _COMPACT = "cleanup.policy", "compact"

#: The largest record, in bytes.
MOST_BYTES = 8 << 20

#: The configuration of a topic, if the driver has to create it. Small segments keep compaction going.
_CONFIG = {_POLICY: _COMPACT, "segment.bytes": str(16 << 20), "max.message.bytes": str(MOST_BYTES)}

#: The longest that a fetch waits for records, which are there already.
_FETCH_WAIT_MS = 10

#: The longest that a poll waits for a response.
_POLL_MS = 100

#: The bound of one wait for the topic, longer than drivers may keep a transaction open in the ledger.
WAIT_MS = 60_000

#: The wait between two fetches behind an open transaction, at first and at most.
_BACKOFF_MS, _MOST_BACKOFF_MS = 10, 500


def connection_settings(config: Mapping[str, Any], *tables: type[AbstractConfig]) -> dict[str, Any]:
    """Return the settings that all of these kinds of clients have: addresses, security, timeouts."""
    return {key: value for key, value in config.items() if all(key in table.DEFINITION.keys for table in tables)}


def reading_settings(config: Mapping[str, Any], isolation: str) -> dict[str, Any]:
    """Return the configuration of a consumer that reads a range of offsets."""
    return {
        **connection_settings(config, ConsumerConfig),
        "isolation.level": isolation,
        "allow.auto.create.topics": False,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        # Other requests wait for a fetch in flight, such as the one that follows the last record.
        "fetch.max.wait.ms": _FETCH_WAIT_MS,
    }


class CompactedTopic:
    """A compacted topic of one partition, and its consumer, which is created on first use.

    ``what`` names it in errors, ``held_by`` says whose transactions may be open in it, and for how long. ``admin``
    returns a client. Clients are closed by ``clients``. Thread: owner.
    """

    def __init__(
        self,
        name: str,
        what: str,
        held_by: str,
        config: Mapping[str, Any],
        isolation: str,
        admin: Callable[[], Admin],
        clients: contextlib.ExitStack,
    ) -> None:
        self.place = TopicPartition(name, 0)
        self._what = f"the {what} {name}"
        self._held_by = held_by
        self._settings = reading_settings(config, isolation)
        self._admin = admin
        self._clients = clients
        self._consumer: KafkaConsumer[Any, Any] | None = None
        self._is_checked = False

    # --- reading ---------------------------------------------------------------------------------------------------

    def end(self, read_up_to: int | None = None) -> int:
        """Return the high watermark. Raises KafkaError if the topic is gone, or ends before ``read_up_to``."""
        try:
            end: int = self._admin().list_offsets({self.place: OffsetSpec.LATEST}).all()[self.place].offset
        except UnknownTopicOrPartitionError as error:
            raise KafkaError(f"{self._what} does not exist any more: it was deleted") from error
        if read_up_to is not None and end < read_up_to:
            raise KafkaError(
                f"{self._what} ends at offset {end} and was read up to {read_up_to}: it was deleted, or has lost "
                "records"
            )
        return end

    def stable_range(self) -> tuple[int, int]:
        """Return the first offset, and the last stable one if the consumer reads committed records."""
        consumer = self._reader()
        return consumer.beginning_offsets([self.place])[self.place], consumer.end_offsets([self.place])[self.place]

    def read(self, start: int, stop: int) -> Iterator[ConsumerRecord[bytes | None, bytes | None]]:
        """Yield the records from ``start`` to ``stop``. Waits for open transactions if committed records are read.

        Raises:
            KafkaTimeoutError: They could not be read within a minute. Names the transactions that are open.
        """
        if start >= stop:
            return
        consumer, place = self._reader(), self.place
        deadline_ms, backoff_ms = SYSTEM_CLOCK.now_ms() + WAIT_MS, _BACKOFF_MS
        consumer.seek(place, start)
        while (position := consumer.position(place)) < stop:
            for records in consumer.poll(_POLL_MS).values():
                for record in records:
                    if record.offset < stop:
                        yield record
            if consumer.position(place) > position:
                backoff_ms = _BACKOFF_MS
                continue
            if SYSTEM_CLOCK.now_ms() > deadline_ms:
                raise KafkaTimeoutError(
                    f"{self._what} could not be read up to offset {stop} within {WAIT_MS // 1_000} s; it got to "
                    f"{position}{self.holding(position)}"
                )
            SYSTEM_CLOCK.sleep_ms(backoff_ms)
            backoff_ms = min(2 * backoff_ms, _MOST_BACKOFF_MS)

    def _reader(self) -> KafkaConsumer[Any, Any]:
        if self._consumer is None:
            self._consumer = self._clients.enter_context(KafkaConsumer[Any, Any](self._settings))
            self._consumer.assign([self.place])
        return self._consumer

    def holding(self, position: int) -> str:
        """Return the part of an error that names transactions that are open at ``position``."""
        found = self._admin().describe_producers([self.place]).succeeded.get(self.place)
        open_ones = [
            f"of producer id {each.producer_id} from offset {each.current_transaction_start_offset}"
            for each in (found.active_producers if found else ())
            if 0 <= each.current_transaction_start_offset <= position
        ]
        if not open_ones:
            return ""
        return (
            f", where transactions are open: {', '.join(open_ones)}. They are those of {self._held_by}; `pykclient "
            "transactions hanging` tells whether brokers have forgotten them. A ledgerTopic of its own for each query "
            "avoids such waits"
        )

    # --- the topic -------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether the topic exists. Raises KafkaError if brokers do not answer.

        Once it is known to exist, a broker that does not know it yet must not make it seem empty.
        """
        return self._is_checked or self._described() is not None

    def _described(self) -> TopicDescription | None:
        """Return the topic; None if the broker does not know it. Raises KafkaError if it does not answer."""
        described = self._admin().describe_topics([self.place.topic])
        if isinstance(described.failed.get(self.place.topic), UnknownTopicOrPartitionError):
            return None
        return described.all()[self.place.topic]

    def check_or_create(self) -> None:
        """Create the topic, or check that one that exists keeps its records. Raises ConfigError if it does not."""
        if self._is_checked:
            return
        described = self._described()
        if described is None and self._create():
            self._awaited()  # a broker that has not heard of it would refuse the next request
        else:
            self._check(described or self._awaited())
        self._is_checked = True

    def _awaited(self) -> TopicDescription:
        """Return the topic, which exists, as soon as brokers know it."""
        deadline_ms = SYSTEM_CLOCK.now_ms() + WAIT_MS
        while (described := self._described()) is None:
            if SYSTEM_CLOCK.now_ms() > deadline_ms:
                raise KafkaTimeoutError(
                    f"{self._what} exists, but brokers have not heard of it within {WAIT_MS // 1_000} s"
                )
            SYSTEM_CLOCK.sleep_ms(_MOST_BACKOFF_MS)
        return described

    def _check(self, described: TopicDescription) -> None:
        if len(described.partitions) != 1:
            raise self._unfit(f"has {len(described.partitions)} partitions")
        configs = self._admin().describe_configs([ConfigResource("topic", self.place.topic)])
        for error in configs.failed.values():
            if not isinstance(error, AuthorizationError):
                raise error
            _logger.warning("The configuration of %s may not be read. Its cleanup.policy must be compact", self._what)
        for found in configs.succeeded.values():
            if (policy := found[_POLICY].value) != _COMPACT:
                raise self._unfit(f"has cleanup.policy={policy}")

    def _unfit(self, why: str) -> ConfigError:
        return ConfigError(
            f"{self._what} {why}, and needs one partition and cleanup.policy=compact: a query whose records in it were "
            "deleted writes rows twice. Change the topic, or name another one in the option ledgerTopic",
            key="ledgerTopic",
        )

    def _create(self) -> bool:
        """Create the topic. Return False if there is one."""
        created = self._admin().create_topics(
            {self.place.topic: {"num_partitions": 1, "replication_factor": -1, "configs": _CONFIG}}
        )
        for error in created.failed.values():
            if not isinstance(error, TopicExistsError):
                raise KafkaError(
                    f"{self._what} could not be created: {error}. Create it with one partition and "
                    "cleanup.policy=compact, or name another one in the option ledgerTopic"
                ) from error
        return not created.failed
