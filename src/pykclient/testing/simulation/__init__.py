"""Clusters and clients in one thread on virtual time; a seed makes every run repeatable.

Needs ``greenlet`` (``pip install pykclient[simulation]``). See ``Simulation``, and ``checks`` for the invariants.

- ``simulation``: a cluster and its clients; ``checks``: the invariants
- ``hub``: whose turn it is
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pykclient.testing.simulation.hub import Actor, SimulationError
    from pykclient.testing.simulation.simulation import Simulation

#: Public names and the modules that define them.
_HOME = {"Actor": "hub", "Simulation": "simulation", "SimulationError": "hub"}

__all__ = ["Actor", "Simulation", "SimulationError"]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_HOME[name]}")
    except ModuleNotFoundError as error:
        if error.name != "greenlet":
            raise
        raise ImportError("simulation needs greenlet: pip install pykclient[simulation]") from error
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
