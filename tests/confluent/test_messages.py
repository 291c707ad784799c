"""Messages, deliveries and reports: the compiled forms equal those in Python."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pykclient.confluent import Consumer, KafkaError, Producer, TopicPartition
from pykclient.confluent.message import (
    ConsumingState,
    Delivery,
    Message,
    ProducingState,
    Reports,
    consumed,
    delivery_error,
)
from pykclient.consumer_record import ConsumerRecord
from pykclient.errors import NotEnoughReplicasError
from pykclient.implementation import python_form
from pykclient.producer.future import FutureRecordMetadata, ProduceRequestResult
from pykclient.producer.outbox import add_delivery
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition as Native

_GETTERS = (
    "topic",
    "partition",
    "offset",
    "key",
    "value",
    "headers",
    "error",
    "timestamp",
    "latency",
    "leader_epoch",
    "delivery_count",
)

_MAYBE_BYTES = st.none() | st.binary(max_size=5)
_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.none() | st.text(max_size=3),
        "partition": st.integers(-3, 5),
        "offset": st.integers(-2000, 5),
        "key": _MAYBE_BYTES,
        "value": _MAYBE_BYTES,
        "headers": st.none() | st.lists(st.tuples(st.text(max_size=2), _MAYBE_BYTES), max_size=2),
        "error": st.none() | st.just(KafkaError(3)),
        "timestamp": st.none() | st.just("later") | st.tuples(st.integers(0, 2), st.integers()),
        "latency": st.floats(-1, 2),
        "leader_epoch": st.integers(-2, 3),
        "delivery_count": st.integers(-0x8001, 0x8001),
    },
)


def seen(message: Any) -> dict[str, Any]:
    return {name: getattr(message, name)() for name in _GETTERS} | {"len": len(message)}


def outcome(call: Any) -> Any:
    try:
        return call()
    except (TypeError, OverflowError) as error:
        return type(error), str(error)


@given(_FIELDS)
def test_messages_of_both_forms_show_the_same(fields: dict[str, Any]) -> None:
    forms = (Message, python_form(Message))
    first, second = (outcome(lambda form=form: seen(form(**fields))) for form in forms)
    assert first == second


@given(
    st.integers(-1, 1),
    st.none() | st.integers(0, 9),
    _MAYBE_BYTES,
    st.lists(st.tuples(st.text(max_size=2), _MAYBE_BYTES)),
)
def test_consumed_messages_of_both_forms_show_the_same(
    timestamp_type: int, epoch: int | None, key: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = ConsumerRecord("t", 1, epoch, 5, 123, timestamp_type, key, b"v", tuple(headers))
    assert seen(consumed(record)) == seen(python_form(consumed)(record))


def test_a_message_can_be_pickled_compared_and_changed() -> None:
    message: Message[Any, Any] = Message("t", 1, 2, b"k", b"v", [("a", b"b")], timestamp=(1, 5), latency=0.5)
    copy = pickle.loads(pickle.dumps(message))
    assert copy == message
    assert seen(copy) == seen(message)
    copy.set_value({"a": message})
    copy.set_headers(("any",))
    assert copy != message
    assert copy.value() == {"a": message}
    assert copy.headers() == ("any",)
    assert Message[bytes, bytes] is not None


def make_result(
    forms: bool, count: int, error: Exception | None = None, added: bool = True
) -> tuple[Any, list[Any], ProduceRequestResult]:
    """Return reports, their deliveries, and a batch's result, with these as its listeners if ``added``."""
    choose: Any = python_form if forms else (lambda form: form)
    reports = choose(Reports)(10, 100, False, lambda: None, delivery_error)
    result = ProduceRequestResult(Native("t", 2))
    result.set(100, -1, None if error is None else lambda _: error)
    result.record_count = count
    deliveries = []
    for index in range(count):
        delivery = choose(Delivery)(reports, "t", b"%d" % index, None, None, -1, 0, None)
        assert reports.admit(delivery)
        deliveries.append(delivery)
        if added:
            add_delivery(result.listeners, FutureRecordMetadata(result, index, 7 + index, -1, 1), delivery)
    return reports, deliveries, result


