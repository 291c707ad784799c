"""The thread that drives a Sender: it alternates between the sender's steps and waits for the network."""

from __future__ import annotations

from pykclient.clock import Clock
from pykclient.log_context import LogContext
from pykclient.network.kafka_client import KafkaClient
from pykclient.producer.sender import Sender
from pykclient.producer.sender_thread import SenderThread


class SenderDriver:
    """Drives a Sender on a thread of its own.

    Thread: the one that it is run on, which is the io thread.
    """

    __slots__ = ("_client", "_clock", "_log", "_sender", "_thread")

    def __init__(
        self, sender: Sender, client: KafkaClient, thread: SenderThread, clock: Clock, log_context: LogContext
    ) -> None:
        self._sender = sender
        self._client = client
        self._thread = thread
        self._clock = clock
        self._log = log_context.logger(__name__)

    def run(self) -> None:
        """Drive the sender until it is closed.

        An exception that is not an Exception, such as SystemExit raised by a plugin, ends the thread: all remaining
        records fail, and later ones are refused.
        """
        thread = self._thread
        thread.begin()
        try:
            self._log.debug("The producer's I/O thread starts")
            while not self._sender.is_closed:
                self.run_once()
            self._log.debug("The producer's I/O thread ends")
        except thread.killed_by:
            raise
        except BaseException as error:  # noqa: BLE001 - nothing else would fail the waiting records
            self._sender.fail(error)
        finally:
            thread.end()

    def run_once(self) -> None:
        """Run one step of the sender, and poll the network until there is something to do."""
        now_ms = self._clock.now_ms()
        wait_ms = self._sender.step(now_ms)
        if self._sender.is_closed:
            return
        try:
            self._client.poll(wait_ms, now_ms)
        except Exception as error:  # noqa: BLE001 - the thread must go on
            self._clock.sleep_ms(self._sender.round_failed(error, self._clock.now_ms()))
