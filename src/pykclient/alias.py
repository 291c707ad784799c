"""Programs for confluent-kafka, aiokafka and kafka-python, run on this package without a change.

    python -m pykclient.alias confluent_kafka aiokafka -- app.py --port 80
    python -m pykclient.alias aiokafka -- -m pytest tests

``install("aiokafka")`` does the same inside a program, before it imports the name. The packages may be installed all
the same: tools that ask for distributions find them.

The command holds for the processes that the program starts, too, by two environment variables: ``PYKCLIENT_ALIAS`` has
the names, and ``PYTHONPATH`` begins with ``STARTUP_FOLDER``, whose ``sitecustomize`` installs them. Set both where you
cannot change a command line. Processes without these variables, or with ``python -I`` or ``-E``, are not affected.
Nothing is put into site-packages for this, so Pythons that do not use it start as before.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ENVIRONMENT_VARIABLE = "PYKCLIENT_ALIAS"

#: With this folder on ``PYTHONPATH``, a process installs the aliases that ``PYKCLIENT_ALIAS`` names when it starts.
STARTUP_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "alias_startup")

#: The packages, and the packages that stand in for them.
PACKAGES = {"aiokafka": "pykclient.aio", "confluent_kafka": "pykclient.confluent", "kafka": "pykclient"}

#: Modules whose names differ, below a package or module: the module here that stands in for all of them. Those with an
#: underscore are private, but programs and type stubs import them.
_STAND_INS = {
    "aiokafka": {
        "pykclient.aio.admin": "admin.client admin.config_resource admin.new_partitions admin.new_topic",
        "pykclient.aio.consumer": "consumer.consumer",
        "pykclient.aio.helpers": "util",
        "pykclient.aio.producer": "producer.producer",
        "pykclient.consumer.partition_assignors": "coordinator.assignors.abstract",
        "pykclient.partitioner": "partitioner",
    },
    "confluent_kafka": {
        "pykclient.confluent.admin_types": "admin._acl admin._cluster admin._config admin._group admin._listoffsets "
        "admin._records admin._resource admin._scram admin._topic",
        "pykclient.confluent.aio": "aio._AIOConsumer aio._AsyncDeserializingConsumer aio._AsyncSerializingProducer "
        "aio.producer aio.producer._AIOProducer",
        "pykclient.confluent.cluster_metadata": "admin._metadata",
        "pykclient.confluent.model": "_model",
        "pykclient.confluent.serializing": "deserializing_consumer serializing_producer",
        "pykclient.confluent.share_consumer": "deserializing_share_consumer",
        "pykclient.schema_registry": "schema_registry schema_registry._async schema_registry._sync",
    },
    "confluent_kafka.schema_registry": {
        "pykclient.confluent.schema_registry.avro": "avro",
        "pykclient.confluent.schema_registry.json_schema": "json_schema",
        "pykclient.confluent.schema_registry.protobuf": "protobuf",
        "pykclient.schema_registry.confluent_pb2": "confluent confluent.meta_pb2 confluent.type "
        "confluent.type.decimal_pb2 confluent.types confluent.types.decimal_pb2",
        "pykclient.schema_registry.rules": "common.serde rule_registry rules.cel rules.cel.cel_executor "
        "rules.cel.cel_field_executor rules.jsonata rules.jsonata.jsonata_executor",
        "pykclient.schema_registry.schemas": "common common.schema_registry_client error",
    },
    "confluent_kafka.schema_registry.rules": {
        "pykclient.schema_registry.dek_registry": "encryption.dek_registry encryption.dek_registry.dek_registry_client",
        "pykclient.schema_registry.encryption": "encryption encryption.encrypt_executor",
    },
    "confluent_kafka.schema_registry.rules.encryption": {
        "pykclient.schema_registry.kms": "awskms awskms.aws_driver azurekms azurekms.azure_driver gcpkms "
        "gcpkms.gcp_driver hcvault hcvault.hcvault_driver kms_driver_registry localkms localkms.local_driver",
    },
    "kafka": {
        "pykclient.admin": "admin.acl_resource admin.client admin.config_resource admin.new_partitions admin.new_topic",
        "pykclient.aio.abc": "net net.sasl net.sasl.oauth oauth oauth.abstract sasl sasl.oauth",
        "pykclient.aio.codec": "codec",
        "pykclient.consumer.partition_assignors": "coordinator.assignors.abstract",
        "pykclient.consumer_record": "record.abc",
        "pykclient.metrics": "metrics.metric_config metrics.metric_name metrics.metrics_reporter",
        "pykclient.serializer": "serializer.abstract serializer.default serializer.json",
    },
}
_MODULES = {
    f"{package}.{name}": ours
    for package, stand_ins in _STAND_INS.items()
    for ours, names in stand_ins.items()
    for name in names.split()
}

#: Names that the other package has in a module whose counterpart lacks them, and the modules that define them. After
#: an equals sign is the name there.
_NAMES = {
    "confluent_kafka.schema_registry.common.serde": {
        "pykclient.schema_registry.serde": "SubjectNameStrategyType",
        "pykclient.schema_registry.wire": "SchemaId",
    },
    "confluent_kafka.schema_registry.schema_registry_client": {
        "pykclient.schema_registry.schemas": "AssociationCreateOrUpdateInfo AssociationInfo Metadata "
        "MetadataProperties MetadataTags Rule RuleKind RuleMode RuleParams RuleSet SchemaReference",
    },
    "confluent_kafka.schema_registry.serde": {
        "pykclient.schema_registry.rules": "FieldContext FieldRuleExecutor RuleAction RuleConditionError RuleContext "
        "RuleError RuleExecutor",
    },
    "kafka.producer.future": {"pykclient.producer.future": "FutureProduceResult=ProduceRequestResult"},
    "kafka.record.abc": {"pykclient.consumer_record": "ABCRecord=ConsumerRecord"},
    "kafka": {"pykclient.admin.values": "IsolationLevel OffsetSpec TopicPartitionReplica"},
    "kafka.structs": {"pykclient.admin.values": "TopicPartitionReplica"},
}

_USAGE = f"""\
usage: python -m pykclient.alias [NAME ...] -- FILE [ARGUMENT ...]
       python -m pykclient.alias [NAME ...] -- -m MODULE [ARGUMENT ...]