@pytest.mark.parametrize("in_python", [False, True])
def test_a_batch_reports_its_messages_in_order(in_python: bool) -> None:
    reports, deliveries, result = make_result(in_python, 3)
    told: list[Any] = []
    for delivery in deliveries:
        delivery.callback = lambda error, message: told.append(
            (error, message.value(), message.offset(), message.partition(), message.timestamp()[1])
        )
    assert len(result.listeners) == 1
    result.done()
    assert reports.unreported() == 3
    assert reports.serve() == 3
    assert told == [(None, b"0", 100, 2, 7), (None, b"1", 101, 2, 8), (None, b"2", 102, 2, 9)]
    assert reports.unreported() == 0
    assert reports.serve() == 0


@pytest.mark.parametrize("in_python", [False, True])
def test_listeners_of_other_kinds_are_called_beside_deliveries(in_python: bool) -> None:
    reports, deliveries, result = make_result(in_python, 4, added=False)
    other: list[Any] = []
    told: list[Any] = []

    def own(_error: Any, metadata: Any) -> None:
        other.append(metadata.offset)

    for index, on_delivery in enumerate((deliveries[0], own, deliveries[2], deliveries[3])):
        deliveries[index].callback = lambda _error, message: told.append(message.offset())
        add_delivery(result.listeners, FutureRecordMetadata(result, index, 7, -1, 1), on_delivery)
    result.listeners.append((result.listeners[0][0], lambda future: other.append(future.index), False))
    result.done()
    assert other == [0, 101]
    assert reports.serve() == 3
    assert told == [100, 102, 103]


@pytest.mark.parametrize("in_python", [False, True])
def test_messages_of_split_batches_are_reported_once_with_their_own_offsets(in_python: bool) -> None:
    reports, deliveries, result = make_result(in_python, 6)
    told: list[Any] = []
    for delivery in deliveries:
        delivery.callback = lambda error, message: told.append(
            (message.value(), message.offset(), message.timestamp()[1], error and error.code())
        )
    parts = [ProduceRequestResult(Native("t", 2)) for _ in range(3)]
    places = [(0, parts[0]), (1, parts[1]), (5, parts[2])]
    result.split(places)
    result.split(places)  # as after an exception
    deeper = [ProduceRequestResult(Native("t", 2)) for _ in range(2)]
    parts[1].split([(0, deeper[0]), (3, deeper[1])])
    for part, offset, count in ((parts[0], 10, 1), (deeper[0], 20, 3), (deeper[1], 30, 1)):
        part.set(offset, -1)
        part.record_count = count
        part.done()
    parts[2].set(-1, -1, lambda _: NotEnoughReplicasError("few"))
    parts[2].record_count = 1
    parts[2].done()
    assert reports.serve() == 6
    assert told == [
        (b"0", 10, 7, None),
        (b"1", 20, 8, None),
        (b"2", 21, 9, None),
        (b"3", 22, 10, None),
        (b"4", 30, 11, None),
        (b"5", None, 12, 19),
    ]


@pytest.mark.parametrize("in_python", [False, True])
def test_an_exception_of_a_callback_leaves_the_rest_for_later(in_python: bool) -> None:
    reports, deliveries, result = make_result(in_python, 3, NotEnoughReplicasError("few"))
    told: list[Any] = []

    def fail(_error: Any, _message: Any) -> None:
        raise ZeroDivisionError

    def tell(error: Any, message: Any) -> None:
        told.append((error.code(), message.error().code(), message.offset(), message.latency()))

    deliveries[0].callback = fail
    deliveries[1].callback = deliveries[2].callback = tell
    result.done()
    with pytest.raises(ZeroDivisionError):
        reports.serve()
    assert reports.unreported() == 2
    assert reports.serve() == 2
    assert told == [(19, 19, None, None)] * 2


