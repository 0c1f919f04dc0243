"""The guard of the quick road: signed sends and pulls without a look at their commands.

What it lets pass the guard lets pass, too; what it does not, it leaves to that one, which says why.
Signatures are checked for each frame; what an account may do is remembered by topic and group until
the rules change, which makes another object of them.
"""

from typing import Any, Final

from ledgermq.broker.access.quotas import Quotas
from ledgermq.broker.access.rights import AccountSight, Need, find_refusal, topic_needs
from ledgermq.broker.access.rules import AccessRules, Account, Permission
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.protocol.quick_frames import QuickSend
from ledgermq.protocol.signed_frames import (
    begin_hmac,
    count_signed,
    is_signature_right,
    is_signed,
    read_signature,
)
from ledgermq.protocol.transport import CommandProtocol

# Decisions of each kind that are remembered, by account or in all; one more, and all are forgotten.
_REMEMBERED_MAX: Final = 4096


class _Signer:
    """An account with what was found out about it under these rules."""

    __slots__ = (
        "access_key", "account", "hosts", "is_counted", "keyed", "pulls", "reply_topic", "sends",
        "sight",
    )  # fmt: skip

    def __init__(self, account: Account, reply_topic: str) -> None:
        self.account, self.reply_topic = account, reply_topic
        # It has a quota.
        self.is_counted = False
        self.access_key = account.access_key.encode()
        self.sight = None if account.is_unlimited else AccountSight(account, reply_topic)
        self.keyed = begin_hmac(account.secret_key.encode("utf-8", "surrogatepass"))
        # Whether it may send to a topic, pull from one as a group, and needs no signature there.
        self.sends: dict[bytes, bool] = {}
        self.pulls: dict[tuple[str, str], bool] = {}
        self.hosts: dict[str, bool] = {}

    def may_send(self, topic: bytes) -> bool:
        may = self.sends.get(topic)
        if may is None:
            needs = topic_needs(topic.decode(), Permission.PUB)
            may = _remembered(self.sends, topic, self._may(*needs))
        return may

    def may_pull(self, topic: str, group: str) -> bool:
        may = self.pulls.get((topic, group))
        if may is None:
            needs = (*topic_needs(topic, Permission.SUB), Need(True, group, Permission.SUB))
            may = _remembered(self.pulls, (topic, group), self._may(*needs))
        return may

    def is_other_road(self, host: str) -> bool:
        """Tells whether its requests are counted, or its address alone lets it in: then nobody
        knows that it is the account.
        """
        white = self.hosts.get(host)
        if white is None:
            matches = self.account.white_remote_address.matches(host)
            white = _remembered(self.hosts, host, matches)
        return white or self.is_counted

    def count_sends(self, frames: list[bytes], sends: list[QuickSend]) -> int:
        """Returns how many sends, from the front, it signed, to topics that it may send to."""
        count, end = 0, len(sends)
        while True:
            count = count_signed(frames, sends, count, self.sends, self.access_key, self.keyed)
            if count == end or sends[count][2] in self.sends or not self.may_send(sends[count][2]):
                return count

    def _may(self, *needs: Need) -> bool:
        account, replies = self.account, self.reply_topic
        return account.is_unlimited or all(
            find_refusal(account, need, replies) is None for need in needs
        )


