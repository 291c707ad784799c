"""Handlers of calls that need no class of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pykclient.admin.api import AdminApiHandler, LookupStrategy
from pykclient.errors import KafkaError

if TYPE_CHECKING:
    from pykclient.network.client_request import RequestBuilder
    from pykclient.protocol.message import Request

K = TypeVar("K")
V = TypeVar("V")


class ItemsHandler(AdminApiHandler[K, V]):
    """A call with many items: a function makes the request, another one yields the answer for each item."""

    __slots__ = ("_answers", "_request")

    def __init__(
        self,
        name: str,
        lookup: LookupStrategy[K],
        request: Callable[[Sequence[K], int], Request | RequestBuilder],
        answers: Callable[[Sequence[K], Any], Iterable[tuple[K, KafkaError | None, Any]]],
    ) -> None:
        super().__init__(name, lookup)
        self._request = request
        self._answers = answers

    def request(self, keys: Sequence[K], timeout_ms: int) -> Request | RequestBuilder:
        return self._request(keys, timeout_ms)

    def answers(self, keys: Sequence[K], response: Any) -> Iterable[tuple[K, KafkaError | None, Any]]:
        return self._answers(keys, response)


class QuestionHandler(AdminApiHandler[None, V]):
    """A call with one answer: a function makes the request, another one reads the answer or raises its error."""

    __slots__ = ("_read", "_request")

    def __init__(
        self,
        name: str,
        lookup: LookupStrategy[None],
        request: Callable[[int], Request | RequestBuilder],
        read: Callable[[Any], V],
    ) -> None:
        super().__init__(name, lookup)
        self._request = request
        self._read = read

    def request(self, keys: Sequence[None], timeout_ms: int) -> Request | RequestBuilder:
        return self._request(timeout_ms)

    def answers(self, keys: Sequence[None], response: Any) -> Iterable[tuple[None, KafkaError | None, V]]:
        answer = self._read(response)
        return [(key, None, answer) for key in keys]
