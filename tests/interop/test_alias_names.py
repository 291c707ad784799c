"""The public modules and names of the packages that ``pykclient.alias`` replaces exist under it, or have a reason."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: Prints the public names of each public module of a package. A name is public if ``__all__`` has it, or, without
#: ``__all__``, if the module defines it.
_THEIRS = """
import importlib, json, pkgutil, sys, types, warnings
warnings.simplefilter("ignore")
package = sys.argv[1]
top = importlib.import_module(package)
found = {}
for each in [package, *(it.name for it in pkgutil.walk_packages(top.__path__, f"{package}.", onerror=lambda _: None))]:
    if any(word.startswith("_") or word in ("benchmarks", "cli", "kafkatest") for word in each.split(".")):
        continue
    try:
        module = importlib.import_module(each)
    except ImportError:
        continue  # it needs a package that the tests do without
    public = getattr(module, "__all__", None)
    if public is None:
        public = [it for it, value in vars(module).items() if getattr(value, "__module__", None) == each]
    found[each] = [it for it in public if it[0] != "_" and not isinstance(getattr(module, it), types.ModuleType)]
print(json.dumps(found))
"""

#: Prints which of these do not exist under the alias.
_OURS = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
import pykclient.alias
pykclient.alias.install(sys.argv[1])
missing = []
for name, public in json.load(sys.stdin).items():
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        missing.append(name)
    else:
        missing += [f"{name}:{each}" for each in public if not hasattr(module, each)]
print(json.dumps(missing))
"""

_PROTOCOL = "the wire protocol is generated from Kafka's schemas here, with other names and another interface"
_INSIDE = "a part of the other client's machinery, which is built otherwise here"
_NO_ASYNC_LISTENER = "listeners for asyncio belong to the clients of `pykclient.aio`"
_OTHER_RULES = "this kind of rule is not implemented"

#: Modules, with all below them, and names that do not exist here.
REASONS = {
    "aiokafka": {
        "aiokafka.admin.records_to_delete": "`delete_records` takes the offsets themselves",
        "aiokafka.admin:RecordsToDelete": "`delete_records` takes the offsets themselves",
        "aiokafka.client": _INSIDE,
        "aiokafka.cluster": _INSIDE,
        "aiokafka.conn": _INSIDE,
        "aiokafka.consumer.fetcher": _INSIDE,
        "aiokafka.consumer.group_coordinator": _INSIDE,
        "aiokafka.consumer.subscription_state": _INSIDE,
        "aiokafka.coordinator.assignors.sticky": _INSIDE,
        "aiokafka.coordinator.protocol": _PROTOCOL,
        "aiokafka.producer.message_accumulator": _INSIDE,
        "aiokafka.producer.producer:TransactionContext": _INSIDE,
        "aiokafka.producer.sender": _INSIDE,
        "aiokafka.producer.transaction_manager": _INSIDE,
        "aiokafka.protocol": _PROTOCOL,
        "aiokafka.record": _PROTOCOL,
        "aiokafka.structs:BrokerMetadata": _INSIDE,
        "aiokafka.structs:PartitionMetadata": _INSIDE,
        "aiokafka.util": _INSIDE,
        "aiokafka:AIOKafkaClient": _INSIDE,
    },
    "confluent_kafka": {
        "confluent_kafka.schema_registry.common": "helpers of its serializers",
        "confluent_kafka.schema_registry.confluent.type": "variants are not implemented",
        "confluent_kafka.schema_registry.error": "errors of the library for Avro that it uses",
        "confluent_kafka.schema_registry.rules.cel": "helpers of its executor",
        "confluent_kafka.schema_registry.rules.dlq": _OTHER_RULES,
        "confluent_kafka.schema_registry.rules.encryption": _OTHER_RULES,
        "confluent_kafka.schema_registry.wildcard_matcher": "a helper of its serializers",
    },
    "kafka": {
        "kafka.cluster": _INSIDE,
        "kafka.codec": "the lz4 frames of brokers before 0.10",
        "kafka.consumer.fetcher": _INSIDE,
        "kafka.consumer.subscription_state:SubscriptionType": _INSIDE,
        "kafka.consumer.subscription_state:AsyncConsumerRebalanceListener": _NO_ASYNC_LISTENER,
        "kafka:AsyncConsumerRebalanceListener": _NO_ASYNC_LISTENER,
        "kafka.coordinator.assignors.abstract:RebalanceProtocol": _INSIDE,
        "kafka.coordinator.assignors.sticky": _INSIDE,
        "kafka.coordinator.base": _INSIDE,
        "kafka.coordinator.consumer": _INSIDE,
        "kafka.coordinator.heartbeat": _INSIDE,
        "kafka.coordinator.subscription": _PROTOCOL,
        "kafka.errors": "brokers and this client do not raise them",
        "kafka.future": _INSIDE,
        "kafka.metrics": "metrics are Java's here; `pykclient.metrics` has the classes that reporters need",
        "kafka.net": _INSIDE,
        "kafka.producer.producer_batch": _INSIDE,
        "kafka.producer.record_accumulator": _INSIDE,
        "kafka.producer.transaction_manager": _INSIDE,
        "kafka.protocol": _PROTOCOL,
        "kafka.record": _PROTOCOL,
        "kafka.serializer.wrapper": _INSIDE,
        "kafka.util": _INSIDE,
        "kafka.vendor": "another project's code",
    },
}


def _python(code: str, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], input=given, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _reason_for(missing: str, reasons: dict[str, str]) -> str | None:
    """Return the entry that says why a module or name does not exist."""
    return next((each for each in reasons if missing == each or missing.startswith((f"{each}.", f"{each}:"))), None)


@pytest.mark.parametrize("package", sorted(REASONS))
def test_every_public_name_exists_under_the_alias_or_has_a_reason(package: str) -> None:
    pytest.importorskip(package)
    theirs = _python(_THEIRS, package)
    assert len(json.loads(theirs)) > 30
    missing = json.loads(_python(_OURS, package, given=theirs))
    found = {each: _reason_for(each, REASONS[package]) for each in missing}
    assert [each for each, reason in found.items() if reason is None] == []
    assert set(REASONS[package]) == set(found.values())
