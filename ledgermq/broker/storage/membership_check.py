"""Whether a store is that of the configured member. Loads quickly: `doctor` asks, too."""

import os
from typing import Final

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.dledger.store.errors import MembershipError
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.dledger.store.vote_file import VoteFile

# Of the directory of a member's ledger, followed by its id (DLedgerConfig.getDefaultPath).
_LEDGER_PREFIX: Final = "dledger-"


def check_membership(config: BrokerConfig, file_system: FileSystem) -> None:
    """Checks that a store is that of the configured member, and writes nothing.

    Lost votes pass: they are the replica's to see (`Recollection`).

    Raises:
        MembershipError: it is that of another member, group or member list.
    """
    member_vote_file(config, file_system).check_membership()
    names = file_system.names(str(config.store_root))
    others = sorted(name for name in names if name.startswith(_LEDGER_PREFIX))
    if others and os.path.basename(ledger_directory(config)) not in others:
        raise MembershipError(
            os.path.join(config.store_root, others[0]),
            "dLegerSelfId",
            others[0].removeprefix(_LEDGER_PREFIX),
            config.ledger_self_id,
        )


def ledger_directory(config: BrokerConfig) -> str:
    """Returns where the ledger of the configured member is."""
    return os.path.join(config.store_root, f"{_LEDGER_PREFIX}{config.ledger_self_id}")


def member_vote_file(config: BrokerConfig, file_system: FileSystem) -> VoteFile:
    """Returns the vote file of the configured member."""
    return VoteFile(
        file_system,
        ledger_directory(config),
        config.ledger_self_id,
        group=config.ledger_group,
        members=[peer.member_id for peer in config.ledger_peers],
    )
