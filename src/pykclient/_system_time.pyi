from pykclient.system_time import monotonic_ms as monotonic_ms, wall_ms as wall_ms
