"""aiokafka's package of assignors: the modules and names that programs import from it."""

from __future__ import annotations

from pykclient.consumer.partition_assignors import RangeAssignor, RoundRobinAssignor
from pykclient.consumer.sticky_assignor import StickyAssignor
from pykclient.foreign_names import provide_modules

provide_modules(
    __name__,
    {
        "assignors.range": {"RangePartitionAssignor": RangeAssignor},
        "assignors.roundrobin": {"RoundRobinPartitionAssignor": RoundRobinAssignor},
        "assignors.sticky.sticky_assignor": {"StickyPartitionAssignor": StickyAssignor},
    },
)
