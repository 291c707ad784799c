"""Faults on demand, for requests and for the network between parties."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pykclient import errors
from pykclient.argument_values import shown
from pykclient.errors import BrokerError, IllegalArgumentError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.message import Response
from pykclient.testing import request_channel
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.handlers import handler
from pykclient.testing.memory_network import LinkPolicy, matches
from pykclient.testing.request_channel import Request


class Verdict:
    """A hook's decision about a request, other than a response. Thread: any."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


#: The request is lost: the broker neither handles it nor responds, and reads nothing more from its connection.
DROP_REQUEST: Final = Verdict("DROP_REQUEST")
#: The request takes effect, but its response is lost, and nothing more is read from its connection.
DROP_RESPONSE: Final = Verdict("DROP_RESPONSE")
#: The connection is closed; the request has no effect.
DISCONNECT: Final = Verdict("DISCONNECT")
#: The request takes effect; then the connection is closed instead of a response.
DISCONNECT_AFTER: Final = Verdict("DISCONNECT_AFTER")
#: The request is held until ``release`` is called on its control or on the faults.
HOLD: Final = Verdict("HOLD")

#: The prefixes of party names.
_PARTIES: Final = ("broker-", "client:", "coordination")

HookResult = Response | int | BrokerError | type[BrokerError] | Verdict | None
Hook = Callable[["Request"], HookResult]


@dataclass(eq=False, repr=False)
class Control:
    """A hook on requests. ``hits`` counts the requests it has decided about. Thread: loop."""

    _faults: Faults
    _api_key: int | None
    _hook: Hook
    _times: int | None
    _when: Callable[[Request], bool] | None
    _broker_id: int | None
    _party: str
    hits: int = 0
    #: The requests that are held.
    held: list[Request] = field(default_factory=list)

    def decide(self, request: Request) -> HookResult:
        """Return the hook's decision about the request; None if it does not apply."""
        if (
            (self._api_key is not None and request.api_key != self._api_key)
            or (self._broker_id is not None and request.broker_id != self._broker_id)
            or not matches(self._party, request.party)
            or (self._when is not None and not self._when(request))
        ):
            return None
        result = self._hook(request)
        if result is not None:
            self.hits += 1
            if self.hits == self._times:
                self.remove()
        return result

    def remove(self) -> None:
        """Remove the hook. Requests that it holds stay held."""
        self._faults.remove(self)

    def release(self, count: int | None = None) -> int:
        """Release held requests, the oldest first: all, or ``count``. Return their number."""
        released = self.held[:count]
        del self.held[: len(released)]
        for request in released:
            request.record.fate = request_channel.RECEIVED
            request.handle_soon()
        return len(released)


