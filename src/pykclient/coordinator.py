"""kafka-python's package of assignors and of a member's states: the modules and names that programs import from it."""

from __future__ import annotations

from pykclient.consumer.partition_assignors import RangeAssignor, RoundRobinAssignor
from pykclient.consumer.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from pykclient.foreign_names import provide_modules
from pykclient.types import MemberState

provide_modules(
    __name__,
    {
        "assignors.cooperative_sticky": {"CooperativeStickyAssignor": CooperativeStickyAssignor},
        "assignors.range": {"RangePartitionAssignor": RangeAssignor},
        "assignors.roundrobin": {"RoundRobinPartitionAssignor": RoundRobinAssignor},
        "assignors.sticky.sticky_assignor": {"StickyPartitionAssignor": StickyAssignor},
        "base": {"MemberState": MemberState},
    },
)
