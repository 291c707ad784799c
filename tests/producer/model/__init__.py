"""The whole producer against a model of Kafka, on virtual time, in one thread, without sockets.

``schedule`` says what happens and is made from a seed; ``network`` carries frames, late or never; ``brokers`` keeps the
logs by Kafka's rules; ``world`` runs a schedule and checks what must hold whatever happened. From a shell::

    python -m tests.producer.model --count 1000            # fresh seeds
    python -m tests.producer.model --seed 17 --shrink      # one again, made smaller
"""
