"""Faults: brokers that die, pause and move, connections that are cut, programs that are interrupted."""
