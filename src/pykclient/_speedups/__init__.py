"""Compiled twins of what is hot (Cython), which may all be missing.

Every function here has a twin in Python, which says what it does. Both give the same result on every input, and the
same errors; tests ask both in one process. ``pykclient.implementation`` chooses. Nothing in here imports more of the
package than ``errors`` and ``types``.
"""
