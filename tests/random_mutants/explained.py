"""Mutations that change nothing an application, a broker or a reader of metrics can see, each with the reason."""

from __future__ import annotations

from typing import NamedTuple


class Explained(NamedTuple):
    module: str
    function: str
    kind: str
    code: str
    why: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.module, self.function, self.kind, self.code


EXPLAINED: tuple[Explained, ...] = ()
