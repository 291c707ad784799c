"""Fuzzing of everything that reads bytes from the network or from key stores.

``python -m tests.fuzz`` runs it; ``test_fuzz.py`` runs a sample of it.
"""