class Faults:
    """All deliberate faults of a cluster.

    ``links`` are the faults of the network, controls are the faults of requests. Controls are consulted in the order of
    their creation, up to the first that decides about a request. If a hook raises, it has no effect, and the
    application's next call to the cluster raises its error.

    Hooks see the requests of clients. They see those of brokers only for APIs that only brokers use, or if ``party``
    selects them: a pattern such as ``broker-2`` or ``client:orders*``.

    Thread: loop.
    """

    def __init__(self, loop: EventLoop, rng: random.Random) -> None:
        self._loop = loop
        self.links = LinkPolicy(rng)
        self.controls: list[Control] = []
        self._holding: list[Control] = []

    # --- requests ----------------------------------------------------------------------------------------------------

    def control(
        self,
        api: int | str | None,
        hook: Hook,
        *,
        times: int | None = None,
        when: Callable[[Request], bool] | None = None,
        broker: int | None = None,
        party: str | None = None,
    ) -> Control:
        """Let ``hook`` decide about requests for an API (key or name; None for all).

        The hook returns a response, an error code or class, a verdict, or None if it does not apply. The control is
        removed after ``times`` decisions; None means never. ``when``, ``broker`` and ``party`` filter the requests.
        """
        api_key = None if api is None else request_channel.api_key_of(api)
        if times is not None and times <= 0:
            raise IllegalArgumentError(f"times must be above 0, or None for no end, not {times}")
        control = Control(
            self, api_key, hook, times, when, broker, _usual_party(api_key) if party is None else _party(party)
        )
        self.controls.append(control)
        return control

    def answer(
        self,
        api: int | str | None,
        error: int | BrokerError | type[BrokerError],
        *,
        times: int | None = 1,
        when: Callable[[Request], bool] | None = None,
        broker: int | None = None,
        party: str | None = None,
    ) -> Control:
        """Answer requests with an error in all error codes of the API's response. The requests have no effect."""
        _code_of(error)
        return self.control(api, lambda _: error, times=times, when=when, broker=broker, party=party)

    def drop_requests(
        self,
        api: int | str | None,
        *,
        times: int | None = 1,
        disconnect: bool = False,
        when: Callable[[Request], bool] | None = None,
        broker: int | None = None,
        party: str | None = None,
    ) -> Control:
        """Drop requests before they take effect. The connection is closed, or gets no more responses."""
        verdict = DISCONNECT if disconnect else DROP_REQUEST
        return self.control(api, lambda _: verdict, times=times, when=when, broker=broker, party=party)

    def drop_responses(
        self,
        api: int | str | None,
        *,
        times: int | None = 1,
        disconnect: bool = False,
        when: Callable[[Request], bool] | None = None,
        broker: int | None = None,
        party: str | None = None,
    ) -> Control:
        """Let requests take effect, but drop the responses. The connection is closed, or gets no more responses."""
        verdict = DISCONNECT_AFTER if disconnect else DROP_RESPONSE
        return self.control(api, lambda _: verdict, times=times, when=when, broker=broker, party=party)

    def hold(
        self,
        api: int | str | None,
        *,
        times: int | None = None,
        when: Callable[[Request], bool] | None = None,
        broker: int | None = None,
        party: str | None = None,
    ) -> Control:
        """Hold requests until ``release`` is called on the returned control."""
        return self.control(api, lambda _: HOLD, times=times, when=when, broker=broker, party=party)

    def remove(self, control: Control) -> None:
        """Remove a control, if it exists."""
        if control in self.controls:
            self.controls.remove(control)

    def release(self) -> int:
        """Release all held requests; return their number."""
        holding, self._holding = self._holding, []
        return sum(control.release() for control in holding)

    def clear(self) -> None:
        """Remove all controls, release the requests they hold, and heal all links."""
        self.controls.clear()
        self.release()
        self.links.heal()

    # --- the network -------------------------------------------------------------------------------------------------

    def cut(self, a: str | int, b: str | int, *, reset: bool = False, one_way: bool = False) -> None:
        """Cut the link between two parties silently; with ``reset``, connections break and new ones are refused."""
        self.links.set(_party(a), _party(b), one_way=one_way, cut=not reset, reset=reset)

    def delay(self, a: str | int, b: str | int, delay_ms: int, *, jitter_ms: int = 0, one_way: bool = False) -> None:
        """Delay all traffic between two parties by ``delay_ms``, plus up to ``jitter_ms``."""
        self.links.set(_party(a), _party(b), one_way=one_way, delay_ms=delay_ms, jitter_ms=jitter_ms)

    def throttle(self, a: str | int, b: str | int, bytes_per_second: float, *, one_way: bool = False) -> None:
        """Limit the traffic between two parties to ``bytes_per_second`` in each direction."""
        self.links.set(_party(a), _party(b), one_way=one_way, bytes_per_second=bytes_per_second)

    def partition(self, *groups: list[str | int]) -> None:
        """Cut the links between parties of different groups."""
        self.links.partition(*([_party(party) for party in group] for group in groups))

    def heal(self, a: str | int | None = None, b: str | int | None = None) -> None:
        """Heal the link between two parties, or all links and partitions."""
        self.links.heal(None if a is None else _party(a), None if b is None else _party(b))

    # --- for brokers -------------------------------------------------------------------------------------------------

    def intercept(self, request: Request) -> bool:
        """Apply the controls to a request; return True if it must not be handled (now)."""
        for control in list(self.controls):
            try:
                result = control.decide(request)
                if result is not None and not request.answered:
                    return self._apply(control, request, result)
            except BaseException as error:  # noqa: BLE001 - the application's code, pytest.fail() too, and it gets to know
                if self._loop.failure is None:
                    self._loop.failure = error
            if request.answered:
                return True  # by the hook itself
        return False

    def _apply(self, control: Control, request: Request, result: HookResult) -> bool:
        record = request.record
        if result is DROP_REQUEST:
            record.fate = request_channel.REQUEST_DROPPED
        elif result is DISCONNECT:
            request.close_connection()
        elif result is HOLD:
            record.fate = request_channel.HELD
            control.held.append(request)
            if control not in self._holding:
                self._holding.append(control)
        elif result is DROP_RESPONSE or result is DISCONNECT_AFTER:
            request.fate = request_channel.RESPONSE_DROPPED if result is DROP_RESPONSE else request_channel.DISCONNECTED
            return False
        elif isinstance(result, Response):
            if request.api_key != result.API_KEY:
                raise IllegalArgumentError(
                    f"{ApiKeys.name_of(request.api_key)} cannot be answered with a {type(result).__name__}"
                )
            request.respond(result)
        else:
            request.respond_error(_error_of(result))
        return True


def _party(party: str | int) -> str:
    """Return a party's name or pattern. Brokers may be given by id.

    Raises:
        IllegalArgumentError: it is neither a name nor a pattern.
    """
    if isinstance(party, int):
        return f"broker-{party}"
    if not isinstance(party, str):
        raise IllegalArgumentError(f"a party is a broker's id, or a name such as 'client:*', not {shown(party)}")
    start = party.removesuffix("*")
    if not party.startswith(_PARTIES) and (start == party or not any(name.startswith(start) for name in _PARTIES)):
        raise IllegalArgumentError(
            f"a party is a broker's id or 'broker-1', 'client:' and a client id, 'coordination', or a pattern of these "
            f"such as 'client:*', not {party!r}"
        )
    return party


def _usual_party(api_key: int | None) -> str:
    """Return the party whose requests are meant by default."""
    api_handler = None if api_key is None else handler(api_key)
    return "broker-*" if api_handler is not None and api_handler.is_broker_only else "client:*"


def _code_of(error: object) -> int:
    """Return the code of an error, given as code, class or instance.

    Raises:
        IllegalArgumentError: it is none of these.
    """
    code = error if isinstance(error, int) else getattr(error, "code", None)
    if not isinstance(code, int) or isinstance(code, bool) or code == 0:
        raise IllegalArgumentError(
            "a request can be answered with a response, an error code other than 0, a BrokerError or a verdict such "
            f"as DROP_REQUEST, not with {error!r}"
        )
    return code


def _error_of(result: object) -> BrokerError:
    if isinstance(result, BrokerError):
        return result
    error = errors.for_code(_code_of(result))
    assert error is not None
    return error
