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
    return config.receive_budget_bytes or _usual_part()


def send_budget_bytes(config: BrokerConfig) -> int:
    """Returns what all clients together may have unread of their answers."""
    return config.send_budget_bytes or _usual_part()


def _usual_part() -> int:
    return min(max(machine_memory_bytes() // 8, 64 * _MIB), 1024 * _MIB)
