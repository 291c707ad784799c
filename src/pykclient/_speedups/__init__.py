"""Compiled (Cython) versions of hot code, all of them optional.

Every function here has a Python version, which documents it. Both give the same result on every input, and the same
errors; tests compare them in one process. ``pykclient.implementation`` chooses. Nothing here imports more of the
package than ``errors`` and ``types``.
"""
