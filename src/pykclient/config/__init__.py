"""Configuration: one table of keys per client, and the objects that hold validated values.

- ``producer_config``, ``consumer_config``, ``admin_config``: the keys of each client
- ``client_keys``, ``security_keys``, ``sasl_keys``: the keys that clients share
- ``config_def``, ``validators``: what a row of a table says, and the checks of a value
- ``abstract_config``: the validated configuration of one client
- ``librdkafka_settings``: librdkafka's settings; ``client_settings``: the keyword arguments for type checkers
"""
