"""The sessions of share consumers with a broker (Java: ShareSession, ShareSessionCache).

A session remembers which partitions a member reads from the broker, so requests contain only changes. Both sides count
the requests in epochs. When a session ends, or its connection, the records that the member has acquired are released.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import InvalidShareSessionEpochError, ShareSessionNotFoundError

if TYPE_CHECKING:
    from uuid import UUID

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = (1 << 31) - 1


class ShareSessionKey(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


class ShareSession:
    """The partitions that a member reads from this broker, by topic id and number, in the order of reading.

    The value of a partition is True if the next response must contain it even without records. Thread: loop.
    """

    __slots__ = ("connection_id", "epoch", "key", "partitions")

    def __init__(self, key: ShareSessionKey, partitions: Iterable[tuple[UUID, int]], connection_id: str) -> None:
        self.key = key
        self.connection_id = connection_id
        self.partitions: dict[tuple[UUID, int], bool] = dict.fromkeys(partitions, False)
        self.epoch = INITIAL_EPOCH + 1

    def advance(self, epoch: int) -> None:
        """Check the epoch of a request, and expect the next one. 1 follows the largest, because 0 starts a session.

        Raises:
            InvalidShareSessionEpochError: a request was lost or sent twice.
        """
        if epoch != self.epoch:
            raise InvalidShareSessionEpochError(f"share session epoch {epoch} is wrong, {self.epoch} is the next one")
        self.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1

    def update(self, added: Iterable[tuple[UUID, int]], forgotten: Iterable[tuple[UUID, int]]) -> None:
        """Apply the changes of a request."""
        for partition in added:
            self.partitions.setdefault(partition, True)
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def must_respond(self, partition: tuple[UUID, int], *, has_records: bool, has_error: bool) -> bool:
        """Return whether a response must contain a partition.

        One with records moves to the end, so that the others get their turn. The end of an error is reported, too.
        """
        was_due = self.partitions.get(partition)
        if was_due is None:
            return True
        self.partitions[partition] = has_error
        if has_records:
            self.partitions[partition] = self.partitions.pop(partition)
        return was_due or has_records or has_error


class ShareSessionCache:
    """The share sessions of a broker, at most ``max_entries``. Thread: loop."""

    __slots__ = ("_max_entries", "_sessions")

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._sessions: dict[ShareSessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: ShareSessionKey) -> ShareSession:
        """Return a session.

        Raises:
            ShareSessionNotFoundError: the member has none here.
        """
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFoundError(f"member {key.member_id} of {key.group_id} has no share session here")
        return session

    def add(self, session: ShareSession) -> bool:
        """Add a session, in place of the member's earlier one; return False if there is no room."""
        self._sessions.pop(session.key, None)
        if len(self._sessions) >= self._max_entries:
            return False
        self._sessions[session.key] = session
        return True

    def remove(self, session: ShareSession) -> None:
        """Remove a session."""
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]

    def of_connection(self, connection_id: str) -> list[ShareSession]:
        """Return the sessions that were opened on a connection."""
        return [session for session in self._sessions.values() if session.connection_id == connection_id]

    def has_members(self, group_id: str) -> bool:
        """Return whether any member of a group has a session."""
        return any(key.group_id == group_id for key in self._sessions)

    def clear(self) -> None:
        """Remove all sessions."""
        self._sessions.clear()
