"""The running broker: the only place that knows all parts, and the only one that schedules.

    broker_service.py    builds the parts in order, starts and stops them; read it first
    state_tables.py      the state files, and which of them are older than their tables
    member.py            what the ledger's member is told of the broker's configuration
    applier.py           what the ledger tells: committed entries, changes of role, its end
    farewell.py          what a stop waits for: commits, and another leader
    parts.py             what processors may be given
    processor_table.py   request code -> processor; `admin_table.py` has the tools' part of it
    upkeep.py            what is done from time to time; `schedule.py` holds every delayed call

Nothing below imports this floor, and no part holds the service: it hands each part what that needs.
"""

from ledgermq.broker.service.broker_service import BrokerService

__all__ = ["BrokerService"]
