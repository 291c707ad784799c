"""Clusters and clients in one thread on virtual time, every run repeatable from its seed; needs ``greenlet``.

``pip install pykclient[simulation]``; see ``Simulation``.
"""

from __future__ import annotations

from pykclient.testing.simulation.hub import Actor, SimulationError
from pykclient.testing.simulation.simulation import Simulation

__all__ = ["Actor", "Simulation", "SimulationError"]
