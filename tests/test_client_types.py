"""Type checkers know the clients' settings and the types of keys and values."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.admin_config import AdminClientConfig
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.producer_config import ProducerConfig

ROOT = Path(__file__).parents[1]

#: A program whose comments say what mypy must report for the line.
PROGRAM = """
from __future__ import annotations
import json
from typing import Any, NamedTuple
import pykclient
from pykclient import KafkaAdminClient, KafkaConsumer, KafkaProducer, KafkaShareConsumer
from pykclient.admin import Admin
from pykclient.schema_registry import AsyncSchemaRegistryClient, SchemaRegistryClient, SerializationContext
from pykclient.schema_registry.avro import AsyncAvroDeserializer, AvroDeserializer
from pykclient.schema_registry.json_schema import JSONDeserializer
from pykclient.schema_registry.protobuf import ProtobufDeserializer
from pykclient.aio import AIOKafkaAdminClient, AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaShareConsumer
from pykclient.serialization import JsonSerializer, LongDeserializer, StringDeserializer, StringSerializer

def dumps(data: dict[str, int]) -> bytes: return json.dumps(data).encode()
def loads(data: bytes) -> dict[str, int]: return dict(json.loads(data))
settings: dict[str, Any] = {}

# the types of keys and values
reveal_type(KafkaProducer())  # KafkaProducer[bytes, bytes]
reveal_type(KafkaProducer(bootstrap_servers=["a:9092"], linger_ms=2.5, acks="all", retries=float("inf")))  # KafkaProducer[bytes, bytes]
reveal_type(KafkaProducer(key_serializer=StringSerializer))  # KafkaProducer[str, bytes]
reveal_type(KafkaProducer(key_serializer=StringSerializer(), value_serializer=dumps))  # KafkaProducer[str, dict[str, int]]
reveal_type(KafkaProducer(value_serializer=str.encode))  # KafkaProducer[bytes, str]
reveal_type(KafkaProducer(value_serializer=JsonSerializer))  # KafkaProducer[bytes, Any]
reveal_type(KafkaProducer(value_serializer="my.Serializer"))  # KafkaProducer[Any, Any]
reveal_type(KafkaProducer({"linger.ms": 5}))  # KafkaProducer[Any, Any]
reveal_type(KafkaProducer(**settings))  # KafkaProducer[Any, Any]
reveal_type(KafkaConsumer("t", group_id="g"))  # KafkaConsumer[bytes, bytes]
reveal_type(KafkaConsumer("t", value_deserializer=loads))  # KafkaConsumer[bytes, dict[str, int]]
reveal_type(KafkaConsumer(key_deserializer=LongDeserializer, value_deserializer=StringDeserializer()))  # KafkaConsumer[int, str]
reveal_type(KafkaConsumer(value_deserializer=bytes.decode))  # KafkaConsumer[bytes, str]
reveal_type(KafkaConsumer({"group.id": "g"}, "t"))  # KafkaConsumer[Any, Any]
reveal_type(next(KafkaConsumer("t")).key)  # bytes | None
reveal_type(next(KafkaConsumer("t", value_deserializer=loads)).value)  # dict[str, int] | None
reveal_type(next(KafkaConsumer("t")).headers)  # typing.Sequence[tuple[str, bytes | None]]
one: KafkaProducer[str, str] = KafkaProducer({"linger.ms": 5})
two = KafkaConsumer[str, str]("t", value_deserializer="my.Deserializer")
three: KafkaConsumer = KafkaConsumer("t", value_deserializer=loads)
KafkaProducer(selector=None, api_version=(2, 5), ssl_check_hostname=True, security_protocol="PLAINTEXT", partitioner="murmur2")
KafkaConsumer("t", consumer_timeout_ms=float("inf"), max_poll_records=5, isolation_level="read_committed")
KafkaAdminClient(bootstrap_servers=["a:9092"], client_id="c", api_version=(2, 5), request_timeout_ms=1.5)
Admin({"bootstrap.controllers": "a:9093"}, retries=5)
Admin(bootstrap_controllers="a:9093")
AIOKafkaAdminClient(loop=None, bootstrap_servers="a:9092", security_protocol="SSL", ssl_cafile="ca.pem")
AIOKafkaAdminClient(**settings)