Run a program that imports NAME on pykclient, and the processes that it starts. A NAME is one of
{", ".join(sorted(PACKAGES))}; without any, the names come from the environment variable {ENVIRONMENT_VARIABLE}.
"""


class _AliasLoader(Loader):
    """Loads a module by putting another one in its place."""

    def __init__(self, target: str) -> None:
        self._target = target

    def exec_module(self, module: ModuleType) -> None:
        found = importlib.import_module(self._target)
        if not hasattr(found, "__path__") and any(name.startswith(f"{module.__name__}.") for name in _MODULES):
            found.__path__ = []  # otherwise the import system would not ask for modules below it
        sys.modules[module.__name__] = found
        for source, names in _NAMES.get(module.__name__, {}).items():
            for name in names.split():
                theirs, _, ours = name.partition("=")
                setattr(found, theirs, getattr(importlib.import_module(source), ours or theirs))
        for name, target in _MODULES.items():
            parent, _, child = name.rpartition(".")
            if parent == module.__name__ and target == self._target and not hasattr(found, child):
                setattr(found, child, found)  # the other package imports this module, so programs do not


class _AliasFinder(MetaPathFinder):
    """Finds the modules of the packages that were installed here, and no other ones below them."""

    def __init__(self) -> None:
        self.packages: dict[str, str] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if package not in self.packages:
            return None
        name = target_of(fullname)
        if name is None:
            # Without this error, the import would find the file below the other package and load it a second time.
            raise ModuleNotFoundError(f"No module named {fullname!r} in pykclient's {package}", name=fullname)
        return ModuleSpec(fullname, _AliasLoader(name), is_package=True)


_finder = _AliasFinder()


def target_of(fullname: str) -> str | None:
    """Return the module that replaces ``fullname``, or None."""
    for name in sorted(_MODULES, key=len, reverse=True):
        if fullname == name or fullname.startswith(f"{name}."):
            return _existing(_MODULES[name] + fullname[len(name) :])
    package, _, rest = fullname.partition(".")
    return _existing(f"{PACKAGES[package]}.{rest}" if rest else PACKAGES[package])


def _existing(name: str) -> str | None:
    try:
        return name if importlib.util.find_spec(name) is not None else None
    except ModuleNotFoundError:
        return None


def install(*names: str) -> None:
    """Make later imports of these packages and their modules load this package's instead.

    Raises:
        ValueError: this package stands in for no package of that name.
        ImportError: a package was imported already.
    """
    for name in names:
        if name not in PACKAGES:
            raise ValueError(f"there is no alias for {name!r}, only for {', '.join(sorted(PACKAGES))}")
        if name in _finder.packages:
            continue
        if name in sys.modules:
            raise ImportError(f"{name} was imported already: install the alias before the first import", name=name)
        _finder.packages[name] = PACKAGES[name]
    if names and _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def uninstall() -> None:
    """Remove all aliases. Modules that were already imported are not affected."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name in [each for each in sys.modules if each.partition(".")[0] in _finder.packages]:
        del sys.modules[name]
    _finder.packages.clear()


def names_in_environment() -> list[str]:
    """Return the names in ``PYKCLIENT_ALIAS``, separated by commas."""
    return [name.strip() for name in os.environ.get(ENVIRONMENT_VARIABLE, "").split(",") if name.strip()]


def _export(names: Sequence[str]) -> None:
    """Let the processes that this one starts install the aliases."""
    os.environ[ENVIRONMENT_VARIABLE] = ",".join(names)
    given = os.environ.get("PYTHONPATH")
    others = [path for path in given.split(os.pathsep) if path != STARTUP_FOLDER] if given else []
    os.environ["PYTHONPATH"] = os.pathsep.join([STARTUP_FOLDER, *others])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status if it could not start the program."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--" not in given:
        sys.stderr.write(_USAGE)
        return 2
    place = given.index("--")
    names, program = given[:place] or names_in_environment(), given[place + 1 :]
    if not names or not program or program == ["-m"]:
        sys.stderr.write(_USAGE)
        return 2
    try:
        install(*names)
    except ValueError as error:
        sys.stderr.write(f"{error}\n{_USAGE}")
        return 2
    _export(names)
    if program[0] == "-m":
        sys.argv = program[1:]
        sys.path.insert(0, "")
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        sys.path.insert(0, os.path.dirname(os.path.abspath(program[0])))
        runpy.run_path(program[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    # The module runs as __main__: use the one that programs import, so that there is one finder.
    sys.exit(importlib.import_module("pykclient.alias").main())
