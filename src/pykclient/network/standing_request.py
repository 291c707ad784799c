"""A request that a poller sends again by itself each time its empty response comes."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from pykclient.metrics.stats import Tally

#: The position of the correlation id in the frame of a request, after its size, API key and version.
CORRELATION_ID_AT: Final = 8


class RenewalTemplate(NamedTuple):
    """A request that is to be sent again: the frame of the next one, and where the epoch stands in it.

    ``response`` is the empty response after its correlation id, ``epoch`` that of the request in flight.
    """

    response: bytes
    request: bytes
    epoch_at: int
    epoch: int


class StandingRequest(NamedTuple):
    """A request to send again each time its empty response comes.

    ``response`` is the frame of that, with the correlation id of the request in flight, which was sent ``age_ms`` ago.
    ``request`` is the frame to send, which has an epoch at ``epoch_at``. The next one has ``correlation_id`` and
    ``epoch``; each number grows by 1 with each request.
    """

    response: bytes
    request: bytes
    epoch_at: int
    correlation_id: int
    epoch: int
    age_ms: int


class Repetitions(NamedTuple):
    """The number of times that a poller has sent a request again, and the size of all these frames.

    ``since_ms`` is the time since the last one, the others are times from requests to their responses.
    """

    repeats: int
    size_bytes: int
    since_ms: int
    total_ms: int
    least_ms: int
    most_ms: int
    last_ms: int

    @property
    def latencies_ms(self) -> Tally:
        """The times from requests to their responses."""
        tally = Tally()
        tally.count, tally.total, tally.last = self.repeats, self.total_ms, self.last_ms
        tally.smallest, tally.largest = self.least_ms, self.most_ms
        return tally

    @property
    def throttle_times_ms(self) -> Tally:
        """The throttle times in the responses: zeros, as they were empty."""
        tally = Tally.of(0)
        tally.count = self.repeats
        return tally


class StandingChannel(Protocol):
    """A connection whose poller sends a request again by itself. Thread: io."""

    def end_standing(self) -> Repetitions:
        """Send it no more; return how often it was sent."""
