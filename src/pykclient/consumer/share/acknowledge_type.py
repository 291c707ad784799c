"""The ways to acknowledge a record of a share group."""

from __future__ import annotations

from enum import IntEnum


class AcknowledgeType(IntEnum):
    """The outcome of processing a record; the numbers are those of the protocol."""

    #: The record was processed.
    ACCEPT = 1
    #: The record was not processed. Deliver it again, to any member of the group.
    RELEASE = 2
    #: The record cannot be processed. Do not deliver it again.
    REJECT = 3
    #: The record is still being processed. Lock it for another full period (KIP-1222).
    RENEW = 4
