"""Following: what a broker that does not lead has to do with the broker that does."""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.config.group_secret import find_group_secret
from ledgermq.broker.ha.plain_member import PlainMember
from ledgermq.broker.ha.roles import is_state_copied
from ledgermq.broker.leader_trust import LeaderTrust
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.member_questions import MemberQuestions
from ledgermq.broker.offsets.relay import RELAY_INTERVAL_MS, OffsetRelay
from ledgermq.broker.registration.addresses import split_address
from ledgermq.broker.registration.registration import Registration
from ledgermq.broker.state_copy import COPY_INTERVAL_MS, StateCopy
from ledgermq.dledger.addresses import parse_java_members
from ledgermq.dledger.messages import PeerDialect
from ledgermq.dledger.replica.driver import Replica
from ledgermq.protocol.tcp_times import MEMBER_TIMES
from ledgermq.protocol.tls.files import ClientTls
from ledgermq.protocol.transport import CommandClient, ConnectionLimits, TurnOutput
from ledgermq.protocol.transport.refusals import Refusals
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
        config: BrokerConfig,
    ) -> None:
        """Connects to nobody before `start`.

        Raises:
            ConfigError: the file of the group's secret cannot be used.
        """
        self._reactor = reactor
        self._output = output
        self._tls = tls
        self._leadership = leadership
        self._state = state
        self._registration = registration
        self._copy: StateCopy | None = None
        # What the copy and the relay follow; None before `start`.
        self._member: Replica | PlainMember | None = None
        refusals = Refusals(config.ledger_self_id, reactor.seconds)
        self._trust = _leader_trust(config, self._is_java, refusals)
        self.relay = OffsetRelay(
            leadership,
            state.offsets,
            state.commits.tell,
            find_master=registration.find_master,
            ask_for_master=registration.register,
            connect=self._connect,
            trust=self._trust,
        )

    def _is_java(self, member_id: str) -> bool:
        member = self._member
        return isinstance(member, Replica) and member.dialect_of(member_id) is PeerDialect.JAVA

    def start(
        self, member: Replica | PlainMember, schedule: Schedule, *, mirrors_tables: bool
    ) -> None:
        """Begins; `schedule` ends it.

        Args:
            member: tells whose state is copied.
            mirrors_tables: as StateCopy wants it.
        """
        self._member, self._trust.refusals = member, member.refusals
        self._copy = StateCopy(
            self._leadership,
            self._state,
            is_copied=lambda leader_id: is_state_copied(member, leader_id),
            find_master=self._registration.find_master,
            ask_for_master=self._registration.register,
            connect=self._connect,
            trust=self._trust,
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


def _leader_trust(
    config: BrokerConfig, is_java: Callable[[str], bool], refusals: Refusals
) -> LeaderTrust:
    """Returns what a broker asks of its leader.

    Raises:
        ConfigError: the file of the group's secret cannot be used.
    """
    is_required = config.group_secret_mode == "require"
    questions = MemberQuestions(
        config.broker_name, find_group_secret(config), is_required=is_required
    )
    hosts = {peer.member_id: peer.host for peer in config.ledger_peers}
    java = parse_java_members(config.ledger_java_members or (), tuple(hosts))

    def is_java_host(member_id: str, host: str) -> bool:
        if member_id not in java:
            return False
        try:
            address = ip_address(host)
        except ValueError:
            return host == hosts.get(member_id)
        if host == hosts.get(member_id):
            return True
        return any(address in network for network in java[member_id])

    return LeaderTrust(questions, is_java, is_java_host, refusals)
