"""A network without sockets, and the state of its links.

Frames travel between parties as events of the loop. The link between two parties is cut, delayed, throttled or healthy.
A party is ``broker-<id>``, ``client:<client id>`` or ``coordination``. Rules name parties by patterns, which may end in
``*``: ``client:*`` matches all clients, ``*`` matches everything.
"""

from __future__ import annotations

import io
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pykclient.clock import FOREVER_MS
from pykclient.errors import IllegalArgumentError, IllegalStateError
from pykclient.network import channel_state
from pykclient.network.authenticator import Session
from pykclient.network.channel_state import ChannelState
from pykclient.network.client_request import RepeatableRequest
from pykclient.network.frames import Frame, NetworkReceive, NetworkSend
from pykclient.network.host_resolver import Lookup
from pykclient.network.selectable import SocketAddress
from pykclient.testing.event_loop import EventLoop, below


@dataclass(eq=False)
class Link:
    """One direction between two parties, combined from all rules.

    ``cut``: nothing arrives until the link is healed, silently. ``reset``: connections break and new ones are refused.
    A frame takes ``delay_ms`` plus up to ``jitter_ms``; ``bytes_per_second`` limits the throughput. Thread: loop.
    """

    cut: bool = False
    reset: bool = False
    delay_ms: int = 0
    jitter_ms: int = 0
    bytes_per_second: float | None = None
    _free_at_ms: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        slow = self.delay_ms or self.jitter_ms or self.bytes_per_second is not None
        self.perfect = not (self.cut or self.reset or slow)

    def transit_ms(self, size_bytes: int, now_ms: int, rng: random.Random) -> int:
        """Return the milliseconds until a frame that is sent now arrives."""
        transit_ms = self.delay_ms
        if self.jitter_ms:
            transit_ms += below(rng, self.jitter_ms + 1)
        if self.bytes_per_second is not None:
            self._free_at_ms = max(self._free_at_ms, now_ms) + size_bytes * 1000 / self.bytes_per_second
            transit_ms += int(self._free_at_ms - now_ms)
        return transit_ms


PERFECT: Final = Link()


class LinkPolicy:
    """The rules of all links. Components that hold frames back subscribe to changes. Thread: loop."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._rules: dict[tuple[str, str], Link] = {}
        self._partitions: list[list[tuple[str, ...]]] = []
        self._links: dict[tuple[str, str], Link] = {}
        self._subscribers: list[Callable[[], None]] = []
        #: The number of changes of the rules. A link is valid until the next one.
        self.changes = 0

    @property
    def active(self) -> bool:
        """True if any link is not healthy."""
        return bool(self._rules or self._partitions)

    def link(self, source: str, destination: str) -> Link:
        """Return the link from ``source`` to ``destination``. It is replaced when rules change."""
        if not self._rules and not self._partitions:
            return PERFECT
        found = self._links.get((source, destination))
        if found is None:
            found = self._links[source, destination] = self._resolve(source, destination)
        return found

    def is_cut(self, source: str, destination: str) -> bool:
        """Return whether nothing gets from ``source`` to ``destination``."""
        link = self.link(source, destination)
        return link.cut or link.reset

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` after each change of the rules."""
        self._subscribers.append(changed)

    def unsubscribe(self, changed: Callable[[], None]) -> None:
        """Stop calling ``changed``."""
        self._subscribers.remove(changed)

    def set(
        self,
        source: str,
        destination: str,
        *,
        one_way: bool = False,
        cut: bool | None = None,
        reset: bool | None = None,
        delay_ms: int | None = None,
        jitter_ms: int | None = None,
        bytes_per_second: float | None = None,
    ) -> None:
        """Set properties of the link between two parties, in both directions unless ``one_way``.

        None keeps a property.
        """
        if (delay_ms or 0) < 0 or (jitter_ms or 0) < 0 or (bytes_per_second is not None and bytes_per_second <= 0):
            raise IllegalArgumentError(
                "a link's delay_ms and jitter_ms cannot be negative, and its bytes_per_second must be above 0, "
                f"not {delay_ms}, {jitter_ms} and {bytes_per_second}"
            )
        for pair in ((source, destination),) if one_way else ((source, destination), (destination, source)):
            old = self._rules.get(pair, PERFECT)
            self._rules[pair] = Link(
                cut=old.cut if cut is None else cut,
                reset=old.reset if reset is None else reset,
                delay_ms=old.delay_ms if delay_ms is None else delay_ms,
                jitter_ms=old.jitter_ms if jitter_ms is None else jitter_ms,
                bytes_per_second=old.bytes_per_second if bytes_per_second is None else bytes_per_second,
            )
        self._changed()

    def partition(self, *groups: Iterable[str]) -> None:
        """Cut all links between parties of different groups. Other parties are not affected."""
        self._partitions.append([tuple(group) for group in groups])
        self._changed()

    def heal(self, source: str | None = None, destination: str | None = None) -> None:
        """Remove the rules for two parties in both directions, or all rules.

        The parties must be given by the same patterns as before.
        """
        if source is None or destination is None:
            self._rules.clear()
            self._partitions.clear()
        else:
            self._rules.pop((source, destination), None)
            self._rules.pop((destination, source), None)
        self._changed()

    def _changed(self) -> None:
        self._links.clear()
        self.changes += 1
        for subscriber in list(self._subscribers):
            subscriber()

    def _resolve(self, source: str, destination: str) -> Link:
        rules = [rule for (a, b), rule in self._rules.items() if matches(a, source) and matches(b, destination)]
        apart = any(_apart(groups, source, destination) for groups in self._partitions)
        if not rules and not apart:
            return PERFECT
        rates = [rule.bytes_per_second for rule in rules if rule.bytes_per_second is not None]
        return Link(
            cut=apart or any(rule.cut for rule in rules),
            reset=any(rule.reset for rule in rules),
            delay_ms=max((rule.delay_ms for rule in rules), default=0),
            jitter_ms=max((rule.jitter_ms for rule in rules), default=0),
            bytes_per_second=min(rates, default=None),
        )


