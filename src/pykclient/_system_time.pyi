from pykclient.system_time import monotonic_ms as monotonic_ms
from pykclient.system_time import wall_ms as wall_ms
