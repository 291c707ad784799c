"""Encoding and decoding of Kafka's messages: primitives, messages, headers. No sockets, no clocks.

- ``wire``: primitive types; ``message``: the base classes; ``messages``: one generated module per API
- ``headers``: headers, and whole messages with them
- ``api_keys``, ``api_table``: the APIs with their versions
"""
