"""Example programs, run as modules: ``python -m examples.flights``."""
