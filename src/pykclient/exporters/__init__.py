"""The metrics and traces of clients for other systems: ``prometheus`` and ``opentelemetry``.

Each module needs the extra of its name, such as ``pip install pykclient[prometheus]``.
"""
