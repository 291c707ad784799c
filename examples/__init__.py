"""Programs to learn from, run as modules: ``python -m examples.flights``."""
