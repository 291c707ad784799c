"""The same questions to the embedded broker and to a real one are answered the same, in every version of the APIs."""

from __future__ import annotations

import json

import pytest

from tests.support.any_kafka import AnyKafka
from tests.testing.group.conversation import ANSWERS, ROUNDS, converse


@pytest.mark.parametrize("name", ROUNDS)
def test_answers_are_kafkas(any_kafka: AnyKafka, name: str) -> None:
    expected = json.loads(ANSWERS.read_text())[name]
    assert converse(any_kafka, name) == expected