def matches(pattern: str, party: str) -> bool:
    """Return whether a pattern matches the party."""
    return party.startswith(pattern[:-1]) if pattern.endswith("*") else party == pattern


def _apart(groups: Sequence[tuple[str, ...]], source: str, destination: str) -> bool:
    """Return whether two parties are in different groups."""

    def group_of(party: str) -> int | None:
        exact = next((index for index, group in enumerate(groups) if party in group), None)
        if exact is not None:
            return exact
        return next((i for i, group in enumerate(groups) if any(matches(pattern, party) for pattern in group)), None)

    first, second = group_of(source), group_of(destination)
    return first is not None and second is not None and first != second


class _Mark:
    """An event at the end of a connection other than a frame."""

    __slots__ = ()


#: Makes a NetworkReceive of its fields in half of the time that the class takes.
_new_receive: Final[Callable[[tuple[str, bytes | _Mark]], NetworkReceive]] = partial(tuple.__new__, NetworkReceive)

_ESTABLISHED: Final = _Mark()  # the other side has accepted the connection
_CLOSED: Final = _Mark()  # the other side has closed it; nothing follows


class MemoryHostResolver:
    """The DNS of a memory network, in which names are addresses. It can be made to fail or to hang.

    Thread: loop.
    """

    def __init__(self) -> None:
        self._broken: set[str] = set()
        self._hung: dict[str, list[tuple[Lookup, str]]] = {}

    def look_up(self, host: str, on_done: Callable[[], object] | None = None, canonical: bool = False) -> Lookup:  # noqa: ARG002
        for pattern, held in self._hung.items():
            if matches(pattern, host):
                lookup = Lookup(on_done)
                held.append((lookup, host))
                return lookup
        lookup = Lookup()
        lookup.finish(self._answer(host))
        return lookup

    def _answer(self, host: str) -> list[str] | OSError:
        if any(matches(pattern, host) for pattern in self._broken):
            return OSError(-2, "Name or service not known")
        return [host]

    def hang(self, hosts: str = "*") -> None:
        """Leave lookups of hosts that match a pattern pending until ``answer``."""
        self._hung.setdefault(hosts, [])

    def fail(self, hosts: str = "*") -> None:
        """Fail lookups of hosts that match a pattern, until ``recover``. Hosts that hang keep hanging."""
        self._broken.add(hosts)

    def answer(self, hosts: str = "*") -> None:
        """End ``hang`` for the same pattern, or for all with "*", and complete the pending lookups."""
        for pattern in list(self._hung):
            if hosts in ("*", pattern):
                for lookup, host in self._hung.pop(pattern):
                    lookup.finish(self._answer(host))

    def recover(self, hosts: str = "*") -> None:
        """End ``fail`` for the same pattern, or for all with "*"."""
        self._broken -= {pattern for pattern in self._broken if hosts in ("*", pattern)}


