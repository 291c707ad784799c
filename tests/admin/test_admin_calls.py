"""The mechanism of all calls: routing, retries, partial failures, deadlines, lost connections, threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pykclient import errors
from pykclient.admin import Admin, ConfigResource
from pykclient.admin.admin_calls import AdminCall, Deadline, RetryPolicy
from pykclient.admin.topics import DeleteTopicsHandler
from pykclient.errors import (
    DisconnectError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RemoteProtocolError,
    UseAfterForkError,
)
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from pykclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from pykclient.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.testing import EmbeddedCluster
from tests.admin.harness import LOST, SILENT, cluster, typed
from tests.support.interrupts import places
from tests.support.wait import eventually


def created(codes: dict[str, int]) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.CreatableTopicResult(name=name, error_code=code, error_message=None)
            for name, code in codes.items()
        ]
    )


def deleted(codes: dict[str, int]) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeleteTopicsResponse.DeletableTopicResult(name=name, error_code=code, error_message=None)
            for name, code in codes.items()
        ]
    )


def described(name: str, partitions: int, copies: int) -> MetadataResponse:
    partition = MetadataResponse.MetadataResponsePartition
    return MetadataResponse(
        topics=[
            MetadataResponse.MetadataResponseTopic(
                name=name,
                partitions=[
                    partition(partition_index=index, leader_id=1, replica_nodes=list(range(1, copies + 1)))
                    for index in range(partitions)
                ],
            )
        ]
    )


def in_turn(*answers: Any) -> Callable[[int, Any], Any]:
    """Return a function that gives each of ``answers``, and the last one again and again."""
    left = list(answers)
    return lambda _node, _request: left.pop(0) if len(left) > 1 else left[0]


# --- routing and retries ---


def test_calls_follow_controller_to_new_broker() -> None:
    def answer(node: int, _request: Any) -> Any:
        return created({"a": 0 if node == 2 else errors.NotControllerError.code})

    admin, brokers = typed(answer)
    brokers.prepare_metadata_update(cluster(controller=2))
    with admin:
        assert admin.create_topics(["a"]).all()["a"].name == "a"
    assert [node for node, _ in brokers.received] == [1, 2]


def test_calls_for_any_broker_go_to_controller_that_a_broker_is_not() -> None:
    def answer(node: int, request: Any) -> Any:
        code = 0 if node == 3 else errors.NotControllerError.code
        result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
            error_code=code, error_message=None, resource_type=2, resource_name="a"
        )
        return IncrementalAlterConfigsResponse(responses=[result])

    admin, brokers = typed(answer, metadata=cluster(controller=3))
    with admin:
        admin.incremental_alter_configs([ConfigResource("topic", "a", {"retention.ms": 1})]).all()
    assert [node for node, _ in brokers.received][-1] == 3
    assert len(brokers.received) <= 2


def test_only_items_with_retriable_errors_are_retried() -> None:
    throttled = errors.ThrottlingQuotaExceededError.code
    policy = errors.PolicyViolationError.code
    admin, brokers = typed(
        in_turn(created({"a": 0, "b": throttled, "c": policy, "d": throttled}), created({"b": 0, "d": 36}))
    )
    with admin:
        results = admin.create_topics(["a", "b", "c", "d"])
    assert set(results.succeeded) == {"a", "b"}
    assert {name: type(error) for name, error in results.failed.items()} == {
        "c": errors.PolicyViolationError,
        "d": errors.TopicExistsError,
    }
    assert [[topic.name for topic in request.topics] for _, request in brokers.received] == [
        ["a", "b", "c", "d"],
        ["b", "d"],
    ]
    with pytest.raises(errors.PolicyViolationError):
        results["c"]
    with pytest.raises(errors.PolicyViolationError):
        results.all()
    assert len(results) == 4
    assert "c" in results


def test_authorization_errors_are_the_matching_class_and_not_retried() -> None:
    admin, brokers = typed(in_turn(created({"a": errors.TopicAuthorizationError.code})))
    with admin:
        assert isinstance(admin.create_topics(["a"]).failed["a"], errors.TopicAuthorizationError)
    assert len(brokers.received) == 1


def test_a_response_without_an_item_is_an_error_of_that_item() -> None:
    admin, _ = typed(in_turn(created({"a": 0, "x": 0})))
    with admin:
        results = admin.create_topics(["a", "b"])
    assert set(results.succeeded) == {"a"}
    assert isinstance(results.failed["b"], RemoteProtocolError)


def test_call_is_pending_while_response_is_handled() -> None:
    # Another thread, which waits for the call, may look at any moment.
    class Backoff(ExponentialBackoff):
        def backoff(self, attempts: int) -> int:
            seen.append(call.is_done)
            return 0

    seen: list[bool] = []
    policy = RetryPolicy(Backoff(1, 10, jitter=0.0), 5, 1_000)
    call = AdminCall(DeleteTopicsHandler(), ["a"])
    call.begin(Deadline(1_000, 1_000), policy, uses_controllers=False)
    (attempt,), _ = call.poll(0)
    attempt.fail(DisconnectError("lost"), 0)
    assert seen == [False]
    assert not call.is_done
    call.fail(KafkaError("over"))
    assert call.is_done


def test_retries_end_with_the_last_error() -> None:
    admin, brokers = typed(in_turn(created({"a": errors.NotControllerError.code})), retries=3)
    with admin:
        assert isinstance(admin.create_topics(["a"]).failed["a"], errors.NotControllerError)
    assert len(brokers.received) == 4


def test_retries_back_off_until_deadline_and_error_tells_history() -> None:
    admin, brokers = typed(in_turn(created({"a": errors.NotControllerError.code})))
    start_ms = brokers.mock_clock.now_ms()
    with admin:
        error = admin.create_topics(["a"], timeout_ms=10_000).failed["a"]
    assert brokers.mock_clock.now_ms() - start_ms == 10_000
    assert 5 < len(brokers.received) < 30  # 100 ms, doubled up to 1 s, with jitter
    assert isinstance(error, KafkaTimeoutError)
    assert isinstance(error.__cause__, errors.NotControllerError)
    text = str(error)
    for part in ("create_topics", "'a'", "10000 ms", "NotControllerError", f"{len(brokers.received)} attempts failed"):
        assert part in text


def test_request_timeout_is_remaining_time_of_call() -> None:
    admin, brokers = typed(in_turn(created({"a": errors.NotControllerError.code}), created({"a": 0})))
    with admin:
        admin.create_topics(["a"], timeout_ms=5_000).all()
    first, second = [request.timeout_ms for _, request in brokers.received]
    assert first == 5_000
    assert second < 5_000
    admin, brokers = typed(in_turn(created({"a": 0})), request_timeout_ms=2_000)
    with admin:
        admin.create_topics(["a"], timeout_ms=50_000).all()
    assert brokers.received[0][1].timeout_ms == 2_000  # else the connection would be closed before the response


def test_silent_broker_raises_timeout_that_names_possible_effects() -> None:
    admin, _ = typed(in_turn(SILENT))
    with admin:
        error = admin.create_topics(["a"], timeout_ms=3_000).failed["a"]
    assert isinstance(error, KafkaTimeoutError)
    assert "the broker has not answered" in str(error)
    assert "may have been carried out" in str(error)


# --- lost connections ---


def test_matching_topic_after_lost_response_counts_as_created() -> None:
    def answer(_node: int, request: Any) -> Any:
        return described("a", 3, 2) if isinstance(request, MetadataRequest) else next(answers)

    for wanted, is_ours in ((3, True), (4, False)):
        answers = iter([LOST, created({"a": errors.TopicExistsError.code})])
        admin, _ = typed(answer)
        with admin:
            results = admin.create_topics({"a": {"num_partitions": wanted}})
        assert ("a" in results.succeeded) is is_ours
        if is_ours:
            assert results["a"].num_partitions == 3
            assert results["a"].replication_factor == 2


def test_broker_without_new_topic_is_asked_again() -> None:
    def answer(_node: int, request: Any) -> Any:
        return next(described_later if isinstance(request, MetadataRequest) else answers)

    unknown = MetadataResponse(
        topics=[MetadataResponse.MetadataResponseTopic(name="a", error_code=errors.UnknownTopicOrPartitionError.code)]
    )
    answers = iter([LOST, created({"a": errors.TopicExistsError.code})])
    described_later = iter([unknown] * 10 + [described("a", 3, 2)])
    admin, _ = typed(answer)
    with admin:
        assert admin.create_topics({"a": {"num_partitions": 3}}).all()["a"].num_partitions == 3


def test_topic_existing_before_first_attempt_is_error() -> None:
    admin, brokers = typed(in_turn(created({"a": errors.TopicExistsError.code})))
    with admin:
        assert isinstance(admin.create_topics({"a": {"num_partitions": 3}}).failed["a"], errors.TopicExistsError)
    assert all(isinstance(request, CreateTopicsRequest) for _, request in brokers.received)


@pytest.mark.parametrize("latency_ms", [10, 2_000])
def test_error_names_possible_effect_of_repeated_request(latency_ms: int) -> None:
    def answer(_node: int, request: Any) -> Any:
        brokers.mock_clock.advance(latency_ms)
        if isinstance(request, CreateTopicsRequest):
            return created({"a": errors.TopicExistsError.code})
        return deleted({"a": errors.UnknownTopicOrPartitionError.code})

    admin, brokers = typed(answer)
    with admin:
        exists = admin.create_topics(["a"]).failed["a"]
        gone = admin.delete_topics(["a"]).failed["a"]
    assert (type(exists), type(gone)) == (errors.TopicExistsError, errors.UnknownTopicOrPartitionError)
    was_slow = latency_ms > 100
    assert ("may be the one that this call has created" in str(exists)) is was_slow
    assert ("this call may have deleted the topic" in str(gone)) is was_slow
    assert ("took 2000 ms" in str(exists)) is was_slow


def test_topic_missing_after_lost_response_counts_as_deleted() -> None:
    gone = errors.UnknownTopicOrPartitionError.code
    admin, _ = typed(in_turn(LOST, deleted({"a": gone})))
    with admin:
        assert admin.delete_topics(["a"]).all() == {"a": None}
    admin, brokers = typed(in_turn(deleted({"a": gone})))
    with admin:
        assert isinstance(admin.delete_topics(["a"]).failed["a"], errors.UnknownTopicOrPartitionError)
    assert len(brokers.received) == 1
    assert isinstance(brokers.received[0][1], DeleteTopicsRequest)


def test_repeatedly_lost_connections_end_in_timeout() -> None:
    admin, brokers = typed(in_turn(LOST))
    with admin:
        error = admin.create_topics(["a"], timeout_ms=5_000).failed["a"]
    assert isinstance(error.__cause__, DisconnectError)
    assert len(brokers.received) > 3


def test_unreachable_broker_delays_call_only_until_it_returns() -> None:
    admin, brokers = typed(in_turn(created({"a": 0})))
    assert brokers.metadata is not None
    controller = brokers.metadata.fetch().controller
    assert controller is not None
    brokers.backoff(controller, 2_000)
    start_ms = brokers.mock_clock.now_ms()
    with admin:
        admin.create_topics(["a"]).all()
    assert brokers.mock_clock.now_ms() - start_ms >= 2_000


def test_failed_authentication_fails_the_call_at_once() -> None:
    admin, brokers = typed(in_turn(created({"a": 0})))
    assert brokers.metadata is not None
    controller = brokers.metadata.fetch().controller
    assert controller is not None
    brokers.create_pending_authentication_error(controller, 1_000)
    with admin:
        assert isinstance(admin.create_topics(["a"]).failed["a"], errors.AuthenticationError)
    assert not brokers.received


# --- many items, and wrong ones ---


def test_thousands_of_items_share_a_request() -> None:
    names = [f"t{index}" for index in range(5_000)]
    admin, brokers = typed(lambda _node, request: created({topic.name: 0 for topic in request.topics}))
    with admin:
        assert list(admin.create_topics(names).all()) == names
    assert len(brokers.received) == 1


WRONG: list[tuple[str, Callable[[Admin], Any]]] = [
    ("new_topics is 'abc'; it must be a list", lambda admin: admin.create_topics("abc")),
    ("new_topics is empty", lambda admin: admin.create_topics([])),
    ("new_topics is 7", lambda admin: admin.create_topics(7)),  # type: ignore[arg-type]
    ("the name of a topic is 5", lambda admin: admin.create_topics([5])),  # type: ignore[list-item]
    ("twice", lambda admin: admin.create_topics(["a", "a"])),
    ("cannot be encoded", lambda admin: admin.create_topics(["\ud800"])),
    ("32767", lambda admin: admin.create_topics(["a" * 40_000])),
    ("num_partitions of topic 'a' is '3'", lambda admin: admin.create_topics({"a": {"num_partitions": "3"}})),
    ("num_partitions of topic 'a' is True", lambda admin: admin.create_topics({"a": {"num_partitions": True}})),
    ("from -1 to", lambda admin: admin.create_topics({"a": {"num_partitions": 1 << 40}})),
    ("unknown options: ['partitions']", lambda admin: admin.create_topics({"a": {"partitions": 3}})),
    ("config 'retention.ms'", lambda admin: admin.create_topics({"a": {"configs": {"retention.ms": b"1"}}})),
    ("validate_only is 1", lambda admin: admin.create_topics(["a"], validate_only=1)),  # type: ignore[arg-type]
    ("timeout_ms is -1", lambda admin: admin.create_topics(["a"], timeout_ms=-1)),
    ("timeout_ms is 'x'", lambda admin: admin.create_topics(["a"], timeout_ms="x")),  # type: ignore[arg-type]
    ("topics is 'abc'", lambda admin: admin.delete_topics("abc")),
    ("topics[0] is None", lambda admin: admin.delete_topics([None])),  # type: ignore[list-item]
    ("the partition count of topic 'a' is 0", lambda admin: admin.create_partitions({"a": 0})),
    ("topic_partitions is", lambda admin: admin.create_partitions(["a"])),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("message", "call"), WRONG, ids=[message for message, _ in WRONG])
def test_a_wrong_argument_is_an_error_before_anything_is_sent(message: str, call: Callable[[Admin], Any]) -> None:
    admin, brokers = typed(in_turn(LOST))
    with admin, pytest.raises(IllegalArgumentError) as caught:
        call(admin)
    assert message in str(caught.value)
    assert not brokers.received


def test_without_items_nothing_is_sent() -> None:
    admin, brokers = typed(in_turn(LOST))
    with admin:
        assert not len(admin.delete_topics([]))
        assert not len(admin.describe_topics([]))
        assert not len(admin.create_partitions({}))
    assert not brokers.received


# --- the life of a client ---


def test_closed_client_refuses_calls_but_can_be_closed_again() -> None:
    admin, brokers = typed(in_turn(created({"a": 0})))
    admin.close()
    admin.close()
    assert not brokers.active
    with pytest.raises(IllegalStateError, match="closed"):
        admin.create_topics(["a"])
    with pytest.raises(IllegalStateError, match="closed"), admin:
        pass


def test_unclosed_client_warns() -> None:
    admin, _ = typed(in_turn(LOST))
    with pytest.warns(ResourceWarning, match="never closed"):
        del admin


def test_exception_in_poll_fails_calls_but_not_client() -> None:
    def answer(_node: int, _request: Any) -> Any:
        if not failed:
            failed.append(True)
            raise ZeroDivisionError("a bug")
        return created({"a": 0})

    failed: list[bool] = []
    admin, _ = typed(answer)
    with admin:
        error = admin.create_topics(["a"]).failed["a"]
        assert isinstance(error.__cause__, ZeroDivisionError)
        admin.create_topics(["a"]).all()


def test_an_interrupted_call_leaves_the_client_usable() -> None:
    def answer(_node: int, _request: Any) -> Any:
        if not failed:
            failed.append(True)
            raise KeyboardInterrupt
        return created({"a": 0})

    failed: list[bool] = []
    admin, brokers = typed(answer)
    with admin:
        with pytest.raises(KeyboardInterrupt):
            admin.create_topics(["a"])
        assert set(admin.create_topics(["b", "a"]).succeeded) == {"a"}
    names = [[topic.name for topic in request.topics] for _, request in brokers.received]
    assert names == [["a"], ["b", "a"]]  # the interrupted call is not sent again


def test_a_call_inside_of_a_call_of_the_same_thread_is_refused() -> None:
    def answer(_node: int, _request: Any) -> Any:
        with pytest.raises(IllegalStateError, match="wait for itself"):
            admin.list_topics()
        return created({"a": 0})

    admin, _ = typed(answer)
    with admin:
        admin.create_topics(["a"]).all()


# --- real connections ---


def test_many_threads_share_a_client() -> None:
    with EmbeddedCluster(3) as kafka, Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for index in range(5):
                    name = f"t{number}-{index}"
                    admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}}).all()
                    admin.delete_topics([name]).all()
            except BaseException as error:  # noqa: BLE001 - the assertion below shows it
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures
        assert not any(thread.is_alive() for thread in threads)
        assert admin.list_topics() == []


def test_close_ends_a_call_of_another_thread() -> None:
    with EmbeddedCluster(1) as kafka:
        admin = Admin(bootstrap_servers=kafka.bootstrap_servers)
        admin.list_topics()
        kafka.pause(next(iter(kafka.broker_ids)))
        caught: list[BaseException] = []

        def wait() -> None:
            try:
                admin.list_topics(timeout_ms=60_000)
            except KafkaError as error:
                caught.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: admin._driver._holder is not None, 20.0, "the call drives")
        start_s = time.monotonic()
        admin.close()
        thread.join(20)
        assert time.monotonic() - start_s < 10
        assert [type(error) for error in caught] == [IllegalStateError]


def test_timeout_without_brokers_tells_attempted_addresses() -> None:
    with Admin(bootstrap_servers="127.0.0.1:1") as admin, pytest.raises(KafkaTimeoutError) as caught:
        admin.list_topics(timeout_ms=300)
    text = str(caught.value)
    for part in ("list_topics", "300 ms", "127.0.0.1:1", "bootstrap.servers"):
        assert part in text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_refused() -> None:
    with EmbeddedCluster(1) as kafka, Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.list_topics()
        child = os.fork()
        if not child:
            try:
                admin.list_topics()
            except UseAfterForkError:
                admin.close()
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        admin.list_topics()


def create(admin: Admin) -> None:
    admin.create_topics(["a"]).all()


def test_exception_anywhere_in_call_leaves_client_usable() -> None:
    def answer(_node: int, request: Any) -> Any:
        return created({topic.name: 0 for topic in request.topics})

    for place in places():
        with place:
            admin, brokers = typed(answer)
            place.interrupt(partial(create, admin))
            start_ms = brokers.mock_clock.now_ms()
            assert admin.create_topics(["b"]).all().keys() == {"b"}
            assert brokers.mock_clock.now_ms() - start_ms < 5_000
            admin.close()


def test_signal_handler_call_is_refused_or_served() -> None:
    def answer(_node: int, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return cluster()
        return created({topic.name: 0 for topic in request.topics})

    def handler() -> None:
        try:
            current[0].list_topics()
            outcomes.add("served")
        except IllegalStateError:
            outcomes.add("refused")

    outcomes: set[str] = set()
    current: list[Admin] = []
    for place in places(run=handler):
        with place:
            admin, _ = typed(answer)
            current[:] = [admin]
            assert place.interrupt(partial(create, admin)) is None
            assert admin.create_topics(["b"]).all().keys() == {"b"}
            admin.close()
    assert outcomes == {"served", "refused"}
