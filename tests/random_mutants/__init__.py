"""Random faults in the code that decides, to measure how many of them the tests notice.

``mutations`` lists every small fault that a module could have, ``trial`` puts one into a copy of the sources and runs
the module's unit tests and then the simulation against it, and ``explained`` says why some faults change nothing that
an application can see. From a shell::

    python -m tests.random_mutants --draw 30 --seed 1
"""
