"""Real producers and consumers against a cluster of real brokers, on virtual time, through faults made from a seed.

``schedule`` says what happens and is made from a seed, ``faults`` makes it happen, ``applications`` are what uses the
clients, ``world`` runs all of it and ``checks`` says what must hold whatever happened. From a shell::

    python -m tests.simulation --count 1000                # fresh seeds
    python -m tests.simulation --seed 17 --shrink          # one again, made smaller
    python -m tests.simulation.mutants                     # is every deliberate fault found?
"""
