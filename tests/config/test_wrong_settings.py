"""Every setting of every client refuses values of the wrong kind with a ConfigError that names it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from pykclient import KafkaAdminClient, KafkaConsumer, KafkaProducer, KafkaShareConsumer
from pykclient.aio import AIOKafkaAdminClient, AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaShareConsumer
from pykclient.config.admin_config import AdminClientConfig
from pykclient.config.consumer_config import ConsumerConfig, ShareConsumerConfig
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError, InvalidGroupIdError
from tests.support.odd_values import HOSTILE

pytestmark = pytest.mark.filterwarnings("ignore")

SERVERS = {"bootstrap_servers": "127.0.0.1:1"}
GROUP = {**SERVERS, "group_id": "g"}
ODD = [*HOSTILE, {"password": b"secret"}, [5, b"secret"], [b"secret"], b"secret"]
#: Names that only the clients for asyncio have.
AIOKAFKA = ("max_batch_size", "sasl_oauth_token_provider", "ssl_context", "api_version")
#: Whose errors begin with aiokafka's words, or use Kafka's name for aiokafka's.
IN_OTHER_WORDS = {
    "max_batch_size": "batch.size",
    "isolation_level": "isolation level",
    "ssl_check_hostname": "ssl_",
    "sasl_oauth_token_provider": "sasl",
}


def names_of(config: Any) -> list[str]:
    return [name.replace(".", "_") for name in config]


@pytest.mark.parametrize(
    ("make", "valid", "names"),
    [
        (ProducerConfig, SERVERS, ()),
        (ConsumerConfig, SERVERS, ()),
        (ShareConsumerConfig, GROUP, ()),
        (AdminClientConfig, SERVERS, ()),
        (AIOKafkaProducer, SERVERS, AIOKAFKA),
        (AIOKafkaConsumer, SERVERS, AIOKAFKA),
        (AIOKafkaShareConsumer, GROUP, ()),
        (AIOKafkaAdminClient, SERVERS, ()),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_odd_settings_are_refused(make: Callable[..., Any], valid: dict[str, Any], names: tuple[str, ...]) -> None:
    refused = 0
    made = make(**valid)
    for name in (*names_of(getattr(made, "config", made)), *names):
        for odd in ODD:
            try:
                make(**{**valid, name: odd})
            except (ConfigError, InvalidGroupIdError) as error:
                refused += 1
                text = str(error)
                assert name in text.replace(".", "_") or IN_OTHER_WORDS[name] in text, (name, text)
                assert len(text) < 1000
    assert refused > 5000


CLASSES = [
    *(("key_serializer", KafkaProducer), ("value_serializer", KafkaProducer), ("partitioner", KafkaProducer)),
    *(("metric_reporters", cls) for cls in (KafkaProducer, KafkaConsumer, KafkaShareConsumer, KafkaAdminClient)),
    *(("key_deserializer", cls) for cls in (KafkaConsumer, KafkaShareConsumer)),
    *(("value_deserializer", cls) for cls in (KafkaConsumer, KafkaShareConsumer)),
    *(("ssl_enabled_protocols", cls) for cls in (KafkaProducer, KafkaConsumer, KafkaShareConsumer)),
]


@pytest.mark.parametrize(("name", "cls"), CLASSES, ids=lambda value: getattr(value, "__name__", value))
def test_client_with_odd_setting_is_refused_or_closes(name: str, cls: Any) -> None:
    """What is not found wrong in the configuration is when the client is created, which then closes its parts."""
    valid = GROUP if cls is KafkaShareConsumer else SERVERS
    refused = 0
    for odd in (*ODD, [object()], [len], [Exception]):
        try:
            client = cls(**{**valid, name: odd})
        except ConfigError as error:
            refused += name in str(error).replace(".", "_")
        else:
            client.close(**({"timeout": 0} if "timeout" in inspect.signature(cls.close).parameters else {}))
    assert refused > 30


def test_none_is_refused_as_number() -> None:
    for name in ("check_crcs", "socket_connection_setup_timeout_ms", "heartbeat_interval_ms"):
        with pytest.raises(ConfigError, match=r"= None: it must be"):
            ConsumerConfig(**SERVERS, **{name: None})
    assert ConsumerConfig(**SERVERS, group_id=None)["group.id"] is None


def test_huge_numbers_are_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"acks = an int of 16610 bits"):
        ProducerConfig(SERVERS, acks=10**5000)
    with pytest.raises(ConfigError, match=r"Invalid ACKS parameter: .* not an int of 16610 bits"):
        AIOKafkaProducer(SERVERS, acks=10**5000)
