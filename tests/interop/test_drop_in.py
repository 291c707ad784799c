"""A program for kafka-python gets the same results with only its imports changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.any_kafka import AnyKafka

PROGRAMS = Path(__file__).with_name("programs")


def load(name: str, package: str) -> Callable[[str, str, str], list[Any]]:
    """Return the program's ``run``, with its imports from ``package``."""
    text, changed = re.subn(r"(?m)^(from|import) kafka\b", rf"\1 {package}", (PROGRAMS / f"{name}.py").read_text())
    assert changed
    namespace: dict[str, Any] = {"__name__": f"{name}_{package}"}
    exec(compile(text, f"{name} with {package}", "exec"), namespace)
    run: Callable[[str, str, str], list[Any]] = namespace["run"]
    return run


@pytest.mark.filterwarnings("ignore:.* does not implement:DeprecationWarning")  # of kafka-python
@pytest.mark.parametrize("name", ["produce", "consume", "faults"])
def test_example_programs_need_only_another_import(any_kafka: AnyKafka, topic: str, group_id: str, name: str) -> None:
    seen = {}
    for package in ("kafka", "pykclient"):
        any_kafka.create_topic(topic, 2, config={"max.message.bytes": 10_000} if name == "faults" else {})
        seen[package] = load(name, package)(any_kafka.bootstrap_servers, topic, f"{group_id}-{package}")
        any_kafka.delete_topic(topic)  # so the second run starts like the first
    theirs, ours = ([plain(value, f"{group_id}-{package}") for value in seen[package]] for package in seen)
    assert ours == theirs


def plain(value: Any, group_id: str) -> str:
    """Return a value as text, so that tuples compare by content and not by class."""
    return repr(value).replace(group_id, "group")
