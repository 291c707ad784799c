"""Our messages equal Java's in every version: bytes, values, and refusals.

Kafka 3.9 is the oracle for versions that Kafka 4 dropped.
"""

from __future__ import annotations

import base64
import inspect
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pykclient.errors import LocalProtocolError, UnsupportedVersionError
from pykclient.protocol import headers
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.message import DataMessage, Message
from pykclient.protocol.wire import Reader
from tests.kafka import artifacts
from tests.protocol.messages import all_messages, all_versions, snake, written
from tests.support.java import run_java

pytestmark = pytest.mark.java

ORACLE = Path(__file__).with_name("java") / "MessageOracle.java"
SEED = "20240817"
PER_VERSION = "6"
MESSAGES = all_messages()
NAMES = sorted(MESSAGES)
OLD_KAFKA = "3.9.1"
DROPPED_APIS = ["LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA", "CONTROLLED_SHUTDOWN"]


def _is_dropped(key: int, version: int) -> bool:
    """Return whether Kafka 3.9 has the version and Kafka 4 does not. Versions that were never stable do not count."""
    if ApiKeys.name_of(key) in DROPPED_APIS:
        return True
    return ApiKeys.oldest_served_version(key) <= version < ApiKeys.oldest_version(key)


OF_OLD_KAFKA = {
    (cls.__name__, version)
    for cls, version in all_versions()
    if not issubclass(cls, DataMessage) and _is_dropped(cls.API_KEY, version)
}
OLD_NAMES = sorted({name for name, _ in OF_OLD_KAFKA})

Lines = dict[str, list[list[str]]]


def lines_of(*args: str, version_cell: int) -> Lines:
    """Return the oracle's lines by message: of Kafka 4, and of Kafka 3.9 for versions that only 3.9 has."""
    lines: Lines = defaultdict(list)
    now = [name for name in NAMES if {ApiKeys.name_of(getattr(MESSAGES[name], "API_KEY", -1))}.isdisjoint(DROPPED_APIS)]
    for kafka, names in ((artifacts.KAFKA_VERSION, now), (OLD_KAFKA, OLD_NAMES)):
        for line in run_java(ORACLE, *args, *names, kafka_version=kafka).decode().split("\n"):
            name, *cells = line.split("\t")
            if name and (kafka != OLD_KAFKA or (name, int(cells[version_cell])) in OF_OLD_KAFKA):
                lines[name].append(cells)
    return lines


@pytest.fixture(scope="module")
def random_messages() -> Lines:
    return lines_of("random", SEED, PER_VERSION, version_cell=0)


@pytest.fixture(scope="module")
def single_fields() -> Lines:
    return lines_of("fields", version_cell=1)


def expect_value(ours: Any, java: Any, path: str) -> None:
    """Check that our value equals the one that Java wrote as JSON."""
    if isinstance(ours, Message):
        expect_fields(ours, java, path)
    elif isinstance(ours, list):
        assert len(ours) == len(java), path
        for index, (our, their) in enumerate(zip(ours, java, strict=True)):
            expect_value(our, their, f"{path}[{index}]")
    elif isinstance(ours, bytes):
        assert base64.b64encode(ours).decode() == java, path
    elif isinstance(ours, UUID):
        assert base64.urlsafe_b64encode(ours.bytes).decode().rstrip("=") == java, path
    else:
        assert ours == java, path
        assert type(ours) is type(java) or isinstance(ours, float), path


def expect_fields(ours: Message, java: dict[str, Any], path: str = "") -> None:
    """Check that every field equals the one that Java wrote, or its default if Java left it out."""
    default = type(ours)()
    theirs = {snake(name): value for name, value in java.items()}
    for name in ours.__slots__:
        value = getattr(ours, name)
        if f"{name}_size_in_bytes" in theirs:
            assert len(value) == theirs.pop(f"{name}_size_in_bytes"), f"{path}.{name}"
        elif name in theirs:
            expect_value(value, theirs.pop(name), f"{path}.{name}")
        else:
            assert value == getattr(default, name), f"{path}.{name}"
    assert not theirs, path


