"""Client quotas (KIP-13, KIP-219, KIP-546; Java: QuotaFactory, ClientQuotaManager)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from pykclient.errors import InvalidRequestError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.testing.config import BrokerConfig
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.request_channel import Request

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)

#: Entity types.
CLIENT_ID: Final = "client-id"
USER: Final = "user"

#: The assumed cost of a request in broker time. Measured times would make a simulation unrepeatable.
_REQUEST_MS: Final = 1.0

_UNLIMITED: Final = (1 << 63) - 1

#: Type and name of each part of an entity; None as a name stands for all without a quota of their own.
Entity = frozenset[tuple[str, str | None]]


class _Bound(NamedTuple):
    """A limit, and whose usage counts against it: that of a user, of a client id, or of both together.

    An empty name stands for all.
    """

    per_s: float
    user: str
    client_id: str


class _WindowedRate:
    """The recent usage of one client on one broker, in windows. Thread: loop."""

    def __init__(self, window_ms: int, windows: int) -> None:
        self._window_ms = window_ms
        self._windows = windows
        self._samples: deque[list[float]] = deque()  # start of a window, and the usage in it

    def record(self, value: float, now_ms: int) -> None:
        samples, window_ms = self._samples, self._window_ms
        if not samples or now_ms - samples[-1][0] >= window_ms:
            samples.append([now_ms, value])
        else:
            samples[-1][1] += value
        oldest_ms = now_ms - window_ms * self._windows
        while samples[0][0] < oldest_ms:
            samples.popleft()

    def throttle_time_ms(self, bound_per_s: float, now_ms: int) -> int:
        """Return the time until the usage is within the bound, at most the length of the windows."""
        full_ms = self._window_ms * (self._windows - 1)
        elapsed_ms = max(now_ms - self._samples[0][0], full_ms)
        due_ms = sum(value for _, value in self._samples) * 1000 / bound_per_s
        return round(min(max(0.0, due_ms - elapsed_ms), full_ms or self._window_ms))


class Quotas:
    """Quotas by client id and user, enforced by each broker on its own.

    A quota of a user is shared by all its clients, a quota of a client id by all users of that id. At first there are
    only ``quota.producer.default`` and ``quota.consumer.default``. Every request counts as a millisecond of broker
    time, so ``request_percentage`` 10 allows a hundred requests per second. Thread: loop.
    """

    def __init__(self, config: BrokerConfig, loop: EventLoop) -> None:
        self._loop = loop
        self._window_ms: int = config["quota.window.size.seconds"] * 1000
        self._windows: int = config["quota.window.num"]
        #: Quotas by entity.
        self.entities: dict[Entity, dict[str, float]] = {}
        self._rates: dict[tuple[int, str, str, str], _WindowedRate] = {}  # by broker, user, client id and quota
        self._bounds: dict[tuple[str, str, str], _Bound | None] = {}  # by user, client id and quota
        self._defaults: dict[str, float] = {}
        for key, setting in (
            (PRODUCER_BYTE_RATE, "quota.producer.default"),
            (CONSUMER_BYTE_RATE, "quota.consumer.default"),
        ):
            if config[setting] < _UNLIMITED:
                self._defaults[key] = config[setting]
        self.active = bool(self._defaults)  # True if there are any

    # --- settings ----------------------------------------------------------------------------------------------------

    def alter(self, entity: Mapping[str, str | None], changes: Mapping[str, float | None]) -> None:
        """Set quotas of an entity, such as ``{"client-id": "a"}``; None removes one.

        Raises:
            InvalidRequestError: the entity or a quota is not valid.
        """
        self.check(entity, changes)
        parts = frozenset(entity.items())
        values = self.entities.setdefault(parts, {})
        for key, value in changes.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        if not values:
            del self.entities[parts]
        self._bounds.clear()
        self.active = bool(self._defaults or self.entities)

    @staticmethod
    def check(entity: Mapping[str, str | None], changes: Mapping[str, float | None]) -> None:
        """Check a change.

        Raises:
            InvalidRequestError: the entity or a quota is not valid.
        """
        if not entity or not set(entity) <= {CLIENT_ID, USER}:
            raise InvalidRequestError(
                f"quotas here are for a {CLIENT_ID}, a {USER} or both, not for {sorted(entity) or 'nothing'}"
            )
        for key, value in changes.items():
            if key not in KEYS:
                raise InvalidRequestError(f"there is no quota {key!r} here, only {', '.join(KEYS)}")
            if value is not None and not value > 0:
                raise InvalidRequestError(f"a quota must be above 0, but {key} is {value}")

    def _bound(self, request: Request, key: str) -> _Bound | None:
        user, client_id = request.principal.partition(":")[2], request.client_id or ""
        try:
            return self._bounds[user, client_id, key]
        except KeyError:
            bound = self._bounds[user, client_id, key] = self._find_bound(user, client_id, key)
            return bound

    def _find_bound(self, user: str, client_id: str, key: str) -> _Bound | None:
        """Return the most specific quota, the user's before the client id's (KIP-55)."""
        for name in (user, None):
            for parts, shared_id in (
                ({USER: name, CLIENT_ID: client_id}, client_id),
                ({USER: name, CLIENT_ID: None}, client_id),
                ({USER: name}, ""),
            ):
                values = self.entities.get(frozenset(parts.items()))
                if values is not None and key in values:
                    return _Bound(values[key], user, shared_id)
        for id in (client_id, None):
            values = self.entities.get(frozenset({(CLIENT_ID, id)}))
            if values is not None and key in values:
                return _Bound(values[key], "", client_id)
        default = self._defaults.get(key)
        return None if default is None else _Bound(default, "", client_id)

    # --- use ---------------------------------------------------------------------------------------------------------

    def throttle_time_ms(self, request: Request) -> int:
        """Count a request; return how long its client must be throttled. Brokers never are.

        Fetches are counted by ``fetch_throttle_time_ms``, because their response depends on it.
        """
        if request.is_from_broker or request.api_key == ApiKeys.FETCH:
            return 0
        throttle_ms = self._use(request, REQUEST_PERCENTAGE, _REQUEST_MS / 10)
        if request.api_key == ApiKeys.PRODUCE:
            throttle_ms = max(throttle_ms, self._use(request, PRODUCER_BYTE_RATE, request.size_bytes))
        return throttle_ms

    def fetch_throttle_time_ms(self, request: Request, size_bytes: int) -> int:
        """Count a fetch of ``size_bytes``; return how long its client must wait. If it must, it gets no records now.

        Brokers never wait.
        """
        if request.is_from_broker or not self.active:
            return 0
        throttle_ms = max(
            self._use(request, REQUEST_PERCENTAGE, _REQUEST_MS / 10), self._use(request, CONSUMER_BYTE_RATE, size_bytes)
        )
        bound = self._bound(request, CONSUMER_BYTE_RATE) if throttle_ms else None
        if bound is not None:
            self._rate(request, bound, CONSUMER_BYTE_RATE).record(-size_bytes, self._loop.now_ms)
        return throttle_ms

    def max_fetched_bytes(self, request: Request) -> int | None:
        """Return the largest response that the client's quota can ever allow; None without a quota."""
        bound = None if request.is_from_broker else self._bound(request, CONSUMER_BYTE_RATE)
        return None if bound is None else int(bound.per_s * self._window_ms * (self._windows - 1) / 1000)

    def _use(self, request: Request, key: str, amount: float) -> int:
        bound = self._bound(request, key)
        if bound is None:
            return 0
        rate, now_ms = self._rate(request, bound, key), self._loop.now_ms
        rate.record(amount, now_ms)
        return rate.throttle_time_ms(bound.per_s, now_ms)

    def _rate(self, request: Request, bound: _Bound, key: str) -> _WindowedRate:
        place = request.broker_id, bound.user, bound.client_id, key
        rate = self._rates.get(place)
        if rate is None:
            rate = self._rates[place] = _WindowedRate(self._window_ms, self._windows)
        return rate
