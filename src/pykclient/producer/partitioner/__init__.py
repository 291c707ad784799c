"""Partitioners, and the values of the ``partitioner.class`` setting that select them.

- ``partitioners``: the classes and their names
- ``hashing``: murmur2 of keys, one at a time and by columns
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import Any

from pykclient.argument_values import shown
from pykclient.errors import ConfigError
from pykclient.producer.partitioner.hashing import murmur2
from pykclient.producer.partitioner.partitioners import CallablePartitioner, Partitioner

__all__ = ["CallablePartitioner", "Partitioner", "murmur2", "resolve_partitioner"]

#: The names under which clients know the built-in partitioner's behaviour.
_BUILT_IN = frozenset({"DefaultPartitioner", "StickyPartitioner", "BuiltInPartitioner", "default"})

#: Names of Java (the last part of the class name), names of librdkafka, and our own.
_BY_NAME = {
    "RoundRobinPartitioner": "RoundRobinPartitioner",
    "UniformStickyPartitioner": "UniformStickyPartitioner",
    "Murmur3Partitioner": "Murmur3Partitioner",
    "consistent": "ConsistentPartitioner",
    "consistent_random": "ConsistentRandomPartitioner",
    "fnv1a": "Fnv1aPartitioner",
    "fnv1a_random": "Fnv1aRandomPartitioner",
    "murmur2": "Murmur2Partitioner",
    "murmur2_random": "Murmur2RandomPartitioner",
    "murmur3": "Murmur3Partitioner",
    "random": "RandomPartitioner",
}


def resolve_partitioner(value: Any, rng: Random | None = None) -> Partitioner | None:
    """Return the partitioner for a value of ``partitioner.class``; None stands for the built-in one.

    ``value`` may be None, a name from the tables above, the dotted path of a class or function, a class, an object with
    a ``partition`` method, or a callable. A callable, or a method with three parameters, is called with the key's
    bytes, all partitions and the available ones, as in kafka-python. ``rng`` is for this package's partitioners that
    choose at random.

    Raises:
        ConfigError: ``value`` is none of these.
    """
    if isinstance(value, str):
        short = value.rpartition(".")[2]
        if short in _BUILT_IN:
            return None
        name = _BY_NAME.get(short if value.startswith("org.apache.kafka.") else value)
        module = "pykclient.producer.partitioner.partitioners"
        if name is None:
            module, _, name = value.rpartition(".")
            if not module:
                raise ConfigError(
                    f"partitioner.class: there is no partitioner {value!r}; use one of "
                    f"{', '.join(sorted(_BUILT_IN | _BY_NAME.keys()))}, or the dotted path of your own class"
                )
        try:
            value = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"partitioner.class: cannot load {value!r}: {error}") from error
    if value is None:
        return None
    if isinstance(value, type):
        try:
            value = value(rng) if getattr(value, "takes_rng", False) else value()
        except Exception as error:
            name = value.__qualname__
            raise ConfigError(f"partitioner.class: {name} could not be created: {error!r}") from error
    if isinstance(value, Partitioner):
        return value
    method = getattr(value, "partition", None)
    if callable(method) and not _takes_key_and_partitions(method):
        partitioner: Partitioner = value
        return partitioner
    if callable(value):
        return CallablePartitioner(value)
    if callable(method):
        return CallablePartitioner(method)
    raise ConfigError(f"partitioner.class: {shown(value)} is neither callable nor has a partition method")


def _takes_key_and_partitions(method: Callable[..., Any]) -> bool:
    """Return True for a method ``partition(key, all_partitions, available_partitions)``, as in kafka-python 1 and 2."""
    from inspect import Parameter, signature

    try:
        parameters = signature(method).parameters.values()
    except (TypeError, ValueError):  # a method in C without a signature
        return False
    positional = [
        each for each in parameters if each.kind in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
    ]
    takes_any = any(each.kind is Parameter.VAR_POSITIONAL for each in parameters)
    return len(positional) == 3 and not takes_any
