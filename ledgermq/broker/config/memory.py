"""The memory of the machine, of which some limits are a part."""

import os
from typing import Final

from ledgermq.broker.config.broker_config import BrokerConfig

_MIB: Final = 1 << 20


def machine_memory_bytes() -> int:
    """Returns the physical memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def receive_budget_bytes(config: BrokerConfig) -> int:
    """Returns what all clients together may have sent that is not worked on."""
    part = machine_memory_bytes() // 8
    return config.receive_budget_bytes or min(max(part, 64 * _MIB), 1024 * _MIB)
