"""Kafka's own admin client as an oracle: a Java process that makes calls and tells all of their results."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pykclient import TopicPartition
from pykclient.admin import Results
from pykclient.admin.values import TopicPartitionReplica
from pykclient.types import Node
from tests.support.java import java_command


class JavaAdmin:
    """The process, which keeps a client for each cluster. A call that takes longer than 30 s is an error."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            java_command(Path(__file__).with_name("JavaAdmin.java")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def call(self, settings: str | Mapping[str, str], name: str, *arguments: Any) -> Any:
        """Make a call with a client of these settings, or of these bootstrap servers, and return what it tells."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        given = {"bootstrap.servers": settings} if isinstance(settings, str) else dict(settings)
        self._process.stdin.write(json.dumps([given, name, list(arguments)]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"the Java process ended: {self._errors.read().decode(errors='replace')[-4000:]}")
        return json.loads(line)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=20)
        self._errors.close()


@pytest.fixture(scope="session")
def java() -> Iterator[JavaAdmin]:
    """The process, one for the session: its start takes more than its calls."""
    made = JavaAdmin()
    yield made
    made.close()


def as_java(value: Any) -> Any:
    """Return a result of ours in the form of the oracle's: fields by the names of Java's methods, errors by class."""
    if isinstance(value, Results):
        told = {_key(key): as_java(found) for key, found in value.succeeded.items()}
        return told | {_key(key): as_java(error) for key, error in value.failed.items()}
    if isinstance(value, BaseException):
        return {"error": re.sub("Error$", "Exception", type(value).__name__), "message": str(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (TopicPartition, TopicPartitionReplica)):
        return _key(value)
    if isinstance(value, UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if isinstance(value, Node):
        return {"id": value.id, "host": value.host, "port": value.port, "rack": value.rack}
    if isinstance(value, Mapping):
        return {_key(key): as_java(found) for key, found in value.items()}
    if hasattr(value, "_asdict"):
        return {_camel(name): as_java(found) for name, found in value._asdict().items()}
    if isinstance(value, (set, frozenset)):
        return sorted(as_java(one) for one in value)
    if isinstance(value, (list, tuple)):
        return [as_java(one) for one in value]
    return value


def _key(value: Any) -> str:
    if isinstance(value, (TopicPartition, TopicPartitionReplica)):
        return "-".join(str(part) for part in value)
    return str(value)


def _camel(name: str) -> str:
    return re.sub("_([a-z])", lambda found: found[1].upper(), name)


def in_order(told: Any, *names: str) -> Any:
    """Return a result with the lists of these fields sorted: Java tells them in the order of a set."""
    if isinstance(told, dict):
        return {
            name: sorted(found, key=json.dumps) if name in names and found is not None else in_order(found, *names)
            for name, found in told.items()
        }
    return [in_order(one, *names) for one in told] if isinstance(told, list) else told


#: Names of errors that differ from Java's classes by more than their ending.
_NAMES = {"NonEmptyGroupException": "GroupNotEmptyException"}


def errors_of(told: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the class of each item's error, None for success."""
    found = {key: item["error"] if isinstance(item, dict) and "error" in item else None for key, item in told.items()}
    return {key: _NAMES.get(error or "", error) for key, error in found.items()}
