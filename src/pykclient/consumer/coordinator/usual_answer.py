"""Responses of the coordinator that equal an earlier one, and so need not be parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykclient.consumer.network_client_delegate import NetworkClientDelegate
    from pykclient.network.client_request import ClientRequest, ClientResponse
    from pykclient.network.network_receive import Frame

#: Longer responses are not compared, so that a commit of many partitions does not keep its response in memory.
_MAX_SIZE_BYTES: Final = 4096


class UsualAnswer:
    """The response that a member gets to each request of one kind while nothing happens.

    An idle member gets the same bytes for each heartbeat, and for each commit. Parsing them, ending the application's
    wait and starting it again would take most of its time. The first such response takes that way, and becomes the
    usual one if it has changed nothing; later ones are only compared.

    Thread: the holder of the I/O lease.
    """

    __slots__ = ("_client", "_last", "_last_id", "_usual")

    def __init__(self, client: NetworkClientDelegate) -> None:
        self._client = client
        self._usual: tuple[int, bytes] | None = None
        self._last: tuple[int, bytes] | None = None
        self._last_id = -1

    def matches(self, request: ClientRequest, version: int, response: Frame) -> bool:
        """Return True if this is the usual response and the application waits for records.

        Other calls of the application wait for what a response may bring.
        """
        self._last = None
        if len(response) > _MAX_SIZE_BYTES:
            return False
        self._last, self._last_id = (version, bytes(response[4:])), request.correlation_id
        return self._client.awaits_records and self._last == self._usual

    def confirm(self, response: ClientResponse) -> bool:
        """Make a response the usual one, as it has been handled and has changed nothing; return whether it now is."""
        # Another response may have arrived before this one was handled.
        if self._last is None or self._last_id != response.correlation_id:
            return False
        self._usual = self._last
        return True
