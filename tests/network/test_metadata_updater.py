from __future__ import annotations

from pykclient.network.metadata_updater import TopicErrorLog
from pykclient.protocol.messages.metadata import MetadataResponse

LEADER_NOT_AVAILABLE = 5
UNKNOWN_TOPIC = 3
NOT_AUTHORIZED = 29


def response(error_code: int, name: str = "a") -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name=name, error_code=error_code)])


def test_a_topic_that_is_being_made_is_not_worth_a_warning() -> None:
    log = TopicErrorLog()
    assert log.news(response(LEADER_NOT_AVAILABLE), 0) == {}
    assert log.news(response(LEADER_NOT_AVAILABLE), 1999) == {}
    assert log.news(response(0), 2000) == {}
    assert log.news(response(LEADER_NOT_AVAILABLE), 5000) == {}


def test_an_error_that_stays_is_told_once_and_again_after_it_was_gone() -> None:
    log = TopicErrorLog()
    assert log.news(response(UNKNOWN_TOPIC), 0) == {}
    assert log.news(response(UNKNOWN_TOPIC), 2000) == {"a": "UnknownTopicOrPartitionError"}
    assert log.news(response(UNKNOWN_TOPIC), 9000) == {}
    log.news(response(0), 9100)
    log.news(response(UNKNOWN_TOPIC), 9200)
    assert log.news(response(UNKNOWN_TOPIC), 11_200) == {"a": "UnknownTopicOrPartitionError"}


def test_an_error_that_will_not_pass_is_told_at_once_and_so_is_a_new_one() -> None:
    log = TopicErrorLog()
    assert log.news(response(NOT_AUTHORIZED), 0) == {"a": "TopicAuthorizationError"}
    assert log.news(response(NOT_AUTHORIZED), 10) == {}
    assert log.news(response(LEADER_NOT_AVAILABLE), 20) == {}
    assert log.news(response(LEADER_NOT_AVAILABLE), 2020) == {"a": "LeaderNotAvailableError"}


def test_topics_are_told_apart() -> None:
    log = TopicErrorLog()
    log.news(response(UNKNOWN_TOPIC, "a"), 0)
    log.news(response(UNKNOWN_TOPIC, "b"), 1500)
    assert log.news(response(UNKNOWN_TOPIC, "b"), 2500) == {}
    assert log.news(response(UNKNOWN_TOPIC, "a"), 2500) == {"a": "UnknownTopicOrPartitionError"}
