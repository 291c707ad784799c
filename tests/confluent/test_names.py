"""The modules and names of the installed confluent-kafka are here, too."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import confluent_kafka as theirs
import pytest

import pykclient.confluent as ours

_MODULES = ("", ".admin", ".aio", ".cimpl", ".error")


def _own(module: ModuleType) -> set[str]:
    """Return the public names that confluent-kafka has made."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and (isinstance(value, int) or getattr(value, "__module__", "").startswith(("confluent_kafka", "cimpl")))
    }


@pytest.mark.parametrize("name", _MODULES)
def test_module_has_the_names_of_confluent_kafkas(name: str) -> None:
    here = importlib.import_module(f"pykclient.confluent{name}")
    missing = {each for each in _own(importlib.import_module(f"confluent_kafka{name}")) if not hasattr(here, each)}
    assert not missing


def test_version_is_the_one_of_the_interface() -> None:
    assert {getattr(ours, "__version__"), ours.version()} == {theirs.__version__}  # noqa: B009
    assert not hasattr(ours, "nothing_of_this_name")


def test_modules_are_attributes_of_the_package_after_its_import() -> None:
    program = (
        "import pykclient.confluent as ck\n"
        "assert ck.cimpl.Producer is ck.Producer\n"
        "assert ck.error.ConsumeError and ck.serialization.StringSerializer and ck._model.Node is ck.Node\n"
        "assert ck.serializing_producer.SerializingProducer is ck.SerializingProducer\n"
        "assert ck.deserializing_consumer.DeserializingConsumer is ck.DeserializingConsumer\n"
        "assert ck.deserializing_share_consumer.DeserializingShareConsumer is ck.DeserializingShareConsumer\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("module", "name", "home"),
    [
        ("", "SchemaRegistryClient", ""),
        ("", "topic_subject_name_strategy", ""),
        (".avro", "AvroDeserializer", ".avro"),
        (".error", "SchemaRegistryError", ""),
        (".json_schema", "JSONDeserializer", ".json_schema"),
        (".protobuf", "ProtobufDeserializer", ".protobuf"),
        (".schema_registry_client", "Schema", ""),
    ],
)
def test_schema_registry_has_the_same_objects(module: str, name: str, home: str) -> None:
    here = importlib.import_module(f"pykclient.confluent.schema_registry{module}")
    there = importlib.import_module(f"pykclient.schema_registry{home}")
    assert getattr(here, name) is getattr(there, name)


def test_share_consumer_below_confluent_kafkas_own_files_returns_their_messages() -> None:
    program = (
        "import sys\n"
        "import pykclient.confluent.cimpl as cimpl\n"
        "sys.modules['confluent_kafka.cimpl'] = cimpl\n"
        "import confluent_kafka\n"
        "consumer = confluent_kafka.ShareConsumer({'bootstrap.servers': '127.0.0.1:1', 'group.id': 'g'})\n"
        "consumer.subscribe(['t'])\n"
        "found = consumer.poll(0.1)\n"
        "assert type(found) is confluent_kafka.Messages and found.is_empty()\n"
        "consumer.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