class MemoryNetwork:
    """Connects selectors with each other and with listeners, over links that may be faulty.

    Frames arrive whole, in order per direction, after the link's delay. Frames that a cut link or a paused party holds
    back arrive later, as with TCP, which retransmits. Thread: loop.
    """

    def __init__(self, loop: EventLoop, links: LinkPolicy) -> None:
        self.loop = loop
        self.links = links
        self.host_resolver = MemoryHostResolver()
        self._listeners: dict[tuple[str, int], Callable[[MemorySocket], None]] = {}
        self._parties: dict[tuple[str, int], str] = {}  # of all addresses that ever had a listener
        #: The parties for which everything is held back.
        self.paused: set[str] = set()
        self._sockets: dict[MemorySocket, None] = {}
        self._held: dict[MemorySocket, None] = {}  # sockets whose arrivals are held back
        self._unanswered: list[tuple[MemorySocket, tuple[str, int]]] = []  # who tries to connect over a cut link
        links.subscribe(self._links_changed)

    # --- parties -----------------------------------------------------------------------------------------------------

    def listen(self, host: str, port: int, party: str, accept: Callable[[MemorySocket], None]) -> None:
        """Call ``accept`` with the near end of each connection to this address."""
        if (host, port) in self._listeners:
            raise IllegalStateError(f"{self._parties[host, port]} listens at {host}:{port} already")
        self._listeners[host, port] = accept
        self._parties[host, port] = party

    def unlisten(self, host: str, port: int) -> None:
        """Refuse connections to this address from now on. Existing ones are not affected."""
        self._listeners.pop((host, port), None)

    def pause(self, party: str) -> None:
        """Hold back everything for a party, even the end of a connection. Connections to it are still accepted."""
        self.paused.add(party)

    def resume(self, party: str) -> None:
        """Deliver the data that was held back."""
        self.paused.discard(party)
        self._release()

    def in_transit(self, source: str) -> int:
        """Return the number of frames in flight from parties that match a pattern, including parties that have left."""
        return sum(len(sock._arrivals) for sock in self._sockets if matches(source, sock.remote_party))

    def last_arrival_ms(self) -> int:
        """Return the time when everything in flight will have arrived, unless held back.

        If nothing is in flight, that time is in the past.
        """
        return max((sock._last_arrival_ms for sock in self._sockets), default=0)

    # --- for sockets -------------------------------------------------------------------------------------------------

    def connect(self, sock: MemorySocket, address: tuple[str, int]) -> None:
        """Try to connect ``sock`` to an address."""
        sock.remote_party = self._parties.get(address, "")
        self._sockets[sock] = None
        self._later(self._link(sock), self._arrive_at_listener, sock, address)

    def _arrive_at_listener(self, sock: MemorySocket, address: tuple[str, int]) -> None:
        if not sock.open:
            return
        link = self._link(sock)
        if link.cut:
            self._unanswered.append((sock, address))
            return
        accept = self._listeners.get(address)
        back = self.links.link(sock.remote_party, sock.party)
        if accept is None or link.reset or back.reset:
            self._later(back, sock.break_here, f"{address[0]}:{address[1]} refused the connection")
            return
        sock.remote_party = self._parties[address]
        peer = MemorySocket(self, sock.remote_party, sock.party, sock.host)
        sock.peer, peer.peer = peer, sock
        peer.established = True
        self._sockets[peer] = None
        peer.send_established()
        accept(peer)

    def _link(self, sock: MemorySocket) -> Link:
        return self.links.link(sock.party, sock.remote_party)

    def _later(self, link: Link, callback: Callable[..., None], *arguments: object) -> None:
        if link.perfect:
            self.loop.call_soon(callback, *arguments)
        else:
            self.loop.call_later(link.transit_ms(0, self.loop.now_ms, self.links.rng), callback, *arguments)

    def hold(self, sock: MemorySocket) -> None:
        """Notify a socket when it must check again whether its arrivals are held back."""
        self._held[sock] = None

    def forget(self, sock: MemorySocket) -> None:
        """Remove a closed socket."""
        self._sockets.pop(sock, None)
        self._held.pop(sock, None)

    def _links_changed(self) -> None:
        for sock in list(self._sockets):
            if self._link(sock).reset and sock.peer is not None:
                sock.break_off(f"the link between {sock.party} and {sock.remote_party} was reset")
        self._release()

    def _release(self) -> None:
        held, self._held = self._held, {}
        for sock in held:
            sock.schedule()
        unanswered, self._unanswered = self._unanswered, []
        for sock, address in unanswered:
            self._later(self._link(sock), self._arrive_at_listener, sock, address)


