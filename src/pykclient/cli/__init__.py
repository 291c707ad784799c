"""The command ``pykclient``.

- ``main``, ``run``, ``app``, ``quick``: from the words of a command line to a command, its errors and exit code
- ``options``, ``parameters``, ``settings``, ``session``, ``values``: options, configuration, clients
- ``records``, ``reading``, ``writing``, ``output``, ``formats``: ``pykclient consume`` and ``pykclient produce``
- ``topics``, ``groups``, ``offsets``, ``configs``, ``access``, ``cluster``, ``transactions``,
  ``schemas``: the commands of these names
- ``doctor``, ``top``, ``bench``, ``embedded``: commands that diagnose, watch, measure, and run brokers
"""
