"""Errors of this package that are also instances of their cause's class, so that programs can catch either.

Serializers and deserializers raise errors of their own. Java and this package wrap those errors, to add the record that
failed. Programs written for kafka-python catch the original class, such as ``json.JSONDecodeError``.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any, TypeVar, cast

from pykclient.errors import KafkaError, SerializationError

E = TypeVar("E", bound=KafkaError)

#: The flag of classes created by a class statement or its equivalent; the other classes are static, in C.
_HEAP_TYPE = 1 << 9

#: Loops would take the first two for their end; callers handle errors of this package by their own class.
_NEVER = (StopIteration, StopAsyncIteration, KafkaError)

#: Types of the cause's attributes that are pickled with the error.
_PLAIN = (bool, bytes, float, int, str, type(None))


def caused_by(error: E, cause: BaseException) -> E:
    """Return ``error`` as an instance of its own class and of ``cause``'s, with the attributes of both.

    Where both have an attribute, that of ``error`` wins; so does its text. Return ``error`` itself if no such class can
    exist, or if ``cause`` is an error of this package: callers should then handle ``error`` by its own class.
    """
    for cause_type in type(cause).__mro__:
        if cause_type is Exception or not issubclass(cause_type, Exception) or issubclass(cause_type, _NEVER):
            break
        made = _instance(type(error), cause_type, error.args, _attributes(cause), error.__dict__)
        if made is not None:
            return cast(E, made)
    return error


def innermost(error: BaseException) -> BaseException:
    """Return the original error of a serializer: the cause of a SerializationError, or else ``error`` itself."""
    while isinstance(error, SerializationError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def load_of(error: BaseException | None) -> Callable[[], Awaitable[object]] | None:
    """Return what to await before the deserializer that raised ``error`` can continue; None if it has failed.

    A deserializer of a schema registry must not block an event loop to ask the registry.
    """
    load: Callable[[], Awaitable[object]] | None = getattr(error, "load", None)
    return load


def _instance(
    error_type: type[Any],
    cause_type: type[Any],
    args: tuple[Any, ...],
    attributes: dict[str, Any],
    own_attributes: dict[str, Any],
) -> KafkaError | None:
    """Return an instance of both classes without calling either constructor; None if no such class can exist."""
    made_type = _class_of_both(error_type, cause_type)  # type: ignore[arg-type] # classes of errors can be hashed
    if made_type is None:
        return None
    static = next(base for base in made_type.__mro__ if not base.__flags__ & _HEAP_TYPE)
    try:
        made: KafkaError = cast(Any, static).__new__(made_type, *args)
    except TypeError:  # for instance an ExceptionGroup, which needs other arguments
        return None
    made.args = args
    for name, value in {**attributes, **own_attributes}.items():
        try:
            setattr(made, name, value)
        except (AttributeError, TypeError):
            # Only an attribute of the cause may be left out, for instance a computed one. Callers need the error's own.
            if name in own_attributes:
                return None
    return made


@lru_cache(maxsize=128)
def _class_of_both(error_type: type[Any], cause_type: type[Any]) -> type[KafkaError] | None:
    if issubclass(error_type, cause_type):
        return None
    namespace = {
        "__module__": error_type.__module__,
        "__qualname__": error_type.__qualname__,
        "__doc__": error_type.__doc__,
        "__str__": Exception.__str__,
        "__repr__": Exception.__repr__,
        "__eq__": object.__eq__,
        "__hash__": object.__hash__,
        "__reduce__": _reduce(error_type, cause_type),
    }
    try:
        return type(error_type.__name__, (error_type, cause_type), namespace)
    except Exception:  # noqa: BLE001 - whatever a class has against being a base: final, or __init_subclass__ raises
        return None


def _reduce(
    error_type: type[KafkaError], cause_type: type[BaseException]
) -> Callable[[KafkaError], tuple[Callable[..., KafkaError], tuple[Any, ...]]]:
    def reduce(self: KafkaError) -> tuple[Callable[..., KafkaError], tuple[Any, ...]]:
        own = error_type(*self.args).__dict__.keys()
        attributes = {name: value for name, value in _attributes(self).items() if name in own or type(value) in _PLAIN}
        own_attributes = {name: attributes.pop(name) for name in own}
        if notes := getattr(self, "__notes__", None):
            own_attributes["__notes__"] = notes
        return _rebuild, (
            error_type,
            cause_type if _can_be_found(cause_type) else None,
            self.args,
            attributes,
            own_attributes,
        )

    return reduce


def _rebuild(
    error_type: type[KafkaError],
    cause_type: type[BaseException] | None,
    args: tuple[Any, ...],
    attributes: dict[str, Any],
    own_attributes: dict[str, Any],
) -> KafkaError:
    made = None if cause_type is None else _instance(error_type, cause_type, args, attributes, own_attributes)
    if made is None:
        made = error_type(*args)
        made.__dict__.update(own_attributes)
    return made


def _attributes(error: BaseException) -> dict[str, Any]:
    """Return an error's attributes without its arguments: its dict, and the slots and C members of its classes."""
    members = {
        name
        for base in type(error).__mro__
        if base not in {BaseException, object}
        for name, attribute in vars(base).items()
        if isinstance(attribute, MemberDescriptorType)
    }
    held = {}
    for name in members:
        try:
            held[name] = getattr(error, name)
        except (AttributeError, TypeError):  # it was never set
            continue
    return {**held, **error.__dict__}


def _can_be_found(cls: type) -> bool:
    """Return True if pickle finds the class by its name."""
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is cls
