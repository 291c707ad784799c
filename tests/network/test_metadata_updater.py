from __future__ import annotations

from pykclient.network.metadata_updater import TopicErrorLog
from pykclient.protocol.messages.metadata import MetadataResponse

LEADER_NOT_AVAILABLE = 5
UNKNOWN_TOPIC = 3
NOT_AUTHORIZED = 29


def response(error_code: int, name: str = "a") -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name=name, error_code=error_code)])


def test_new_topic_without_leader_logs_no_warning() -> None:
    log = TopicErrorLog()
    assert log.news(response(LEADER_NOT_AVAILABLE), 0) == []
    assert log.news(response(LEADER_NOT_AVAILABLE), 1999) == []
    assert log.news(response(0), 2000) == []
    assert log.news(response(LEADER_NOT_AVAILABLE), 5000) == []


def test_persistent_error_is_logged_once_until_it_disappears() -> None:
    log = TopicErrorLog()
    assert log.news(response(UNKNOWN_TOPIC), 0) == []
    assert log.news(response(UNKNOWN_TOPIC), 2000) == ["Topic 'a' does not exist (yet)"]
    assert log.news(response(UNKNOWN_TOPIC), 9000) == []
    log.news(response(0), 9100)
    log.news(response(UNKNOWN_TOPIC), 9200)
    assert log.news(response(UNKNOWN_TOPIC), 11_200) == ["Topic 'a' does not exist (yet)"]


def test_non_retriable_error_is_logged_at_once() -> None:
    log = TopicErrorLog()
    assert log.news(response(NOT_AUTHORIZED), 0) == ["Not authorized to access topic 'a'"]
    assert log.news(response(NOT_AUTHORIZED), 10) == []
    assert log.news(response(LEADER_NOT_AVAILABLE), 20) == []
    assert log.news(response(LEADER_NOT_AVAILABLE), 2020) == ["Topic 'a' has no leader yet"]


def test_error_of_each_topic_is_timed_separately() -> None:
    log = TopicErrorLog()
    log.news(response(UNKNOWN_TOPIC, "a"), 0)
    log.news(response(UNKNOWN_TOPIC, "b"), 1500)
    assert log.news(response(UNKNOWN_TOPIC, "b"), 2500) == []
    assert log.news(response(UNKNOWN_TOPIC, "a"), 2500) == ["Topic 'a' does not exist (yet)"]


def test_persistent_error_is_logged_every_minute_with_duration() -> None:
    log = TopicErrorLog()
    told = [(now_ms, text) for now_ms in range(0, 130_001, 500) for text in log.news(response(UNKNOWN_TOPIC), now_ms)]
    assert told == [
        (2_000, "Topic 'a' does not exist (yet)"),
        (62_000, "Topic 'a' does not exist (yet), for 62 s now"),
        (122_000, "Topic 'a' does not exist (yet), for 122 s now"),
    ]


def test_topics_with_the_same_error_share_a_line() -> None:
    def answer(*names: str) -> MetadataResponse:
        return MetadataResponse(
            topics=[MetadataResponse.MetadataResponseTopic(name=name, error_code=NOT_AUTHORIZED) for name in names]
        )

    assert TopicErrorLog().news(answer("a", "b"), 0) == ["Not authorized to access topics 'a', 'b'"]
    (line,) = TopicErrorLog().news(answer(*(f"t{number}" for number in range(100))), 0)
    assert line.endswith("'t9' and 90 more")


def test_error_without_description_is_logged_by_name() -> None:
    assert TopicErrorLog().news(response(-1), 0) == ["No metadata of topic 'a': UnknownServerError"]
