"""The features of a cluster that clients adapt to (KIP-584): a level for each name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykclient.argument_values import shown
from pykclient.errors import ConfigError

GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
TRANSACTION_VERSION: Final = "transaction.version"

#: The highest level of each feature that the embedded brokers support; all support level 0.
SUPPORTED_FEATURES: Final[Mapping[str, int]] = {GROUP_VERSION: 1, SHARE_VERSION: 1, TRANSACTION_VERSION: 2}


class FinalizedFeatures:
    """The levels in effect, and their ``epoch``, which grows with each change. Thread: loop."""

    __slots__ = ("_levels", "epoch")

    def __init__(self, levels: Mapping[str, int]) -> None:
        """Start with these levels; a feature without one has level 0.

        Raises:
            ConfigError: the cluster does not support a feature or level.
        """
        self.epoch = 0
        self._levels: dict[str, int] = {}
        for name, level in levels.items():
            self.update(name, level)

    def update(self, name: str, level: int) -> None:
        """Change the level of a feature.

        Raises:
            ConfigError: the cluster does not support the feature or level.
        """
        highest = SUPPORTED_FEATURES.get(name) if isinstance(name, str) else None
        if highest is None:
            raise ConfigError(f"there is no feature {shown(name)}, only {', '.join(SUPPORTED_FEATURES)}")
        if type(level) is not int or not 0 <= level <= highest:
            raise ConfigError(f"{name} can be 0 to {highest}, not {shown(level)}")
        self.epoch += 1
        self._levels[name] = level

    @property
    def levels(self) -> Mapping[str, int]:
        """The levels above 0."""
        return {name: level for name, level in self._levels.items() if level}

    @property
    def group_version(self) -> int:
        """The group protocols: 1 has the one of KIP-848 beside the classic one."""
        return self._levels.get(GROUP_VERSION, 0)

    @property
    def share_version(self) -> int:
        """The support of share groups (KIP-932): 0 has none."""
        return self._levels.get(SHARE_VERSION, 0)

    @property
    def transaction_version(self) -> int:
        """The protocol generation of transactions (KIP-890): 2 bumps the epoch with each transaction."""
        return self._levels.get(TRANSACTION_VERSION, 0)
