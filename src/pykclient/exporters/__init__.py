"""The metrics and traces of clients for other systems.

Each module needs the extra of its name, such as ``pip install pykclient[prometheus]``.

- ``prometheus``: metrics for prometheus_client
- ``opentelemetry``: metrics and traces
- ``samples``: the values and names that both export
"""
