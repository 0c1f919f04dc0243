"""LedgerMQ: a RocketMQ-compatible message broker on a replicated ledger.

The rooms, from the ground up; a room imports only what stands below it:

- `protocol`: bytes to values and back, without I/O but for one file;
- `dledger`: the replicated ledger, usable without a broker;
- `commitlog`: messages on the ledger, consume queues, key index, retention;
- `broker`, `namesrv`, `client`: three independent programs;
- `spark`, `testing`, `cli`: entry points.

Read `ledgermq.protocol` first. No room is imported here, so that a program pays only for the
rooms it uses; `ledgermq.read`, which makes a topic a table, loads the client when it is asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ledgermq.kernel import choose

if TYPE_CHECKING:
    from ledgermq.client.arrow import read as read

choose()

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "read":
        return importlib.import_module("ledgermq.client.arrow").read
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
