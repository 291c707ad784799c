"""The effect of closing a consumer on its membership (Java: CloseOptions.GroupMembershipOperation; KIP-1092)."""

from __future__ import annotations

from typing import Final

#: Dynamic members leave and static ones stay.
DEFAULT: Final = "default"
LEAVE_GROUP: Final = "leave_group"
REMAIN_IN_GROUP: Final = "remain_in_group"
