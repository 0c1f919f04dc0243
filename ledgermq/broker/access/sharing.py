"""Whether a member shares its rules of access control with others, and how: by its configuration.

no group, or one of a single member   the files of this broker are all there is
several members, a group secret       the leader's rules go to all, sealed
several members, none                 each goes by its own files; tools change nothing
"""

import importlib
from collections.abc import Callable
from typing import Final

from ledgermq.broker.access.rules_table import RulesTable, Seal
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.config.group_secret import find_former_secret, find_group_secret

_NO_SECRET: Final = (
    "this group of {count} members has no secret to seal the rules with, so each member goes by its"
    " own files: give all the same file (key dLegerGroupSecretFile), or edit {path} of each"
)


def rules_table_of(config: BrokerConfig, now_ms: Callable[[], int]) -> RulesTable | None:
    """Returns the rules of a broker, of which nothing is read yet; None without access control.

    Args:
        config: of the broker.
        now_ms: wall clock.

    Raises:
        ConfigError: the secret of the group cannot be used.
    """
    if not config.is_acl_on:
        return None
    count = len(config.ledger_peers)
    if not config.is_group_member or count < 2:
        return RulesTable(config.acl_file, now_ms)
    secret = find_group_secret(config)
    if secret is None:
        reason = _NO_SECRET.format(count=count, path=config.acl_file.name)
        return RulesTable(config.acl_file, now_ms, closed_because=reason)
    # Loads a package that is large.
    sealing = importlib.import_module("ledgermq.broker.access.rules_seal")
    seal: Seal = sealing.RulesSeal(secret, find_former_secret(config))
    return RulesTable(config.acl_file, now_ms, seal=seal)
