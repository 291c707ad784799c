"""Encoding and decoding of Kafka's messages: primitives, messages, headers. No sockets, no clocks."""
