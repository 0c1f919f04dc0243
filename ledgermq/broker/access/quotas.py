"""Quotas: how much an account may ask for, whatever its rights.

Off by default. An account has messages a second (each request counts as one, a batch as many as it
has), bytes a second of requests, and connections. What is beyond an allowance is borrowed from the
next seconds: the connection that asked is not read from until the debt is paid, which a client
notices as a slow broker. Many connections together may borrow faster than that; when an account
owes more than two seconds, its requests are refused with SYSTEM_BUSY, which clients try again.
"""

from collections.abc import Callable
from typing import Final

from ledgermq.broker.access.quota import BYTES, CONNECTIONS, MESSAGES, Quota
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.protocol.batch import BATCH_COUNT_MAX
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import decode_send_header
from ledgermq.protocol.rate_limit import Allowance
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.errors import SystemBusyError

# Seconds that an account may owe, and that one connection is held at a time.
_DEBT_S_MAX: Final = 2.0
_HOLD_S_MAX: Final = 1.0
# Those that may carry a batch: its code says so, or its header.
_SEND_CODES: Final = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    )
)
# 4 length of a message in a batch, and the least that it counts.
_LENGTH_BYTES: Final = 4
# Where neither rules nor configuration say anything.
_NO_QUOTA: Final = Quota(0, 0, 0)


class _Use:
    """What one account has used."""

    __slots__ = ("bytes", "connections", "messages", "quota")

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.messages = Allowance(quota.messages_s) if quota.messages_s else None
        self.bytes = Allowance(quota.bytes_s) if quota.bytes_s else None
        # Those that were open when they were last counted.
        self.connections: set[CommandProtocol] = set()


class Quotas:
    """The accounts that have a quota and asked for something."""

    def __init__(self, config: BrokerConfig, clock_ms: Callable[[], float]) -> None:
        """Begins with whole allowances.

        Args:
            config: the defaults of all accounts.
            clock_ms: monotonic time.
        """
        self._defaults = Quota(
            config.account_messages_s, config.account_bytes_s, config.account_connections
        )
        self._clock_ms = clock_ms
        # By access key; accounts are as many as the rules have.
        self._uses: dict[str, _Use] = {}
        # Requests that were refused since the start.
        self.refused_count = 0

    def charge(
        self, connection: CommandProtocol, access_key: str, own: Quota, command: RemotingCommand
    ) -> None:
        """Counts a request of an account, and holds its connection when it owes something.

        Args:
            connection: where the request came from.
            access_key: of the account.
            own: its quota, as its rules have it.
            command: the request.

        Raises:
            SystemBusyError: it has too many connections, or owes too much; nothing is counted.
        """
        quota = self._in_force(own)
        if quota == _NO_QUOTA:
            # What it owed under rules that had one is forgotten with them.
            self._uses.pop(access_key, None)
            return
        use = self._uses.get(access_key)
        if use is None or use.quota != quota:
            use = self._uses[access_key] = _Use(quota)
        if quota.connections:
            self._count_connection(use.connections, quota.connections, connection, access_key)
        now_s = self._clock_ms() / 1000
        charges = (
            (use.messages, 1, "messages", MESSAGES),
            (use.bytes, _bytes_of(command), "bytes", BYTES),
        )
        for allowance, _, unit, name in charges:
            if allowance is not None and allowance.debt_s(now_s) > _DEBT_S_MAX:
                self.refused_count += 1
                raise SystemBusyError(
                    f"account {access_key} asks for more than {allowance.per_second:g} {unit} a"
                    f" second ({name}); try again later"
                )
        debt_s = 0.0
        for allowance, count, _, name in charges:
            if allowance is not None:
                is_batch = name is MESSAGES and _is_batch(command)
                used = _messages_in(command.body) if is_batch else count
                debt_s = max(debt_s, allowance.use(used, now_s))
        if debt_s > 0:
            connection.hold(min(debt_s, _HOLD_S_MAX))

    def use_bytes(self, connection: CommandProtocol, count: int) -> None:
        """Counts what a request costs besides its own bytes, for the account of its connection."""
        use = self._uses.get(connection.account or "")
        if use is None or use.bytes is None:
            return
        debt_s = use.bytes.use(count, self._clock_ms() / 1000)
        if debt_s > 0:
            connection.hold(min(debt_s, _HOLD_S_MAX))

    def has_quota(self, own: Quota) -> bool:
        """Tells whether requests of an account are counted; `own` as its rules have it."""
        return self._in_force(own) != _NO_QUOTA

    def _in_force(self, own: Quota) -> Quota:
        defaults = self._defaults
        return Quota(
            defaults.messages_s if own.messages_s is None else own.messages_s,
            defaults.bytes_s if own.bytes_s is None else own.bytes_s,
            defaults.connections if own.connections is None else own.connections,
        )

    def _count_connection(
        self,
        counted: set[CommandProtocol],
        connections_max: int,
        connection: CommandProtocol,
        access_key: str,
    ) -> None:
        if connection in counted:
            return
        if len(counted) >= connections_max:
            counted.intersection_update([other for other in counted if other.is_open])
        if len(counted) >= connections_max:
            self.refused_count += 1
            raise SystemBusyError(
                f"account {access_key} has {len(counted)} connections, allowed are"
                f" {connections_max} ({CONNECTIONS})"
            )
        counted.add(connection)


def _is_batch(command: RemotingCommand) -> bool:
    if command.code not in _SEND_CODES:
        return False
    if command.code == RequestCode.SEND_BATCH_MESSAGE:
        return True
    try:
        return bool(decode_send_header(command).batch)
    except RemoteProtocolError:
        # Its processor says what is wrong with it.
        return False


def _bytes_of(command: RemotingCommand) -> int:
    """Bytes of body and fields: the properties of a message stand in a field."""
    fields = command.ext_fields or {}
    return len(command.body) + sum(map(len, fields)) + sum(map(len, fields.values()))


def _messages_in(body: bytes) -> int:
    """Counts the messages of a batch, by their lengths, as far as one may have them; one that lies
    is refused later.
    """
    count, at = 0, 0
    while at + _LENGTH_BYTES <= len(body) and count < BATCH_COUNT_MAX:
        count += 1
        at += max(int.from_bytes(body[at : at + _LENGTH_BYTES]), _LENGTH_BYTES)
    return max(count, 1)