# models of a schema registry
class Order(NamedTuple): number: int
def made(value: Any, ctx: SerializationContext) -> Order: return Order(value["number"])
registry = SchemaRegistryClient({"url": "http://localhost:8081"})
reveal_type(KafkaConsumer("t", value_deserializer=AvroDeserializer(registry, Order)))  # KafkaConsumer[bytes, Order]
reveal_type(KafkaConsumer("t", value_deserializer=AvroDeserializer(registry)))  # KafkaConsumer[Any, Any]
reveal_type(KafkaConsumer("t", value_deserializer=AvroDeserializer(registry, "{}", made)))  # KafkaConsumer[bytes, Order]
reveal_type(KafkaConsumer("t", key_deserializer=JSONDeserializer(Order, schema_registry_client=registry)))  # KafkaConsumer[Order, bytes]
reveal_type(KafkaConsumer("t", value_deserializer=ProtobufDeserializer(Order, None, registry)))  # KafkaConsumer[bytes, Order]
reveal_type(KafkaShareConsumer("t", value_deserializer=AvroDeserializer(registry, Order)))  # KafkaShareConsumer[bytes, Order]
reveal_type(AvroDeserializer(registry, Order)(b""))  # Order
orders: KafkaConsumer[bytes, Order] = KafkaConsumer("t", value_deserializer=AvroDeserializer(registry, Order))
str.upper(next(orders).value)  # Argument 1 to "upper" of "str" has incompatible type "Order \\| None"; expected "str"
later = AsyncSchemaRegistryClient({"url": "http://localhost:8081"})
reveal_type(AIOKafkaConsumer("t", value_deserializer=AsyncAvroDeserializer(later, Order)))  # AIOKafkaConsumer[bytes, Order]
reveal_type(AIOKafkaConsumer("t", value_deserializer=AsyncAvroDeserializer(later, Order), key_deserializer=AsyncAvroDeserializer(later, Order)))  # AIOKafkaConsumer[Order, Order]
reveal_type(AIOKafkaConsumer("t", value_deserializer=AvroDeserializer(registry, Order), key_deserializer=bytes.decode))  # AIOKafkaConsumer[str, Order]

# asyncio
async def dumps_later(data: dict[str, int]) -> bytes: return dumps(data)
reveal_type(AIOKafkaProducer())  # AIOKafkaProducer[bytes, bytes]
reveal_type(AIOKafkaProducer(key_serializer=StringSerializer, max_batch_size=5, acks=1))  # AIOKafkaProducer[str, bytes]
reveal_type(AIOKafkaProducer(value_serializer=dumps))  # AIOKafkaProducer[bytes, dict[str, int]]
reveal_type(AIOKafkaProducer(value_serializer=dumps_later))  # AIOKafkaProducer[bytes, dict[str, int]]
reveal_type(AIOKafkaProducer({"linger.ms": 5}))  # AIOKafkaProducer[Any, Any]
reveal_type(AIOKafkaProducer(**settings))  # AIOKafkaProducer[Any, Any]
reveal_type(AIOKafkaConsumer("t", group_id="g", max_poll_records=None))  # AIOKafkaConsumer[bytes, bytes]
reveal_type(AIOKafkaConsumer(value_deserializer=loads))  # AIOKafkaConsumer[bytes, dict[str, int]]
reveal_type(AIOKafkaConsumer({"group.id": "g"}, "t"))  # AIOKafkaConsumer[Any, Any]
reveal_type(AIOKafkaShareConsumer("t", group_id="g", key_deserializer=bytes.decode))  # AIOKafkaShareConsumer[str, bytes]
async def programs() -> None:
    reveal_type(await AIOKafkaProducer().send_and_wait("t", b"v"))  # tuple[str, int, tuple[str, int, fallback=TopicPartition], int, int, int, int, fallback=RecordMetadata]
    async for record in AIOKafkaConsumer("t", value_deserializer=loads):
        reveal_type(record.value)  # dict[str, int] | None
    reveal_type((await AIOKafkaShareConsumer("t", group_id="g").getone()).key)  # bytes | None
typed: AIOKafkaConsumer[str, str] = AIOKafkaConsumer({"group.id": "g"}, "t")

# mistakes
KafkaProducer(linger_m=5)  # Unexpected keyword argument "linger_m" .*; did you mean "linger_ms"\\?
KafkaConsumer("t", group_i="g")  # Unexpected keyword argument "group_i" .*; did you mean "group_id"\\?
KafkaProducer(linger_ms="5")  # No overload variant of "KafkaProducer" matches argument type "str"
KafkaProducer("host:9092")  # No overload variant of "KafkaProducer" matches argument type "str"
KafkaConsumer(5)  # No overload variant of "KafkaConsumer" matches argument type "int"
KafkaShareConsumer("t", group_i="g")  # Unexpected keyword argument "group_i" .*; did you mean "group_id"\\?
KafkaAdminClient(bootstrap_server="x")  # Unexpected keyword argument "bootstrap_server" .*; did you mean "bootstrap_servers"\\?
Admin(bootstrap_server="x")  # Unexpected keyword argument "bootstrap_server" .*; did you mean "bootstrap_servers"\\?
AIOKafkaAdminClient(bootstrap_server="x")  # Unexpected keyword argument "bootstrap_server" .*; did you mean "bootstrap_servers"\\?
KafkaAdminClient(request_timeout_ms="5")  # Argument "request_timeout_ms" to "KafkaAdminClient" has incompatible type "str"; expected "float"
Admin(group_id="g")  # Unexpected keyword argument "group_id" for "Admin"
KafkaProducer().send("t", "text")  # Argument 2 to "send" of "SendState" has incompatible type "str"; expected "bytes \\| None"
KafkaProducer(value_serializer=dumps).send("t", [1])  # Argument 2 to "send" .* expected "dict\\[str, int\\] \\| None"
AIOKafkaProducer(linger_m=5)  # Unexpected keyword argument "linger_m" .*; did you mean "linger_ms"\\?
AIOKafkaProducer(linger_ms="5")  # No overload variant of "AIOKafkaProducer" matches argument type "str"
AIOKafkaConsumer("t", group_i="g")  # Unexpected keyword argument "group_i" .*; did you mean "group_id"\\?
AIOKafkaConsumer("t", fetch_max_wait_ms="1")  # No overload variant of "AIOKafkaConsumer" matches argument types
AIOKafkaConsumer(5)  # No overload variant of "AIOKafkaConsumer" matches argument type "int"
AIOKafkaShareConsumer("t", group_i="g")  # Unexpected keyword argument "group_i" .*; did you mean "group_id"\\?
async def mistakes() -> None:
    await AIOKafkaProducer().send("t", "text")  # Argument 2 to "send" of "AIOKafkaProducer" has incompatible type "str"; expected "bytes \\| None"
    await AIOKafkaProducer(value_serializer=dumps_later).send_and_wait("t", [1])  # Argument 2 to "send_and_wait" .* expected "dict\\[str, int\\] \\| None"
