"""The faults of a cluster that runs on its own thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from pykclient.testing.faults import Control, Faults

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.cluster import Cluster
    from pykclient.testing.loop_thread import LoopThread

P = ParamSpec("P")
R = TypeVar("R")


class EmbeddedControl:
    """A hook on requests, created by ``EmbeddedFaults``. Thread: any."""

    __slots__ = ("_control", "_thread")

    def __init__(self, control: Control, thread: LoopThread) -> None:
        self._control = control
        self._thread = thread

    @property
    def hits(self) -> int:
        """The number of requests that the hook has decided about."""
        return self._control.hits

    @property
    def held(self) -> int:
        """The number of requests that are held."""
        return len(self._control.held)

    def remove(self) -> None:
        """Remove the hook. Requests that it holds stay held."""
        self._thread.call(self._control.remove)

    def release(self, count: int | None = None) -> int:
        """Release held requests, the oldest first: all, or ``count``. Return their number."""
        return self._thread.call(lambda: self._control.release(count))


def _on_loop(method: Callable[Concatenate[Faults, P], R]) -> Callable[Concatenate[EmbeddedFaults, P], R]:
    """Turn a method of Faults into one that is called on the cluster's thread."""

    def call(self: EmbeddedFaults, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._thread.call(lambda: method(self._cluster.faults, *args, **kwargs))

    return call


def _control_on_loop(
    method: Callable[Concatenate[Faults, P], Control],
) -> Callable[Concatenate[EmbeddedFaults, P], EmbeddedControl]:
    """Like ``_on_loop``, for a method that returns a control."""

    def call(self: EmbeddedFaults, /, *args: P.args, **kwargs: P.kwargs) -> EmbeddedControl:
        control = self._thread.call(lambda: method(self._cluster.faults, *args, **kwargs))
        return EmbeddedControl(control, self._thread)

    return call


class EmbeddedFaults:
    """The faults of a cluster. ``Faults`` documents the methods that are the same.

    Hooks run on the cluster's thread and block it. Thread: any.
    """

    __slots__ = ("_cluster", "_thread")

    def __init__(self, cluster: Cluster, thread: LoopThread) -> None:
        self._cluster = cluster
        self._thread = thread

    control = _control_on_loop(Faults.control)
    answer = _control_on_loop(Faults.answer)
    drop_requests = _control_on_loop(Faults.drop_requests)
    drop_responses = _control_on_loop(Faults.drop_responses)
    hold = _control_on_loop(Faults.hold)
    release = _on_loop(Faults.release)
    clear = _on_loop(Faults.clear)
    cut = _on_loop(Faults.cut)
    delay = _on_loop(Faults.delay)
    throttle = _on_loop(Faults.throttle)
    partition = _on_loop(Faults.partition)
    heal = _on_loop(Faults.heal)

    def _tell(self, broker: int, action: Callable[[Broker], None]) -> None:
        self._thread.call(lambda: action(self._cluster.broker(broker)))

    def freeze_metadata(self, broker: int) -> None:
        """Freeze a broker's metadata: it learns of changes only after ``thaw_metadata``."""
        self._tell(broker, lambda it: it.metadata_cache.freeze())

    def thaw_metadata(self, broker: int) -> None:
        self._tell(broker, lambda it: it.metadata_cache.thaw())

    def expire_session(self, broker: int) -> None:
        """Make the coordination service expire a broker's session despite its contact. The broker registers again."""
        self._tell(broker, lambda it: it.coordination.expire())
