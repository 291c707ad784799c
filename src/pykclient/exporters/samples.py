"""The values of the clients' metrics, under names that monitoring systems accept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from pykclient.errors import KafkaError
from pykclient.explanation import open_clients
from pykclient.metrics import MetricName

_PREFIX: Final = "kafka"
_GROUP_SUFFIX: Final = "-metrics"
_COUNTER_SUFFIX: Final = "-total"


class MeasuredClient(Protocol):
    """A client with metrics: a producer, consumer or admin client, including those of ``pykclient.aio``."""

    def metrics(self, raw: bool = False) -> dict[Any, Any]: ...


class Family(NamedTuple):
    """Metrics of one name and meaning, with the same labels.

    ``words`` are the parts of the name: ``("kafka", "producer", "record_send_total")``. The metrics of a topic or of a
    partition have a family of their own, so that a sum over a family counts nothing twice.
    """

    words: tuple[str, ...]
    is_counter: bool
    description: str
    labels: tuple[str, ...]


class Sample(NamedTuple):
    """A value of a family."""

    family: Family
    values: tuple[str, ...]
    value: float


def family_of(name: MetricName) -> Family:
    """Return the family of a metric."""
    group = name.group.removesuffix(_GROUP_SUFFIX)
    words = [_PREFIX, group]
    scope = next((tag for tag in ("partition", "topic") if tag in name.tags and tag not in group), None)
    if scope is not None:
        words.append(scope)
    words.append(name.name)
    labels = tuple(_word(tag) for tag in sorted(name.tags))
    return Family(tuple(map(_word, words)), name.name.endswith(_COUNTER_SUFFIX), name.description, labels)


def _word(text: str) -> str:
    return text.replace("-", "_").replace(".", "_")


class Families:
    """The families of metrics, each computed once. Thread: any."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, tuple[str, ...]], Family] = {}

    def of(self, name: MetricName) -> Family:
        """Return the family of a metric."""
        key = name.group, name.name, tuple(name.tags)
        family = self._known.get(key)
        if family is None:
            family = self._known[key] = family_of(name)
        return family


def samples(families: Families, clients: Iterable[MeasuredClient] | None = None) -> Iterator[Sample]:
    """Yield the numbers among the metrics of ``clients``, by default of all open clients of this process.

    A client that is closed meanwhile is left out. Metrics without a value yet (NaN) are included.
    """
    for client in open_clients() if clients is None else clients:
        try:
            metrics = client.metrics(raw=True)
        except KafkaError:
            continue
        for name, metric in metrics.items():
            value = metric.metric_value()
            if isinstance(value, int | float):
                values = tuple(name.tags[tag] for tag in sorted(name.tags))
                yield Sample(families.of(name), values, float(value))
