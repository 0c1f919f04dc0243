"""The running broker: the only place that knows all parts.

    broker_service.py    builds the parts in order, starts and stops them; read it first
    ground.py            what needs no port; `serving.py` has what needs one
    member.py            what the ledger's member is told of the broker's configuration
    farewell.py          what a stop waits for: commits, and another leader
    parts.py             what processors may be given
    processor_table.py   request code -> processor; `admin_table.py` has the tools' part of it
    timers.py            what the parts are called for from time to time

Nothing below imports this floor, and no part holds the service: it hands each part what that needs.
"""

from ledgermq.broker.service.broker_service import BrokerService

__all__ = ["BrokerService"]
