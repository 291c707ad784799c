"""The validated configuration of one client (Java: AbstractConfig)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pykclient.argument_values import shown
from pykclient.config.config_def import METRICS_CONTEXT_PREFIX, ConfigDef, load
from pykclient.config.validators import looks_like_addresses
from pykclient.errors import ConfigError

_logger = logging.getLogger(__name__)


class AbstractConfig(Mapping[str, Any]):
    """A mapping with a value for every key of a table, by dotted name (underscores work too).

    It is created from a mapping and keyword arguments; keyword arguments win. ``originals`` are the given values by
    dotted name, and what is pickled. Keys that only other clients have can be read, but are not in the mapping.

    Thread: any (immutable).
    """

    __slots__ = ("_foreign", "_used", "_values", "originals")

    DEFINITION: ClassVar[ConfigDef] = ConfigDef(())

    def __init__(self, config: Mapping[str, Any] | None = None, /, **kwargs: Any) -> None:
        if config is not None and not isinstance(config, Mapping):
            raise self._not_settings(config)
        self.originals: dict[str, Any] = self.DEFINITION.read(config or {}, kwargs)
        #: Values of other clients' keys, which have no effect here.
        self._foreign = {
            key: value
            for source in (config or {}, kwargs)
            for name, value in source.items()
            if (key := self.DEFINITION.canonical(name)) in self.DEFINITION.foreign
        }
        self._used: set[str] = set()
        self._values: dict[str, Any] = self.DEFINITION.parse(self.originals)
        self._post_process(self._values)

    def _not_settings(self, given: object) -> ConfigError:
        hint = ""
        if isinstance(given, (list, tuple, set)) and all(isinstance(part, str) for part in given):
            given = ",".join(given)
        if isinstance(given, str) and looks_like_addresses(given):
            hint = f"; for an address write bootstrap_servers={given!r}"
        return ConfigError(f"settings are a mapping or keyword arguments, not {type(given).__name__}{hint}")

    def _post_process(self, values: dict[str, Any]) -> None:
        """Apply the rules that involve several keys; ``values`` may be changed.

        Raises:
            ConfigError: values contradict each other.
        """

    def is_set(self, name: str) -> bool:
        """Return whether the key was given explicitly."""
        return name in self.originals

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            name = name.replace("_", ".")
            name = self.DEFINITION.aliases.get(name, name)
            foreign = self.DEFINITION.foreign.get(name)
            if foreign is not None:  # such as kafka-python's api_version
                return self._foreign.get(name, foreign.value)
        value = self._values[name]
        self._used.add(name)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._values or (isinstance(name, str) and name.replace("_", ".") in self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get_int(self, name: str) -> int:
        value = self[name]
        if type(value) is not int:
            raise TypeError(f"{name} is not an integer")
        return value

    def get_bool(self, name: str) -> bool:
        value = self[name]
        if not isinstance(value, bool):
            raise TypeError(f"{name} is not a boolean")
        return value

    def get_str(self, name: str) -> str:
        """Return a string.

        Raises:
            TypeError: the value is None.
        """
        value = self[name]
        if not isinstance(value, str):
            raise TypeError(f"{name} is not a string")
        return value

    def configured_instance(self, name: str, base: type | None = None) -> Any:
        """Return the object for a key. A class is called without arguments; anything else is returned as it is.

        Raises:
            ConfigError: the class cannot be instantiated, or the object is not a ``base``.
        """
        return None if self[name] is None else self._instance(name, self[name], base)

    def configured_instances(self, name: str, base: type | None = None, method: str | None = None) -> list[Any]:
        """Return the objects for a list, like ``configured_instance``. If one fails, the others are closed.

        Raises:
            ConfigError: that of ``configured_instance``, or an object does not have ``method``.
        """
        instances: list[Any] = []
        for item in self[name]:
            try:
                instances.append(self._instance(name, item, base))
                if method is not None and not callable(getattr(instances[-1], method, None)):
                    raise ConfigError(f"{name}: {shown(instances[-1])} has no method {method}()", key=name)
            except ConfigError:
                for made in instances:
                    close = getattr(made, "close", None)
                    if callable(close):
                        close()
                raise
        return instances

    def _instance(self, name: str, item: Any, base: type | None) -> Any:
        if isinstance(item, str):
            try:
                item = load(item)
            except (ImportError, AttributeError) as error:
                raise ConfigError(f"{name}: {item!r} cannot be imported ({error})", key=name) from error
        instance = self._make(name, item) if isinstance(item, type) else item
        if base is not None and not isinstance(instance, base):
            raise ConfigError(f"{name}: {instance!r} is not a {base.__name__}", key=name)
        return instance

    def _make(self, name: str, cls: type) -> Any:
        """Return an instance, after calling its ``configure(config)`` if it has one (Java: Configurable)."""
        try:
            instance = cls()
            configure = getattr(instance, "configure", None)
            if callable(configure):
                configure(dict(self._values))
        except Exception as error:
            raise ConfigError(f"{name}: {cls.__qualname__} could not be created: {error!r}", key=name) from error
        return instance

    def metrics_context(self, namespace: str) -> dict[str, str]:
        """Return the labels of the client for metrics reporters (KIP-606).

        ``namespace`` says which kind of client it is, such as "kafka.producer".
        """
        labels = {"_namespace": namespace}
        for key, value in self.originals.items():
            if key.startswith(METRICS_CONTEXT_PREFIX):
                labels[key.removeprefix(METRICS_CONTEXT_PREFIX)] = value
                self._used.add(key)
        return labels

    def unused(self) -> set[str]:
        """Return the given keys that nothing has read yet."""
        return set(self.originals) - self._used

    def __repr__(self) -> str:
        given = ", ".join(f"{name!r}: {self._shown(name)}" for name in self.originals)
        return f"{type(self).__name__}({{{given}}})"

    def _shown(self, name: str) -> str:
        return repr(self._values[name])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.originals,)