@pytest.mark.parametrize("in_python", [False, True])
def test_reports_admit_up_to_the_limit(in_python: bool) -> None:
    choose: Any = python_form if in_python else (lambda form: form)
    reports = choose(Reports)(2, 5, False, lambda: None, delivery_error)

    def message(value: bytes | None) -> Any:
        return choose(Delivery)(reports, "t", value, None, None, -1, 0, None)

    first, second, third = message(None), message(None), message(b"12345")
    assert [reports.admit(each) for each in (first, second, message(None))] == [True, True, False]
    assert reports.forget(first)
    assert not reports.forget(first)  # counted no longer
    assert not reports.admit(message(b"123456"))
    assert reports.admit(third)
    assert (reports.unreported(), reports.unreported_bytes()) == (2, 5)
    reports.forget(second)
    assert not reports.admit(message(b"1"))
    reports.forget(third)
    assert reports.admit(message(b"1"))


@pytest.mark.parametrize("in_python", [False, True])
def test_callback_that_serves_reports_leaves_those_of_its_batch_to_its_caller(in_python: bool) -> None:
    reports, deliveries, result = make_result(in_python, 3)
    told: list[Any] = []

    def tell(_error: Any, message: Any) -> None:
        told.append(message.offset())
        assert reports.serve() == 0  # a batch may have more messages than calls can be nested

    for delivery in deliveries:
        delivery.callback = tell
    result.done()
    assert reports.serve() == 3
    assert told == [100, 101, 102]
    assert (reports.unreported(), len(reports)) == (0, 0)


@pytest.mark.parametrize("in_python", [False, True])
def test_a_message_that_was_reported_with_an_error_is_not_reported_again(in_python: bool) -> None:
    reports, deliveries, result = make_result(in_python, 2)
    told: list[Any] = []
    for delivery in deliveries:
        delivery.callback = lambda error, message: told.append((error, message.offset()))
    purged = deliveries[0].error = KafkaError(KafkaError._PURGE_QUEUE)
    reports.add([deliveries[0]])
    result.done()
    reports.serve()
    assert told == [(purged, None), (None, 101)]
    assert reports.unreported() == 0


@pytest.mark.parametrize(
    "arguments", [{"partition": "1"}, {"timestamp": 1.5}, {"timestamp": 2**63}, {"value": 1}, {"partition": 2**31}]
)
def test_wrong_arguments_of_produce_count_no_message(arguments: dict[str, Any]) -> None:
    with Producer({"bootstrap.servers": "127.0.0.1:1"}) as producer:
        for method in (ProducingState.produce, python_form(ProducingState).produce):
            with pytest.raises((TypeError, OverflowError)):
                method(producer, "t", **arguments)
        assert len(producer) == 0


def test_both_forms_of_poll_and_consume_return_the_same_messages() -> None:
    with EmbeddedCluster(1) as cluster:
        cluster.create_topic("t", 1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(50):
            producer.produce("t", str(number), str(number % 3), 0, headers={"h": b"1"} if number % 2 else None)
        assert producer.flush(30) == 0
        shown = []
        for form in (ConsumingState, python_form(ConsumingState)):
            consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
            consumer.assign([TopicPartition("t", 0, 0)])
            found: list[Any] = []
            while len(found) < 40:
                message = form.poll(consumer, 1.0)
                found += [] if message is None else [message]
            while len(found) < 50:
                form._hand_out_current(consumer, found, 50)
            assert [place.offset for place in consumer.position([TopicPartition("t", 0)])] == [50]
            consumer.close()
            producer.close()
            shown.append([seen(message) for message in found])
        assert shown[0] == shown[1]
        assert [message["offset"] for message in shown[0]] == list(range(50))


def test_times_of_messages_come_from_their_records() -> None:
    record = SimpleNamespace(
        topic="t",
        partition=0,
        offset=1,
        key=None,
        value=None,
        headers=(),
        timestamp=9,
        timestamp_type=-1,
        leader_epoch=None,
        delivery_count=2,
    )
    message = consumed(record)  # type: ignore[arg-type]
    assert message.timestamp() == (0, -1)
    assert message.delivery_count() == 2


@pytest.mark.parametrize("stranger", [None, 5, object()])
@pytest.mark.parametrize("method", [Message.topic, Message.headers, Message.__len__, Producer.poll, Consumer.poll])
def test_methods_refuse_objects_of_other_classes(method: Callable[[Any], object], stranger: object) -> None:
    with pytest.raises((TypeError, AttributeError)):
        method(stranger)
