"""What a broker without a ledger gets in its place, by its role; with a ledger nothing."""

from collections.abc import Callable
from typing import Any, Final

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.ha.plain_member import PlainMember
from ledgermq.broker.ha.replication import MasterReplication, SlaveReplication
from ledgermq.broker.sends.proposals import Proposals
from ledgermq.broker.storage.plain_storage import PlainStorage, has_plain_log
from ledgermq.broker.storage.storage import Storage
from ledgermq.commitlog import MessageStore, PlainMessageStore
from ledgermq.dledger.messages import PeerDialect
from ledgermq.dledger.replica.driver import Replica

# A wait for a slave ends by its own deadline, with an answer of its own, before that of the send.
_SPARE_MS: Final = 1000

Replication = MasterReplication | SlaveReplication


def new_replication(
    config: BrokerConfig,
    reactor: Any,
    storage: Storage,
    proposals: Proposals,
    find_master: Callable[[], str | None],
) -> Replication | None:
    """Returns what copies the plain log of a broker; None when it has a ledger."""
    if not isinstance(storage, PlainStorage):
        return None
    if config.is_slave:
        # Who has files made is known when the member is.
        return SlaveReplication(
            config, reactor, storage.log, find_master, lambda: proposals.make_room()
        )
    return MasterReplication(config, reactor, storage.log, proposals)


def answer_of(proposals: Proposals, replication: Replication | None) -> Callable[[int], None]:
    """Returns who is told up to where messages are committed here, and answers their senders."""
    if isinstance(replication, MasterReplication):
        return replication.confirmed
    return proposals.committed


def answer_first_of(proposals: Proposals, replication: Replication | None) -> Callable[[int], None]:
    """Returns who answers clients as soon as their messages are committed here; nobody, where a
    slave must have them, too.
    """
    if isinstance(replication, MasterReplication) and replication.waits_for_slaves:
        return _answer_nobody
    return proposals.answer


def _answer_nobody(_: int) -> None:
    """The slaves are waited for."""


def waits_for_slaves(config: BrokerConfig, messages: MessageStore) -> bool:
    """Tells whether sends are answered when a slave has them, too."""
    return config.broker_role == "SYNC_MASTER" and isinstance(messages, PlainMessageStore)


def answer_ms_max(config: BrokerConfig) -> int:
    """Returns how long a send may wait for its answer, whoever it waits for."""
    if config.broker_role == "SYNC_MASTER" and has_plain_log(config):
        return max(config.commit_timeout_ms, config.slave_timeout_ms + _SPARE_MS)
    return config.commit_timeout_ms


def ha_address(config: BrokerConfig, replication: Replication | None) -> str:
    """Returns what name servers tell slaves; where nobody listens it is what upstream would say."""
    if isinstance(replication, MasterReplication):
        return replication.address
    return f"{config.ha_host}:{config.ha_listen_port}"


def is_state_copied(member: Replica | PlainMember, leader_id: str) -> bool:
    """Tells whether a leader is asked for its state: by slaves always, in a group if it is Java."""
    return isinstance(member, PlainMember) or member.dialect_of(leader_id) is PeerDialect.JAVA
