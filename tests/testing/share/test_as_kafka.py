"""The embedded broker responds like a real one to the requests of share consumers."""

from __future__ import annotations

import json

import pytest

from tests.support.any_kafka import AnyKafka
from tests.testing.share.conversation import ANSWERS, ROUNDS, converse


@pytest.mark.parametrize("name", ROUNDS)
def test_responses_equal_kafkas(any_kafka: AnyKafka, name: str) -> None:
    expected = json.loads(ANSWERS.read_text())[name]
    assert converse(any_kafka, name) == expected
