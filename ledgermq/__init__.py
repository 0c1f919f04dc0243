"""LedgerMQ: a RocketMQ-compatible message broker on a replicated ledger.

The rooms, from the ground up; a room imports only what stands below it:

- `protocol`: bytes to values and back, without I/O but for one file;
- `dledger`: the replicated ledger, usable without a broker;
- `commitlog`: messages on the ledger, consume queues, key index, retention;
- `broker`, `namesrv`, `client`: three independent programs;
- `spark`, `testing`, `cli`: entry points.

Read `ledgermq.protocol` first. No room is imported here, so that a program pays only for the
rooms it uses.
"""

from ledgermq.kernel import choose

choose()

__version__ = "0.1.0"