class QuickGuard:
    """Stands before the quick road.

    Invariant: what is remembered was found under `_rules`, and is used while those are in force.
    """

    def __init__(self, table: RulesTable, quotas: Quotas | None, reply_topic: str) -> None:
        """Binds the parts.

        Args:
            table: the rules in force.
            quotas: an account with one takes the other road, where requests are counted; None:
                there are none.
            reply_topic: where replies of this cluster are kept.
        """
        self._table = table
        self._quotas = quotas
        self._reply_topic = reply_topic
        self._rules: AccessRules | None = None
        # By access key; whether an address needs no account.
        self._signers: dict[bytes, _Signer] = {}
        # Those of them who signed something, by account.
        self._proven: dict[str | None, _Signer] = {}
        self._white_hosts: dict[str, bool] = {}

    def count_sends(
        self, connection: CommandProtocol, frames: list[bytes], sends: list[QuickSend]
    ) -> int:
        """Returns how many sends, from the front, are let pass.

        Args:
            connection: who sends; knows the account of those that pass.
            frames: those of the sends first, in their order.
            sends: all quick; those that pass are signed by one account, if there is a need to.
        """
        if self._needs_no_account(connection):
            return len(sends)
        # As a rule who sends on a connection is who sent on it before.
        signer = self._proven.get(connection.account)
        count = 0
        if signer is not None and not signer.is_other_road(connection.peer_host):
            count = signer.count_sends(frames, sends)
        if not count:
            found = read_signature(frames[0])
            other = None if found is None else self._find_signer(connection, found[0])
            if other is None or other is signer:
                return 0
            signer, count = other, other.count_sends(frames, sends)
        if count:
            assert signer is not None
            self._proven[signer.account.access_key] = signer
            _note(connection, signer)
        return count

    def lets_pull(self, connection: CommandProtocol, frame: bytes, topic: str, group: str) -> bool:
        """Tells whether a pull is let pass.

        Args:
            connection: who pulls; knows the account of a pull that passes.
            frame: a quick one.
            topic, group: those of the pull.
        """
        if self._needs_no_account(connection):
            return True
        # As a rule who pulls on a connection is who pulled on it before.
        signer = self._proven.get(connection.account)
        if signer is None or not is_signed(frame, signer.access_key, signer.keyed):
            signer = self._find_other(connection, frame, signer)
            if signer is None:
                return False
        elif signer.is_other_road(connection.peer_host):
            return False
        if not signer.may_pull(topic, group):
            return False
        _note(connection, signer)
        return True

    def _find_other(
        self, connection: CommandProtocol, frame: bytes, tried: _Signer | None
    ) -> _Signer | None:
        """The account that signed a frame, but for one that did not; None as in `_find_signer`."""
        found = read_signature(frame)
        if found is None:
            return None
        access_key, signature, content, body_at = found
        signer = self._find_signer(connection, access_key)
        if signer is None or signer is tried:
            return None
        body = frame[body_at:]
        if not is_signature_right(signature, content, body, signer.keyed):
            return None
        self._proven[signer.account.access_key] = signer
        return signer

    def _needs_no_account(self, connection: CommandProtocol) -> bool:
        rules = self._table.rules
        if rules is not self._rules:
            self._rules = rules
            self._signers, self._proven, self._white_hosts = {}, {}, {}
        host = connection.peer_host
        white = self._white_hosts.get(host)
        if white is None:
            matches = any(pattern.matches(host) for pattern in rules.white_addresses)
            white = _remembered(self._white_hosts, host, matches)
        if white:
            connection.account = connection.sight = None
            connection.is_trusted = True
        return white

    def _find_signer(self, connection: CommandProtocol, access_key: bytes) -> _Signer | None:
        """The account of an access key; None where the other road says what there is to say."""
        signer = self._signers.get(access_key)
        if signer is None:
            assert self._rules is not None
            account = self._rules.accounts.get(access_key.decode())
            if account is None:
                return None
            # No more than there are accounts.
            signer = self._signers[access_key] = _Signer(account, self._reply_topic)
            signer.is_counted = self._quotas is not None and self._quotas.has_quota(account.quota)
        return None if signer.is_other_road(connection.peer_host) else signer


def _note(connection: CommandProtocol, signer: _Signer) -> None:
    connection.account, connection.sight = signer.account.access_key, signer.sight
    connection.is_trusted = True


def _remembered(decisions: dict[Any, bool], key: object, decision: bool) -> bool:
    if len(decisions) >= _REMEMBERED_MAX:
        decisions.clear()
    decisions[key] = decision
    return decision