pykclient.KafkaProducr  # has no attribute "KafkaProducr"; maybe "KafkaProducer"\\?
"""  # noqa: E501

#: A name of each package, imported with all: type checkers ignore an ``__all__`` that is computed, and so all names.
STARS = {
    "pykclient": "KafkaProducer",
    "pykclient.admin": "NewTopic",
    "pykclient.confluent": "SerializingProducer",
    "pykclient.confluent.serialization": "IntegerSerializer",
    "pykclient.schema_registry": "avro_encoder",
}

#: Lines before a block of docs/asyncio.md, which takes a name of the reader's program for granted.
BEFORE_BLOCKS = {10: "BOOTSTRAP_SERVERS = 'localhost:9092'\n"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_mypy_infers_types_of_keys_and_values(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    page = (ROOT / "docs" / "asyncio.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 11
    for place, block in enumerate(blocks):  # their errors name other files than the program's, which fails the test
        (tmp_path / f"block_{place}.py").write_text(BEFORE_BLOCKS.get(place, "") + block)
    for place, (package, name) in enumerate(STARS.items()):
        (tmp_path / f"star_{place}.py").write_text(f"from {package} import *\nprint({name})\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=pyproject.toml", "--no-error-summary"]
    command += ["--hide-error-codes", "--no-pretty", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    said: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        match = re.fullmatch(r".*program\.py:(\d+): (error|note): (.*)", line)
        assert match, done.stdout + done.stderr
        number, kind, text = match.groups()
        if kind == "error" or text.startswith("Revealed type"):
            said.setdefault(int(number), []).append(text)
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        code, _, expected = line.partition("  # ")
        texts = [text.replace("pykclient.consumer.kafka_consumer.", "") for text in said.pop(number, [])]
        texts = [re.sub(r"pykclient\.(aio\.\w+|types|consumer\.share\.\w+)\.", "", text) for text in texts]
        texts = [re.sub(r"tuple\[int, fallback=(program\.)?Order\]", "Order", text) for text in texts]
        texts = [text.replace("pykclient.producer.kafka_producer.", "").replace("builtins.", "") for text in texts]
        if not expected:
            assert not texts, (code, texts)
        elif code.lstrip().startswith("reveal_type"):
            assert texts == [f'Revealed type is "{expected}"'], code
        else:
            assert any(re.search(expected, text) for text in texts), (code, texts)
    assert not said


def test_settings_are_up_to_date() -> None:
    command = [sys.executable, "tools/client_settings.py", "src/pykclient/config/client_settings.py"]
    done = subprocess.run([*command, "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr


@pytest.mark.parametrize(
    ("settings", "config"),
    [("ProducerSettings", ProducerConfig), ("ConsumerSettings", ConsumerConfig), ("AdminSettings", AdminClientConfig)],
)
def test_every_key_is_typed_or_unsupported(settings: str, config: type[AbstractConfig]) -> None:
    from pykclient.config import client_settings

    typed = getattr(client_settings, settings).__annotations__.keys()
    parameters = {"key_serializer", "value_serializer", "key_deserializer", "value_deserializer"}
    definition = config.DEFINITION
    for key in definition.keys.values():
        assert key.keyword in typed or key.keyword in parameters or key.unsupported
    assert {name.replace(".", "_") for name in definition.foreign} <= typed
    assert typed <= {name.replace(".", "_") for name in {*definition.keys, *definition.foreign, *definition.aliases}}


def test_help_shows_parameters_of_methods() -> None:
    assert str(inspect.signature(KafkaProducer.send)) == (
        "(self, topic: 'str | ProducerRecord[K, V]', value: 'V | None' = None, key: 'K | None' = None, "
        "headers: 'Headers | None' = None, partition: 'int | None' = None, timestamp_ms: 'int | None' = None, "
        "on_delivery: 'OnDelivery | None' = None) -> 'FutureRecordMetadata'"
    )
    for client in (KafkaProducer, KafkaConsumer):
        for name, method in inspect.getmembers(client, inspect.isroutine):
            if not name.startswith("_"):
                assert inspect.signature(method), name
                assert inspect.getdoc(method), name