class MemorySocket:
    """One end of a connection. The peer sees ``host`` as its address. Thread: loop."""

    def __init__(self, network: MemoryNetwork, party: str, remote_party: str, host: str) -> None:
        self._network = network
        self.party = party
        self.remote_party = remote_party
        self.host = host
        self.peer: MemorySocket | None = None
        self.selector: MemorySelector | None = None  # None until a processor has taken over an accepted connection
        self.id = ""
        self.open = True
        self.established = False
        self.muted = False
        self.problem = "the connection was closed by the other side"
        self.frames: deque[bytes | _Mark] = deque()  # arrived but not read yet
        self._arrivals: deque[tuple[int, bytes | _Mark]] = deque()  # in flight to this end, and when they are due
        self._last_arrival_ms = 0
        self._scheduled = False
        self._link = PERFECT  # to here, as of a number of changes of the rules
        self._link_changes = -1

    # --- the way there -----------------------------------------------------------------------------------------------

    def link_here(self) -> Link:
        """Return the link from the other end."""
        links = self._network.links
        if self._link_changes != links.changes:
            self._link = links.link(self.remote_party, self.party)
            self._link_changes = links.changes
        return self._link

    def send(self, frame: bytes) -> None:
        """Send a frame to the other end. It is lost if that end is closed."""
        peer = self.peer
        if peer is not None and peer.open:
            peer._on_its_way(frame, len(frame))

    def send_established(self) -> None:
        """Tell the other end that its connection was accepted."""
        assert self.peer is not None
        self.peer._on_its_way(_ESTABLISHED, 0)

    def close(self, problem: str | None = None) -> None:
        """Close this end. The other end learns of it after everything sent before."""
        if not self.open:
            return
        self.open = False
        self._network.forget(self)
        self.frames.clear()
        self._arrivals.clear()
        peer = self.peer
        if peer is not None and peer.open:
            if problem is not None:
                peer.problem = problem
            peer._on_its_way(_CLOSED, 0)

    def _on_its_way(self, item: bytes | _Mark, size_bytes: int) -> None:
        network = self._network
        due_ms = now_ms = network.loop.clock.now_ms()
        link = self.link_here()
        if not link.perfect:
            due_ms += link.transit_ms(size_bytes, now_ms, network.links.rng)
        if due_ms < self._last_arrival_ms:
            due_ms = self._last_arrival_ms  # no overtaking
        else:
            self._last_arrival_ms = due_ms
        self._arrivals.append((due_ms, item))
        if not self._scheduled:
            # As _schedule does, without the call: this runs for each frame.
            self._scheduled = True
            if due_ms > now_ms:
                network.loop.call_later(due_ms - now_ms, self._arrive)
            else:
                network.loop.call_soon(self._arrive)

    # --- the way here ------------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Process the arrivals as soon as they are due."""
        if self._arrivals and not self._scheduled:
            self._schedule(self._arrivals[0][0] - self._network.loop.now_ms)

    def _schedule(self, delay_ms: int) -> None:
        self._scheduled = True
        if delay_ms <= 0:
            self._network.loop.call_soon(self._arrive)
        else:
            self._network.loop.call_later(delay_ms, self._arrive)

    def _arrive(self) -> None:
        self._scheduled = False
        network = self._network
        if not self.open:
            return
        if self.party in network.paused or self.link_here().cut:
            network.hold(self)
            return
        arrivals = self._arrivals
        now_ms = network.loop.clock.now_ms()
        while arrivals and arrivals[0][0] <= now_ms:
            self.frames.append(arrivals.popleft()[1])
        if arrivals:
            self._schedule(arrivals[0][0] - now_ms)
        if self.selector is not None:
            self.selector.readable(self)

    def break_off(self, problem: str) -> None:
        """Break the connection at both ends at once."""
        peer = self.peer
        self.break_here(problem)
        if peer is not None:
            peer.break_here(problem)

    def break_here(self, problem: str) -> None:
        """Break the connection at this end, after everything that has arrived before."""
        if self.open and _CLOSED not in self.frames:
            self.problem = problem
            self._arrivals.clear()
            self.frames.append(_CLOSED)
            if self.selector is not None:
                self.selector.readable(self)


