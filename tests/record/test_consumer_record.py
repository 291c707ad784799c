"""Both forms of ConsumerRecord, in one process: the same calls have the same results, or raise the same errors."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from pykclient import consumer_record, types
from pykclient.consumer_record_base import RECORD_SLOTS, ConsumerRecordBase
from tests.support.twins import both_forms

Form = Any  # a class of records

FORMS: tuple[Form, ...] = both_forms("pykclient.consumer_record", "ConsumerRecord")
PYTHON = FORMS[0]

HEADERS = (("a", b"1"), ("b", None))
ARGUMENTS = ("orders", 3, 5, 17, 1_700_000_000_000, 0, b"key", "value", HEADERS, None, 3, 5)


def made(form: Form) -> Any:
    return form(*ARGUMENTS)


def subclass_of(form: Form) -> Any:
    return type("Order", (form,), {"total": property(lambda self: self.value * 2)})


def outcome(work: Callable[[Form], Any], form: Form) -> Any:
    try:
        return work(form)
    except Exception as error:  # noqa: BLE001 - both forms must raise it
        return type(error), str(error)


def attributes(record: Any) -> list[Any]:
    return [getattr(record, name, "no value") for name in types.ConsumerRecord.__slots__]


def changed(name: str, value: object) -> Callable[[Form], Any]:
    def work(form: Form) -> Any:
        record = made(form)
        setattr(record, name, value)
        return record, attributes(record)

    return work


def deleted(*names: str) -> Callable[[Form], Any]:
    def work(form: Form) -> Any:
        record = made(form)
        for name in names:
            delattr(record, name)
        return attributes(record), hasattr(record, names[0]), getattr(record, names[0])

    return work


def matched(form: Form) -> Any:
    match made(form):
        case ConsumerRecordBase("orders", partition, offset=offset, value=value):
            return partition, offset, value
    return None


WORK: dict[str, Callable[[Form], Any]] = {
    "positions": made,
    "keywords": lambda form: form(**dict(zip(form._fields, ARGUMENTS, strict=False))),
    "keywords and positions": lambda form: form(*ARGUMENTS[:8], headers=[("a", b"")]),
    "too few": lambda form: form("orders", 3),
    "too many": lambda form: form(*ARGUMENTS, 1, 2, 3),
    "twice": lambda form: form(*ARGUMENTS, topic="orders"),
    "unknown keyword": lambda form: form(*ARGUMENTS, size=3),
    "without init": lambda form: attributes(form.__new__(form)),
    "text without init": lambda form: repr(form.__new__(form)),
    "text": lambda form: repr(made(form)),
    "hash": lambda form: hash(made(form)),
    "unhashable": lambda form: hash(form([], *ARGUMENTS[1:])),
    "fields": lambda form: form._fields,
    "slots": lambda form: form.__slots__,
    "names": lambda form: [name for name in dir(form) if name != "__slotnames__"],  # made by copyreg
    "documentation": lambda form: (inspect.getdoc(form), form.__doc__, form.__name__, form.__qualname__),
    "module": lambda form: form.__module__,
    "signature": lambda form: str(inspect.signature(form)),
    "parameters": lambda form: repr(form[int, str]),
    "as tuple": lambda form: tuple(made(form)),
    "index": lambda form: (made(form)[0], made(form)[-1], made(form)[2:5]),
    "outside": lambda form: made(form)[99],
    "as dict": lambda form: made(form)._asdict(),
    "make": lambda form: form._make(ARGUMENTS),
    "replace": lambda form: made(form)._replace(value=3, headers=()),
    "replace unknown": lambda form: made(form)._replace(size=3),
    "headers": lambda form: [made(form).headers, made(form).serialized_header_size],
    "set headers": changed("headers", (("c", b"x"),)),
    "set read-only": changed("checksum", 3),
    "set another attribute": lambda form: vars(changed("size", 3)(form)[0]),
    "copy with another attribute": lambda form: vars(copy.copy(changed("size", 3)(form)[0])),
    "delete another attribute": lambda form: vars(changed("size", 3)(form)[0]).pop("size"),
    "attributes replaced": lambda form: changed("__dict__", {"size": 3})(form)[0].size,
    "get unknown": lambda form: made(form).size,
    "set value": changed("value", ["a", "list"]),
    "set key": changed("key", None),
    "set offset": changed("offset", "no number"),
    "delete": deleted("key"),
    "delete twice": deleted("value", "value"),
    "delete unknown": deleted("size"),
    "match": matched,
    "dict": lambda form: made(form).__dict__,
    "weak reference": lambda form: weakref.ref(made(form)),
    "class attribute": lambda form: setattr(made(form), "_fields", ()),
    "copy": lambda form: copy.copy(made(form)),
    "deep copy": lambda form: copy.deepcopy(changed("value", ["a", ["list"]])(form)[0]),
    "order": lambda form: made(form) < made(form),
    "another kind": lambda form: made(form) == ARGUMENTS,
    "subclass": lambda form: attributes(subclass_of(form)(*ARGUMENTS)),
    "property of a subclass": lambda form: subclass_of(form)(*ARGUMENTS).total,
    "text of a subclass": lambda form: repr(subclass_of(form)(*ARGUMENTS)),
    "subclass with attributes": lambda form: vars(changed("more", 3)(subclass_of(form))[0]),
    "subclass of another too": lambda form: type("Both", (form, dict), {}),
}


@pytest.mark.parametrize("work", [pytest.param(work, id=name) for name, work in WORK.items()])
def test_python_and_c_records_behave_alike(work: Callable[[Form], Any]) -> None:
    python, c = (outcome(work, form) for form in FORMS)
    assert python == c
    assert c == python


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_python_and_c_records_are_equal(monkeypatch: pytest.MonkeyPatch, protocol: int) -> None:
    pickles = []
    for form in FORMS:
        monkeypatch.setattr(consumer_record, "ConsumerRecord", form)
        pickles.append(pickle.dumps(made(form), protocol))
        copied = pickle.loads(pickles[-1])
        assert type(copied) is form
        assert copied == made(form)
    assert pickles[0] == pickles[1]


def test_python_and_c_records_are_equal() -> None:
    python, c = (made(form) for form in FORMS)
    assert type(python) is not type(c)
    assert python == c
    assert hash(python) == hash(c)
    c.value = "another"
    assert python != c


def test_attributes_of_a_program_are_no_fields() -> None:
    for form in FORMS:
        record = made(form)
        record.consumer = "a program's own"
        assert record == made(form)
        assert "consumer" not in repr(record)
        with pytest.raises(AttributeError):
            _ = made(form).consumer  # not of the record before it, whose memory may be used again


def test_record_that_refers_to_itself_is_collected() -> None:
    class Watched:
        pass

    for form in FORMS:
        record = made(form)
        record.own = record
        record.watched = Watched()
        watched = weakref.ref(record.watched)
        del record
        gc.collect()
        assert watched() is None


def test_record_without_other_attributes_needs_one_pointer_for_them() -> None:
    for form in FORMS:
        assert made(form).__sizeof__() <= (len(RECORD_SLOTS) + 3) * 8


def test_record_fields_are_member_descriptors() -> None:
    for name in RECORD_SLOTS:
        for form in FORMS:
            assert inspect.ismemberdescriptor(vars(form)[name])


def test_delivery_count_does_not_affect_equality() -> None:
    for form in FORMS:
        record = form(*ARGUMENTS, delivery_count=2)
        assert record == made(form)
        assert made(form).delivery_count is None
        assert record._replace(offset=18).delivery_count == 2
        assert copy.copy(record).delivery_count == 2
        assert repr(record).endswith(", delivery_count=2)")
        assert "delivery_count" not in record._fields
