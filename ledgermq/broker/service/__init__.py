"""The running broker: the only place that knows all parts, and the only one that schedules.

`broker_service.py` starts, stops and steers; `storage.py` opens what is on disk;
`processor_table.py` binds the processors; `schedule.py` holds every delayed call. Read
broker_service.py first.
"""

from ledgermq.broker.service.broker_service import BrokerService

__all__ = ["BrokerService"]
