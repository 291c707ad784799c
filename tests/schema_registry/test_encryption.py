"""Fields and records are encrypted by the keys of a DEK registry, interoperably, and no secret reaches a message."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pykclient import KafkaProducer
from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer
from pykclient.errors import IllegalArgumentError, RecordDeserializationError, SerializationError
from pykclient.schema_registry import (
    AsyncSchemaRegistryClient,
    MessageField,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    SerializationContext,
)
from pykclient.schema_registry.avro import AsyncAvroDeserializer, AsyncAvroSerializer, AvroDeserializer, AvroSerializer
from pykclient.schema_registry.dek_registry import Dek, DekAlgorithm, DekRegistryClient
from pykclient.schema_registry.encryption import EncryptionExecutor, FieldEncryptionExecutor, decrypt, encrypt
from pykclient.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from pykclient.schema_registry.kms import LocalKmsDriver, get_kms_driver, register_kms_driver, reset_kms_drivers
from pykclient.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from pykclient.schema_registry.rules import RuleContext, RuleNotExecutedError, RuleRegistry
from pykclient.schema_registry.schemas import Metadata, MetadataTags, Rule, RuleKind, RuleMode, RuleParams, RuleSet
from pykclient.testing import EmbeddedCluster
from pykclient.testing.schema_registry import EmbeddedSchemaRegistry
from tests.schema_registry.test_rules import TAGGED

pytest.importorskip("cryptography", reason="the extra encryption")

VALUE = SerializationContext("orders", MessageField.VALUE)
LATEST = {"use.latest.version": True}
SECRET = {"secret": "a secret of the test"}
PARAMS = {"encrypt.kek.name": "orders", "encrypt.kms.type": "local-kms", "encrypt.kms.key.id": "mine"}
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "city", "type": ["null", "string"], "confluent:tags": ["PII"]},
    {"name": "photo", "type": "bytes", "confluent:tags": ["PII"]},
]
AVRO = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
ORDER = {"id": 7, "city": "Ulmenstadt", "photo": b"\x00\x01pixels"}
JSON_TEXT = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "city": {"type": "string", "confluent:tags": ["PII"]}},
    }
)
#: Made by Tink and confluent-kafka: a key encrypted by SECRET, and "Größe" encrypted by that key.
KNOWN = {
    "AES128_GCM": (
        "JJDaejDeakxCEVcZ1E1TT4s8eWcT+j8cO40ntTOdZOrSFfGlO3uqQ5dxp6oVzg==",
        "Od1BzHwsKZZS0TZbmlNyD++Pg7e0Ymzq3VF2ggCc/pf9/EY=",
    ),
    "AES256_GCM": (
        "/QHOtBZhifyeC1FL70thXRcHW3ciUvDzuMlYFCYUBxwiBHZFxnhECdOvIQUZEehXYsvF5aCyfKjA6uoKuhQ=",
        "3ZiwV9ebEqq461lBK9k2wzz5BZafZyLN+r3/WTAYnIThQPY=",
    ),
    "AES256_SIV": (
        "bSLQE4sRSxZ/uwCwmztadFSOWZfybSuagAey2kEJAUf3CMtLQytqjWLbxmyOJQWjBL9mH7NnZclHsYDvsIKGtVxwTJZl74NM8hjSEdbnUA2"
        "Bm4AdxJJpcxz+0sT42A==",
        "6TosyRmNY2W0IqW6cEyxJ6bic3wuY8Q=",
    ),
}


def rule(**given: Any) -> Rule:
    params = RuleParams({**PARAMS, **given.pop("params", {})})
    common = {"name": "secret", "kind": RuleKind.TRANSFORM, "mode": RuleMode.WRITEREAD, "type": "ENCRYPT"}
    return Rule(**{**common, "tags": ["PII"], "params": params, **given})


def registered(client: SchemaRegistryClient, text: str = AVRO, kind: str = "AVRO", **given: Any) -> None:
    client.register_schema("orders-value", Schema(text, kind, rule_set=RuleSet(domain_rules=[rule(**given)])))


def payload_rule(client: SchemaRegistryClient, text: str = AVRO, kind: str = "AVRO", **given: Any) -> None:
    held = RuleSet(encoding_rules=[rule(**{"type": "ENCRYPT_PAYLOAD", "tags": None, **given})])
    client.register_schema("orders-value", Schema(text, kind, rule_set=held))


def written(client: SchemaRegistryClient, value: Any = ORDER, **more: Any) -> bytes:
    data = AvroSerializer(client, conf=LATEST, rule_conf=SECRET, **more)(value, VALUE)
    assert data is not None
    return data


def protobuf_text() -> str:
    own = ProtobufSerializer(TAGGED, SchemaRegistryClient({"url": "http://x"}))._own_schema(None)
    assert own is not None
    return str(own.schema_str)


FORMS: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    "AVRO": (
        AVRO,
        lambda client: AvroSerializer(client, conf=LATEST, rule_conf=SECRET),
        lambda client: AvroDeserializer(client, rule_conf=SECRET),
        ORDER,
    ),
    "JSON": (
        JSON_TEXT,
        lambda client: JSONSerializer(None, client, conf=LATEST, rule_conf=SECRET),
        lambda client: JSONDeserializer(None, schema_registry_client=client, rule_conf=SECRET),
        {"id": 7, "city": "Ulmenstadt"},
    ),
    "PROTOBUF": (
        protobuf_text(),
        lambda client: ProtobufSerializer(TAGGED, client, LATEST, SECRET),
        lambda client: ProtobufDeserializer(TAGGED, None, client, SECRET),
        TAGGED(id=7, city="Ulmenstadt"),
    ),
}


@pytest.mark.parametrize("algorithm", list(DekAlgorithm))
@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("register", [registered, payload_rule])
def test_record_is_encrypted_and_read_back(
    client: SchemaRegistryClient, registry: EmbeddedSchemaRegistry, form: str, algorithm: str, register: Any
) -> None:
    text, writer, reader, value = FORMS[form]
    register(client, text, form, params={"encrypt.dek.algorithm": algorithm})
    data = writer(client)(value, VALUE)
    assert b"Ulmenstadt" not in data
    assert b"pixels" not in data
    with SchemaRegistryClient({"url": registry.url}) as other:
        assert reader(other)(data, VALUE) == value
    again = writer(client)(value, VALUE)
    assert (again == data) == (algorithm == "AES256_SIV")


def test_given_value_is_not_changed(client: SchemaRegistryClient) -> None:
    registered(client)
    value = dict(ORDER)
    written(client, value)
    assert value == ORDER


@pytest.mark.parametrize("value", [None, "", "Ö"])
def test_null_and_empty_values_are_decrypted(client: SchemaRegistryClient, value: str | None) -> None:
    registered(client)
    order = {"id": 1, "city": value, "photo": b""}
    assert AvroDeserializer(client, rule_conf=SECRET)(written(client, order), VALUE) == order


@pytest.mark.parametrize("algorithm", list(KNOWN))
def test_keys_and_texts_of_tink_are_decrypted(algorithm: str) -> None:
    sealed, text = (base64.b64decode(one) for one in KNOWN[algorithm])
    key = LocalKmsDriver().new_kms_client(SECRET, "local-kms://mine").get_aead("local-kms://mine").decrypt(sealed, b"")
    kind = DekAlgorithm(algorithm)
    assert decrypt(kind, key, text).decode() == "Größe"
    if kind == DekAlgorithm.AES256_SIV:
        assert encrypt(kind, key, "Größe".encode()) == text
    with pytest.raises(SerializationError, match="not one of the rule's algorithm"):
        decrypt(DekAlgorithm.AES128_GCM if kind != DekAlgorithm.AES128_GCM else DekAlgorithm.AES256_GCM, key, text)


def test_fields_of_referenced_schemas_are_encrypted(client: SchemaRegistryClient) -> None:
    client.register_schema("address", Schema(AVRO.replace("Order", "shop.Address")))
    text = json.dumps(
        {"type": "record", "name": "Parcel", "namespace": "shop", "fields": [{"name": "to", "type": "Address"}]}
    )
    reference = SchemaReference("shop.Address", "address", 1)
    client.register_schema(
        "orders-value", Schema(text, references=[reference], rule_set=RuleSet(domain_rules=[rule()]))
    )
    data = written(client, {"to": ORDER})
    assert b"Ulmenstadt" not in data
    assert AvroDeserializer(client, rule_conf=SECRET)(data, VALUE) == {"to": ORDER}


def test_fields_tagged_in_the_metadata_are_encrypted(client: SchemaRegistryClient) -> None:
    plain = AVRO.replace(', "confluent:tags": ["PII"]', "")
    metadata = Metadata(MetadataTags({"Order.c*": ["PII"]}))
    held = Schema(plain, metadata=metadata, rule_set=RuleSet(domain_rules=[rule()]))
    client.register_schema("orders-value", held)
    data = written(client)
    assert b"Ulmenstadt" not in data
    assert b"pixels" in data


def test_second_rule_for_the_same_tags_encrypts_nothing_again(client: SchemaRegistryClient) -> None:
    rules = [rule(), rule(name="older")]
    client.register_schema("orders-value", Schema(AVRO, rule_set=RuleSet(domain_rules=rules)))
    once = len(base64.b64encode(bytes(12 + len("Ulmenstadt") + 16)))
    data = written(client)
    assert len(data) == 5 + 1 + 1 + 1 + once + 1 + 12 + len(ORDER["photo"]) + 16  # type: ignore[arg-type]
    assert AvroDeserializer(client, rule_conf=SECRET)(data, VALUE) == ORDER


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"encrypt.kek.name": ""}, "the rule has no encrypt.kek.name"),
        ({"encrypt.dek.algorithm": "ROT13"}, "encrypt.dek.algorithm = ROT13: it must be one of AES128_GCM"),
        ({"encrypt.dek.expiry.days": "-1"}, "encrypt.dek.expiry.days = -1: it must be a number of days"),
        ({"encrypt.kms.type": ""}, "does not know the key encryption key 'orders', and the rule lacks"),
        ({"encrypt.kms.type": "moon-kms"}, r"no driver for keys of type 'moon-kms' \(known: local-kms, aws-kms"),
    ],
)
@pytest.mark.parametrize("on_failure", ["ERROR", "NONE", "NONE,NONE"])
def test_nothing_is_sent_in_plain_text(
    client: SchemaRegistryClient, given: dict[str, str], text: str, on_failure: str
) -> None:
    registered(client, params=given, on_failure=on_failure)
    with pytest.raises(RuleNotExecutedError, match=f"the rule 'secret' of 'orders-value' failed: .*{text}"):
        written(client)


def test_value_of_a_type_that_cannot_be_encrypted_raises(client: SchemaRegistryClient) -> None:
    registered(client, AVRO.replace('"type": "long"', '"type": "long", "confluent:tags": ["PII"]'))
    with pytest.raises(
        SerializationError, match=r"the field 'Order.id' is of type LONG \(int\), and cannot be encrypted"
    ):
        written(client)


def test_kek_that_differs_from_the_rules_raises(client: SchemaRegistryClient, registry: EmbeddedSchemaRegistry) -> None:
    with DekRegistryClient({"url": registry.url}) as deks:
        deks.register_kek("orders", "local-kms", "other")
    registered(client)
    with pytest.raises(RuleNotExecutedError, match=r"encrypt.kms.key.id = other, and the rule mine"):
        written(client)


def test_reader_without_access_to_the_key(client: SchemaRegistryClient, registry: EmbeddedSchemaRegistry) -> None:
    registered(client, on_failure="ERROR,ERROR")
    data = written(client)
    with pytest.raises(
        RuleNotExecutedError, match="the KEK 'orders' of local-kms cannot decrypt a key: mine: InvalidTag"
    ):
        AvroDeserializer(client, rule_conf={"secret": "another"})(data, VALUE)
    with pytest.raises(RuleNotExecutedError, match="local-kms needs the setting 'secret' in rule_conf"):
        AvroDeserializer(client)(data, VALUE)
    assert AvroDeserializer(client, rule_conf=SECRET)(data, VALUE) == ORDER


def test_contract_may_let_readers_see_the_encrypted_fields(client: SchemaRegistryClient) -> None:
    registered(client, on_failure="ERROR,NONE")
    found = AvroDeserializer(client)(written(client), VALUE)
    assert found["id"] == 7
    assert "Ulmenstadt" not in found["city"]


def test_damaged_text_is_the_records_fault(client: SchemaRegistryClient) -> None:
    registered(client, on_failure="ERROR,ERROR")
    data = written(client)
    damaged = data[:-1] + bytes((data[-1] ^ 1,))
    with pytest.raises(SerializationError, match="the data was not encrypted by this key") as caught:
        AvroDeserializer(client, rule_conf=SECRET)(damaged, VALUE)
    assert not isinstance(caught.value, RuleNotExecutedError)


def test_registry_that_does_not_answer_is_not_the_records_fault(
    client: SchemaRegistryClient, registry: EmbeddedSchemaRegistry
) -> None:
    registered(client, on_failure="ERROR,ERROR")
    data = written(client)
    registry.fail(status=400, path="dek-registry", times=None)
    with (
        SchemaRegistryClient({"url": registry.url, "max.retries": 0}) as other,
        pytest.raises(
            RuleNotExecutedError, match="does not return the key encryption key 'orders': GET dek-registry/v1"
        ),
    ):
        AvroDeserializer(other, rule_conf=SECRET)(data, VALUE)


def test_web_page_with_404_makes_no_new_key(client: SchemaRegistryClient, page_url: str) -> None:
    registered(client)
    own = RuleRegistry()
    with DekRegistryClient({"url": page_url}) as deks:
        own.register_executor(FieldEncryptionExecutor(deks))
        with pytest.raises(RuleNotExecutedError, match="is the path in url right"):
            written(client, rule_registry=own)


def test_no_message_has_a_secret(
    client: SchemaRegistryClient, registry: EmbeddedSchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    registered(client, on_failure="ERROR,ERROR")
    data = written(client)
    with DekRegistryClient({"url": registry.url}) as deks:
        assert deks.get_dek("orders", "orders-value").key_material is None
    shown = repr(Dek(key_material="k3y", encrypted_key_material="s3aled"))
    assert "k3y" not in shown
    assert "s3aled" not in shown
    rule = Rule("r", None, RuleKind.TRANSFORM, RuleMode.WRITE, "ENCRYPT", None, None, None, None, None)
    assert "an0ther" not in repr(
        RuleContext(rule, RuleMode.WRITE, "s", None, None, None, None, conf={"secret": "an0ther"})
    )
    seen = []
    for conf in ({"secret": "an0ther"}, {}):
        with pytest.raises(SerializationError) as caught:
            AvroDeserializer(client, rule_conf=conf)(data, VALUE)
        seen.append("".join(traceback.format_exception(caught.value)))
    for value in ({**ORDER, "city": "Ulmen\ud800stadt"}, {**ORDER, "photo": 471108150471}):
        with pytest.raises(SerializationError) as caught:
            written(client, value)
        seen.append("".join(traceback.format_exception(caught.value)))
    for text in (*seen, caplog.text, *(str(request) for request in registry.requests)):
        assert not any(word in text for word in ("Ulmen", "a secret of", "an0ther", "471108150471", "pixels"))


# --- keys -------------------------------------------------------------------------------------------------------------


class Calendar:
    """A clock whose day a test sets."""

    def __init__(self, registry: EmbeddedSchemaRegistry) -> None:
        self._clock = registry._clock
        self.days = 0

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self.days * 24 * 3600 * 1000

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


def test_key_is_replaced_when_it_is_old(client: SchemaRegistryClient, registry: EmbeddedSchemaRegistry) -> None:
    calendar: Any = Calendar(registry)
    registry._clock = calendar  # the registry says when a key was made
    registered(client, params={"encrypt.dek.expiry.days": "30"})
    own = RuleRegistry()
    own.register_executor(FieldEncryptionExecutor(None, calendar))
    writer = AvroSerializer(client, conf=LATEST, rule_conf=SECRET, rule_registry=own)
    all_data = []
    for days in (0, 29, 31, 60, 62, 1000):
        calendar.days = days
        all_data.append(writer(ORDER, VALUE))
    with DekRegistryClient({"url": registry.url}) as deks:
        assert deks.get_dek("orders", "orders-value", version=-1).version == 4
        with pytest.raises(IllegalArgumentError, match="version 0"):
            deks.get_dek("orders", "orders-value", version=0)
    reader = AvroDeserializer(client, rule_conf=SECRET)
    assert [reader(data, VALUE) for data in all_data] == [ORDER] * 6
    asked = [request.path for request in registry.requests if request.method == "GET" and "versions/" in request.path]
    assert sum("dek-registry" in path for path in asked) < 12


def test_clock_ahead_of_the_registrys_does_not_stop_asyncio(registry: EmbeddedSchemaRegistry) -> None:
    calendar: Any = Calendar(registry)
    calendar.days = 100

    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            registered(client.blocking, params={"encrypt.dek.expiry.days": "1"})
            own = RuleRegistry()
            own.register_executor(FieldEncryptionExecutor(None, calendar))
            writer = AsyncAvroSerializer(client, conf=LATEST, rule_conf=SECRET, rule_registry=own)
            data = await asyncio.wait_for(writer(ORDER, VALUE), 30)
            assert await AsyncAvroDeserializer(client, rule_conf=SECRET)(data, VALUE) == ORDER

    asyncio.run(main())


def test_writers_that_begin_together_use_one_key(registry: EmbeddedSchemaRegistry) -> None:
    with SchemaRegistryClient({"url": registry.url}) as client:
        registered(client)
    registry.delay(20, path="dek-registry", times=None)

    def write(_: int) -> bytes:
        with SchemaRegistryClient({"url": registry.url}) as own:
            return written(own, rule_registry=RuleRegistry())

    with ThreadPoolExecutor(4) as threads:
        all_data = list(threads.map(write, range(4)))
    with SchemaRegistryClient({"url": registry.url}) as client:
        reader = AvroDeserializer(client, rule_conf=SECRET)
        assert [reader(data, VALUE) for data in all_data] == [ORDER] * 4


def test_two_registries_with_the_same_names_do_not_share_keys() -> None:
    executors = RuleRegistry()
    with EmbeddedSchemaRegistry() as first, EmbeddedSchemaRegistry() as second:
        for registry in (first, second, first):
            with SchemaRegistryClient({"url": registry.url}) as client:
                registered(client)
                data = written(client, rule_registry=executors)
            with SchemaRegistryClient({"url": registry.url}) as client:
                assert AvroDeserializer(client, rule_conf=SECRET)(data, VALUE) == ORDER


def test_alternate_keys_of_the_service_are_tried(client: SchemaRegistryClient) -> None:
    tried = []

    class Driver:
        def get_key_url_prefix(self) -> str:
            return "local-kms://"

        def new_kms_client(self, conf: dict[str, Any], key_url: str) -> Any:
            tried.append(key_url)
            if key_url.endswith("mine"):
                raise OSError("down")
            return LocalKmsDriver().new_kms_client(conf, key_url)

    register_kms_driver(Driver())
    try:
        registered(client)
        conf = {**SECRET, "encrypt.alternate.kms.key.ids": "second, third"}
        AvroSerializer(client, conf=LATEST, rule_conf=conf)(ORDER, VALUE)
    finally:
        reset_kms_drivers()
    assert tried == ["local-kms://mine", "local-kms://second"] * 2  # to encrypt a new key, and to decrypt it
    assert isinstance(get_kms_driver("local-kms://mine"), LocalKmsDriver)


def test_keys_of_the_dek_registry(registry: EmbeddedSchemaRegistry) -> None:
    with DekRegistryClient({"url": registry.url}) as deks, DekRegistryClient({"url": registry.url}) as other:
        kek = deks.register_kek("k/1", "aws-kms", "arn", False, {"a": "b"}, "ours", ".here")
        assert other.get_kek("k/1", context=".here") == kek
        assert kek.kms_props is not None
        assert (kek.name, kek.kms_type, kek.kms_props.properties, kek.doc) == ("k/1", "aws-kms", {"a": "b"}, "ours")
        for wrong in (lambda: other.get_kek("k/1"), lambda: other.get_dek("k/1", "s"), lambda: other.get_dek("x", "s")):
            with pytest.raises(SchemaRegistryError) as caught:
                wrong()
            assert (caught.value.http_status_code, caught.value.error_code) == (404, 40470)
        third = DekRegistryClient({"url": registry.url})
        with pytest.raises(SchemaRegistryError) as caught:
            third.register_kek("k/1", "aws-kms", "arn", context=".here")
        assert caught.value.http_status_code == 409
        first = deks.register_dek("k/1", "s", "AAAA")
        assert other.get_dek("k/1", "s") == first
        second = other.register_dek("k/1", "s", "BBBB", version=2)
        assert deks.get_dek("k/1", "s", version=-1) == second
        with pytest.raises(SchemaRegistryError, match="already exists"):
            third.register_dek("k/1", "s", "CCCC", version=2)
        third.close()
        deks.clear_caches()
        asked = len(registry.requests)
        for _ in range(2):
            assert deks.get_dek("k/1", "s", version=2) == second
        assert len(registry.requests) == asked + 1


# --- asyncio ----------------------------------------------------------------------------------------------------------


def test_asyncio_clients_fetch_keys_in_threads(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    own: dict[str, Any] = {"bootstrap_servers": pykclient_cluster.bootstrap_servers}
    waits = []
    send = DekRegistryClient.get_kek

    def seen(*args: Any, **kwargs: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            waits.append(False)
        else:
            waits.append(True)
        return send(*args, **kwargs)

    monkeypatch.setattr(DekRegistryClient, "get_kek", seen)

    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            registered(client.blocking)
            writer = AsyncAvroSerializer(client, conf=LATEST, rule_conf=SECRET, rule_registry=RuleRegistry())
            async with AIOKafkaProducer(**own, value_serializer=writer) as producer:
                for _ in range(3):
                    await producer.send_and_wait("orders", ORDER)
            reader = AsyncAvroDeserializer(client, rule_conf=SECRET, rule_registry=RuleRegistry())
            consumer = AIOKafkaConsumer("orders", **own, auto_offset_reset="earliest", value_deserializer=reader)
            async with consumer:
                for _ in range(3):
                    assert (await asyncio.wait_for(consumer.getone(), 30)).value == ORDER

    asyncio.run(main())
    assert waits
    assert not any(waits)


def test_record_that_cannot_be_decrypted_is_named_in_asyncio(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    own: dict[str, Any] = {"bootstrap_servers": pykclient_cluster.bootstrap_servers}
    registered(client, on_failure="ERROR,ERROR")
    with KafkaProducer(**own, value_serializer=AvroSerializer(client, conf=LATEST, rule_conf=SECRET)) as producer:
        producer.send("orders", ORDER).get(30)

    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as other:
            reader = AsyncAvroDeserializer(other, rule_conf={"secret": "another"})
            consumer = AIOKafkaConsumer("orders", **own, auto_offset_reset="earliest", value_deserializer=reader)
            async with consumer:
                with pytest.raises(RecordDeserializationError, match="cannot decrypt a key") as caught:
                    await asyncio.wait_for(consumer.getone(), 30)
                assert caught.value.offset == 0

    asyncio.run(main())


# --- confluent-kafka --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedSchemaRegistry]:
    with EmbeddedSchemaRegistry() as found:
        yield found


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(
    city=st.none() | st.text(max_size=40),
    photo=st.binary(max_size=40),
    algorithm=st.sampled_from(list(DekAlgorithm)),
    days=st.sampled_from(["0", "9"]),
    register=st.sampled_from([registered, payload_rule]),
)
def test_encrypted_records_are_confluents_in_both_directions(
    shared: EmbeddedSchemaRegistry, city: str | None, photo: bytes, algorithm: str, days: str, register: Any
) -> None:
    pytest.importorskip("tink", reason="confluent-kafka encrypts with Tink")
    pytest.importorskip("hkdf", reason="confluent-kafka's driver of local keys needs hkdf")
    import confluent_kafka.schema_registry as confluent
    from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirReader, AvroSerializer as TheirWriter
    from confluent_kafka.schema_registry.rule_registry import RuleRegistry as TheirRules
    from confluent_kafka.schema_registry.rules.encryption.encrypt_executor import (
        EncryptionExecutor as TheirPayloads,
        FieldEncryptionExecutor as TheirFields,
    )
    from confluent_kafka.schema_registry.rules.encryption.localkms.local_driver import LocalKmsDriver as TheirDriver
    from confluent_kafka.serialization import MessageField as TheirField, SerializationContext as TheirContext

    TheirDriver.register()
    rules: Any = TheirRules()  # type: ignore[no-untyped-call]
    executors: list[Any] = [TheirFields(), TheirPayloads()]
    for executor in executors:
        rules.register_executor(executor)
    topic = f"{algorithm}-{days}-{register.__name__}"
    order = {"id": 1, "city": city, "photo": photo}
    topic_only = {"subject.name.strategy.type": "TOPIC"}
    ours_ctx, theirs_ctx = SerializationContext(topic, MessageField.VALUE), TheirContext(topic, TheirField.VALUE)
    params = RuleParams({**PARAMS, "encrypt.dek.algorithm": algorithm, "encrypt.dek.expiry.days": days})
    held = (
        RuleSet(domain_rules=[rule(params=params.params)])
        if register is registered
        else RuleSet(encoding_rules=[rule(type="ENCRYPT_PAYLOAD", tags=None, params=params.params)])
    )
    with SchemaRegistryClient({"url": shared.url}) as client:
        client.register_schema(f"{topic}-value", Schema(AVRO, rule_set=held))
        theirs = confluent.SchemaRegistryClient({"url": shared.url})
        their_conf = {"auto.register.schemas": False, **LATEST, **topic_only}
        their_writer = TheirWriter(theirs, None, None, their_conf, dict(SECRET), rules)
        their_reader = TheirReader(theirs, None, None, False, topic_only, dict(SECRET), rules)
        writer = AvroSerializer(client, conf=LATEST, rule_conf=SECRET)
        reader = AvroDeserializer(client, rule_conf=SECRET)
        pairs: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
            (lambda: writer(dict(order), ours_ctx), lambda data: their_reader(data, theirs_ctx)),
            (lambda: their_writer(dict(order), theirs_ctx), lambda data: reader(data, ours_ctx)),
        ]
        for write, read in pairs if os.getpid() % 2 else pairs[::-1]:
            assert read(write()) == order
        if algorithm == DekAlgorithm.AES256_SIV:
            assert writer(dict(order), ours_ctx) == their_writer(dict(order), theirs_ctx)
        theirs.close()
        for executor in executors:
            executor.close()


def test_executors_tell_their_types() -> None:
    assert (FieldEncryptionExecutor().type(), EncryptionExecutor().type()) == ("ENCRYPT", "ENCRYPT_PAYLOAD")
