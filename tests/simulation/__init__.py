"""Real producers and consumers against a cluster of real brokers, on virtual time, with faults generated from a seed.

``schedule`` generates the steps from a seed, ``faults`` applies them to the cluster, ``applications`` use the clients,
``world`` runs everything, and ``checks`` holds the invariants. From a shell::

    python -m tests.simulation --count 1000                # new seeds
    python -m tests.simulation --seed 17 --shrink          # rerun one seed, and shrink its schedule
    python -m tests.simulation.mutants                     # is every deliberate fault found?

``pipeline`` is another application: workers that copy a topic in transactions::

    python -m tests.simulation.pipeline --count 1000
    python -m tests.simulation.pipeline_mutants            # is every deliberate fault of transactions found?
"""
