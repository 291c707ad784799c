"""The messages of Kafka's protocol, one generated module per API.

Import the module that you need; this one imports nothing, because most programs use a dozen of them.
"""