@pytest.mark.parametrize("name", NAMES)
def test_random_messages_equal_javas(name: str, random_messages: Lines) -> None:
    cls = MESSAGES[name]
    versions = set()
    for cells in random_messages[name]:
        version, given, canonical, values = int(cells[0]), bytes.fromhex(cells[1]), bytes.fromhex(cells[2]), cells[3]
        versions.add(version)
        reader = Reader(given)
        message = cls.read(reader, version)
        assert reader.remaining == 0
        expect_fields(message, json.loads(values))
        assert written(message, version).hex() == canonical.hex()
        assert cls.read(Reader(memoryview(bytearray(canonical))), version) == message
    assert versions == {version for other, version in all_versions() if other is cls}


def sample(annotation: str, scope: type[Message]) -> Any:
    """Return a non-default value for a field of this type, the same that the oracle uses."""
    kind = annotation.removesuffix(" | None")
    if kind.startswith("Iterable["):
        return [sample(kind[len("Iterable[") : -1], scope)]
    plain = {"int": 77, "float": 77.0, "str": "x77", "bool": True, "bytes": b"\7\7", "BytesLike": b"\7\7"}
    if kind in plain:
        return plain[kind]
    if kind == "UUID":
        return UUID("01020304-0506-0708-1112-131415161718")
    return getattr(scope, kind.split(".")[1])()


@pytest.mark.parametrize("name", NAMES)
def test_single_fields_equal_javas(name: str, single_fields: Lines) -> None:
    """Defaults, tags, nullability, and fields refused by versions that lack them are the same as in Java."""
    top = MESSAGES[name]
    for class_name, version_text, field, kind, expected in single_fields[name]:
        cls = top if class_name == name else getattr(top, class_name)
        message = cls()
        where = f"{class_name}.{field} {kind} v{version_text}"
        if field != "-":
            attribute = snake(field)
            parameter = inspect.signature(cls).parameters[attribute]
            made_by_default = parameter.default is None and getattr(message, attribute) is not None
            if kind == "null" and (not parameter.annotation.endswith(" | None") or made_by_default):
                continue  # our types rule this out
            values = {"set": sample(parameter.annotation, top), "unset": False, "null": None, "empty": []}
            setattr(message, attribute, values[kind])
        version = int(version_text)
        if expected == "UnsupportedVersion":
            with pytest.raises(UnsupportedVersionError):
                written(message, version)
        elif expected == "Null":
            with pytest.raises(LocalProtocolError):
                written(message, version)
        else:
            assert f"={written(message, version).hex()}" == expected, where


def test_versions_and_headers_equal_javas() -> None:
    seen = set()
    for kafka in (artifacts.KAFKA_VERSION, OLD_KAFKA):
        for line in run_java(ORACLE, "headers", kafka_version=kafka).decode().splitlines():
            key_text, api, version_text, oldest, latest, *header_versions = line.split("\t")
            key, version = int(key_text), int(version_text)
            if not ApiKeys.is_known(key) or (kafka == OLD_KAFKA and not _is_dropped(key, version)):
                continue
            if ApiKeys.name_of(key) in DROPPED_APIS or kafka != OLD_KAFKA:
                seen.add(key)
                assert (version == ApiKeys.oldest_version(key)) == (oldest == "true")
                assert (version == ApiKeys.latest_version(key)) == (latest == "true")
            else:
                assert (version == ApiKeys.oldest_served_version(key)) == (oldest == "true")
            assert ApiKeys.name_of(key) == api
            ours = headers.request_header_version(key, version), headers.response_header_version(key, version)
            assert [str(header_version) for header_version in ours] == header_versions
    assert seen == set(ApiKeys.all())


def test_committed_files_equal_generator_output() -> None:
    generator = Path(__file__).parents[2] / "tools" / "protocol" / "generate.py"
    folders = ["--lib", str(artifacts.lib_folder()), "--old-lib", str(artifacts.old_lib_folder(OLD_KAFKA))]
    command = [sys.executable, str(generator), *folders, "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
