"""A program for confluent-kafka's client-side field encryption runs unchanged under the alias, with equal bytes."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pykclient.testing import EmbeddedSchemaRegistry

for package in ("cryptography", "celpy", "fastavro", "jsonschema"):
    pytest.importorskip(package, reason="the extras avro, jsonschema, rules and encryption")

#: Prints what it has written, and reads that and the records that it is given. AES256_SIV has no random part.
_PROGRAM = '''
import json
import sys

from confluent_kafka.schema_registry import (
    Rule,
    RuleKind,
    RuleMode,
    RuleParams,
    RuleSet,
    Schema,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.rules.cel.cel_executor import CelExecutor
from confluent_kafka.schema_registry.rules.cel.cel_field_executor import CelFieldExecutor
from confluent_kafka.schema_registry.rules.encryption.dek_registry.dek_registry_client import (
    DekAlgorithm,
    DekRegistryClient,
)
from confluent_kafka.schema_registry.rules.encryption.encrypt_executor import (
    EncryptionExecutor,
    FieldEncryptionExecutor,
)
from confluent_kafka.schema_registry.rules.encryption.kms_driver_registry import get_kms_driver, register_kms_driver
from confluent_kafka.schema_registry.rules.encryption.localkms.local_driver import LocalKmsDriver
from confluent_kafka.schema_registry.rules.jsonata.jsonata_executor import JsonataExecutor
from confluent_kafka.schema_registry.serde import FieldRuleExecutor, RuleError
from confluent_kafka.serialization import MessageField, SerializationContext

url, *records = sys.argv[1:]


class Stars(FieldRuleExecutor):
    """An executor of the application's own, which is configured by the serializer."""

    def configure(self, client_conf, rule_conf):
        self.conf = (client_conf["url"], rule_conf["secret"])

    def type(self):
        return "STARS"

    def new_transform(self, ctx):
        assert self.conf == (url, "of the test")
        assert ctx.get_parameter("length") == "3", ctx.rule

        def change(ctx, field, value):
            assert field.full_name == "Patient.nick" and field.name == "nick" and field.tags == {"NICK"}, field
            assert ctx.ser_ctx.topic == "patients" and ctx.subject == "patients-value"
            return "*" * 3 if ctx.rule_mode == RuleMode.WRITE else value + "!"

        return change


for kind in (CelExecutor, CelFieldExecutor, JsonataExecutor, LocalKmsDriver):
    kind.register()
EncryptionExecutor.register()
FieldEncryptionExecutor.register()
RuleRegistry.register_rule_executor(Stars())
assert get_kms_driver("local-kms://k").get_key_url_prefix() == "local-kms://"

fields = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": "string", "confluent:tags": ["PII"]},
    {"name": "nick", "type": "string", "confluent:tags": ["NICK"]},
]
schema = json.dumps({"type": "record", "name": "Patient", "fields": fields})
kek = {"encrypt.kek.name": "patients", "encrypt.kms.type": "local-kms", "encrypt.kms.key.id": "mine"}
siv = {**kek, "encrypt.dek.algorithm": "AES256_SIV"}
both = (RuleKind.TRANSFORM, RuleMode.WRITEREAD)
rules = [
    Rule("check", None, RuleKind.CONDITION, RuleMode.WRITE, "CEL", None, None, "message.id > 0", None, None, False),
    Rule("plus", None, both[0], RuleMode.WRITE, "CEL_FIELD", ["PII"], None, "value + '+'", None, None, False),
    Rule("stars", None, *both, "STARS", ["NICK"], RuleParams({"length": "3"}), None, None, None, False),
    Rule("encrypt", None, *both, "ENCRYPT", ["PII"], RuleParams(siv), None, None, "ERROR,NONE", False),
]
client = SchemaRegistryClient({"url": url})
client.register_schema("patients-value", Schema(schema, "AVRO", [], None, RuleSet(None, rules)))
text = json.dumps({"title": "P", "type": "object", "properties": {"a": {"type": "integer"}}})
payload = Rule("payload", None, *both, "ENCRYPT_PAYLOAD", None, RuleParams(siv), None, None, None, False)
client.register_schema("sealed-value", Schema(text, "JSON", [], None, RuleSet(None, None, [payload])))

conf = {"auto.register.schemas": False, "use.latest.version": True}
secret = {"secret": "of the test"}
patients = SerializationContext("patients", MessageField.VALUE)
sealed = SerializationContext("sealed", MessageField.VALUE)
write = AvroSerializer(client, schema, conf=conf, rule_conf=secret)
seal = JSONSerializer(text, client, conf=conf, rule_conf=secret)
made = [write({"id": 1, "name": "Ada", "nick": "Lovelace"}, patients), seal({"a": 5}, sealed)]
try:
    write({"id": -1, "name": "Ada", "nick": "Lovelace"}, patients)
except Exception as error:
    reason = error.__cause__ or error
    assert isinstance(reason, RuleError), reason
else:
    raise AssertionError("a condition was left out")
read = AvroDeserializer(client, rule_conf=secret)
unseal = JSONDeserializer(text, schema_registry_client=client, rule_conf=secret)
for first, second in [made, *([list(map(bytes.fromhex, records))] if records else [])]:
    assert read(first, patients) == {"id": 1, "name": "Ada+", "nick": "***!"}
    assert unseal(second, sealed) == {"a": 5}
deks = DekRegistryClient.new_client({"url": url})
assert deks.get_kek("patients").kms_key_id == "mine"
dek = deks.get_dek("patients", "patients-value", DekAlgorithm.AES256_SIV)
assert dek.version == 1 and dek.get_encrypted_key_material_bytes()
print(*(each.hex() for each in made))
'''


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_program_with_encrypted_fields_writes_and_reads_what_confluents_does(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    with EmbeddedSchemaRegistry() as registry:
        made = run("-W", "error", "-m", "pykclient.alias", "confluent_kafka", "--", str(program), registry.url)
        assert len(made.split()) == 2
        if all(find_spec(name) is not None for name in ("confluent_kafka", "tink", "hkdf")):
            assert run("-W", "ignore", str(program), registry.url, *made.split()) == made
    with EmbeddedSchemaRegistry() as registry:
        if all(find_spec(name) is not None for name in ("confluent_kafka", "tink", "hkdf")):
            theirs = run("-W", "ignore", str(program), registry.url)  # which makes the keys this time
            ours = run("-m", "pykclient.alias", "confluent_kafka", "--", str(program), registry.url, *theirs.split())
            assert ours == theirs


def test_names_of_all_drivers_are_found(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
root = "confluent_kafka.schema_registry.rules.encryption"
import importlib
for module, name in (
    ("awskms.aws_driver", "AwsKmsDriver"),
    ("azurekms.azure_driver", "AzureKmsDriver"),
    ("gcpkms.gcp_driver", "GcpKmsDriver"),
    ("hcvault.hcvault_driver", "HcVaultKmsDriver"),
    ("localkms.local_driver", "LocalKmsDriver"),
    ("encrypt_executor", "FieldEncryptionExecutor"),
):
    getattr(importlib.import_module(f"{root}.{module}"), name).register()
from confluent_kafka.schema_registry.rules.encryption.encrypt_executor import ENCRYPT_KEK_NAME
print(ENCRYPT_KEK_NAME)
""")
    assert run("-W", "error", "-m", "pykclient.alias", "confluent_kafka", "--", str(program)) == "encrypt.kek.name\n"
