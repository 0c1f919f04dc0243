"""Following: what a broker that does not lead has to do with the broker that does."""

from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList

from ledgermq.broker.ha.plain_member import PlainMember
from ledgermq.broker.ha.roles import is_state_copied
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.offsets.relay import RELAY_INTERVAL_MS, OffsetRelay
from ledgermq.broker.registration.name_server import split_address
from ledgermq.broker.registration.registration import Registration
from ledgermq.broker.state_copy import COPY_INTERVAL_MS, StateCopy
from ledgermq.dledger.replica.driver import Replica
from ledgermq.protocol.tcp_times import MEMBER_TIMES
from ledgermq.protocol.tls.files import ClientTls
from ledgermq.protocol.transport import CommandClient, ConnectionLimits, TurnOutput
from ledgermq.protocol.transport.schedule import Schedule
from ledgermq.state.broker_state import BrokerState

_LIMITS: Final = ConnectionLimits(first_frame_timeout_s=0, tcp_times=MEMBER_TIMES)


class Following:
    """The copy of its state, and the relay of offsets to it."""

    def __init__(
        self,
        reactor: Any,
        output: TurnOutput,
        tls: ClientTls | None,
        leadership: Leadership,
        state: BrokerState,
        registration: Registration,
    ) -> None:
        """Connects to nobody before `start`."""
        self._reactor = reactor
        self._output = output
        self._tls = tls
        self._leadership = leadership
        self._state = state
        self._registration = registration
        self._copy: StateCopy | None = None
        self.relay = OffsetRelay(
            leadership,
            state.offsets,
            state.commits.tell,
            find_master=registration.find_master,
            ask_for_master=registration.register,
            connect=self._connect,
        )

    def start(
        self, member: Replica | PlainMember, schedule: Schedule, *, mirrors_tables: bool
    ) -> None:
        """Begins; `schedule` ends it.

        Args:
            member: tells whose state is copied.
            mirrors_tables: as StateCopy wants it.
        """
        self._copy = StateCopy(
            self._leadership,
            self._state,
            is_copied=lambda leader_id: is_state_copied(member, leader_id),
            find_master=self._registration.find_master,
            ask_for_master=self._registration.register,
            connect=self._connect,
            mirrors_tables=mirrors_tables,
        )
        schedule.every(COPY_INTERVAL_MS, self._copy.run)
        schedule.every(RELAY_INTERVAL_MS, self.relay.run)

    def _connect(self, address: str) -> CommandClient:
        host, port = split_address(address)
        return CommandClient(
            self._reactor, host, port, limits=_LIMITS, output=self._output, tls=self._tls
        )

    def stop(self) -> Deferred[Any]:
        """Ends what is under way."""
        parts = (self.relay, self._copy)
        ending = [part.stop() for part in parts if part is not None]
        return DeferredList([ended for ended in ending if ended is not None])