class MemorySelector:
    """A ``Selectable`` on a ``MemoryNetwork``. A server registers the connections that its listeners accept.

    ``on_news`` is called once when the next ``poll`` will find something; it schedules that poll. A ``poll`` does not
    wait, unless a subclass does. Each frame is delivered as one piece of bytes. Thread: loop.
    """

    def __init__(
        self,
        network: MemoryNetwork,
        party: str,
        *,
        host: str = "127.0.0.1",
        on_news: Callable[[], object] | None = None,
    ) -> None:
        self._network = network
        self.party = party
        self.on_news = on_news
        self._host = host
        self._sockets: dict[str, MemorySocket] = {}
        self._readable: dict[str, MemorySocket] = {}  # with data to read, and not muted
        self._early_sends: list[NetworkSend] = []
        self.has_news = False  # True if ``poll`` must return at once
        self._closed = False
        self.completed_sends: list[NetworkSend] = []
        self.completed_receives: list[NetworkReceive] = []
        self.connected: list[str] = []
        self.disconnected: dict[str, ChannelState] = {}

    # --- connections -------------------------------------------------------------------------------------------------

    def connect(self, id: str, address: SocketAddress, send_buffer: int, receive_buffer: int) -> None:  # noqa: ARG002
        sock = MemorySocket(self._network, self.party, "", self._host)
        self._add(id, sock)
        self._network.connect(sock, (address.ip, address.port))

    def register(self, id: str, sock: MemorySocket) -> None:
        """Take over the near end of an accepted connection."""
        self._add(id, sock)
        if sock.frames:
            self.readable(sock)

    def _add(self, id: str, sock: MemorySocket) -> None:
        if self._closed:
            raise IllegalStateError(f"the selector of {self.party} is closed")
        if id in self._sockets:
            raise IllegalStateError(f"connection {id} already exists")
        sock.id = id
        sock.selector = self
        self._sockets[id] = sock

    def is_channel_ready(self, id: str) -> bool:
        sock = self._sockets.get(id)
        return sock is not None and sock.established

    def close_channel(self, id: str) -> None:
        """Close a connection, if there is one. It does not appear in ``disconnected``."""
        self._drop(id)

    def session_of(self, id: str) -> Session | None:  # noqa: ARG002 - the seam's signature
        """Return None: connections in memory do not authenticate."""
        return None

    def reauthenticate(self, id: str, frame: Frame) -> None:  # noqa: ARG002
        """Raise IllegalStateError: connections in memory do not authenticate."""
        raise IllegalStateError("connections in memory do not authenticate")

    def reset_channel(self, id: str) -> None:
        """Close a connection abruptly, as if its process had died. It does not appear in ``disconnected``."""
        self._drop(id, "the connection was reset by the other side")

    def _drop(self, id: str, problem: str | None = None) -> None:
        sock = self._sockets.pop(id, None)
        if sock is not None:
            self._readable.pop(id, None)
            sock.close(problem)

    def repeat(self, id: str, request: RepeatableRequest) -> None:
        """Do nothing: the client sends requests again itself."""

    def end_interrupted_wait(self) -> bool:
        """Nothing interrupts a wait in a simulation."""
        return False

    def drop_connections(self) -> None:
        for id in list(self._sockets):
            self.reset_channel(id)

    def reset(self) -> None:
        """Close all connections and the selector abruptly, as if the process had died."""
        self._closed = True
        self.drop_connections()

    def close(self) -> None:
        self._closed = True
        for id in list(self._sockets):
            self.close_channel(id)

    # --- muting ------------------------------------------------------------------------------------------------------

    def mute(self, id: str) -> None:
        self._open_socket(id).muted = True
        self._readable.pop(id, None)

    def unmute(self, id: str) -> None:
        sock = self._open_socket(id)
        sock.muted = False
        if sock.frames:
            self.readable(sock)

    def _open_socket(self, id: str) -> MemorySocket:
        sock = self._sockets.get(id)
        if sock is None:
            raise IllegalStateError(f"{self.party} has no connection {id}")
        return sock

    # --- sending and receiving ---------------------------------------------------------------------------------------

    def send(self, send: NetworkSend) -> None:
        sock = self._sockets.get(send.destination_id) or self._open_socket(send.destination_id)
        if not sock.established:
            raise IllegalStateError(f"the connection {sock.id} of {self.party} does not stand yet")
        buffers = send.pending()
        if len(buffers) == 1 and len(buffers[0]) == send.remaining:
            frame = bytes(memoryview(buffers[0])[4:])
            send.advance(send.remaining)
        else:
            frame = _take_frame(send)
        sock.send(frame)
        self._early_sends.append(send)
        if not send.expect_response:
            self._news()  # nothing else reports it

    def readable(self, sock: MemorySocket) -> None:
        """Record that data has arrived at a socket."""
        if not sock.muted:
            self._readable[sock.id] = sock
            if not self.has_news:
                self._news()

    def wakeup(self) -> None:
        self._news()

    def fileno(self) -> int:
        raise io.UnsupportedOperation("connections in memory have no descriptor")

    def wait_bound_ms(self, now_ms: int) -> int:  # noqa: ARG002 - the seam's signature
        return 0 if self.has_news else FOREVER_MS

    def _news(self) -> None:
        if not self.has_news:
            self.has_news = True
            if self.on_news is not None:
                self.on_news()

    def _wait(self, timeout_ms: int) -> None:
        """Let time pass until ``has_news``, at most ``timeout_ms``."""

    def poll(self, timeout_ms: int) -> None:
        if timeout_ms > 0 and not self.has_news:
            self._wait(timeout_ms)
        self.has_news = False
        self.completed_sends, self._early_sends = self._early_sends, []
        self.completed_receives = []
        self.connected = []
        self.disconnected = {}
        if self._readable:
            readable, self._readable = self._readable, {}
            for sock in readable.values():
                self._read(sock)

    def _read(self, sock: MemorySocket) -> None:
        frames = sock.frames
        receives = self.completed_receives
        while frames:
            frame = frames.popleft()
            if frame is _ESTABLISHED:
                sock.established = True
                self.connected.append(sock.id)
            elif frame is _CLOSED:
                del self._sockets[sock.id]
                sock.close()
                if sock.id in self.connected:
                    self.connected.remove(sock.id)  # it was closed in the same poll that connected it
                state = channel_state.READY if sock.established else channel_state.NOT_CONNECTED
                self.disconnected[sock.id] = ChannelState(
                    state, remote_address=sock.remote_party, cause=ConnectionError(sock.problem)
                )
                return
            else:
                receives.append(_new_receive((sock.id, frame)))


def _take_frame(send: NetworkSend) -> bytes:
    """Return the rest of a frame, without its size, in one piece."""
    pieces: list[bytes | bytearray | memoryview] = []
    while not send.completed:
        buffers = list(send.pending())
        send.advance(sum(map(len, buffers)))
        pieces += buffers
    pieces[0] = memoryview(pieces[0])[4:]
    return b"".join(pieces)
