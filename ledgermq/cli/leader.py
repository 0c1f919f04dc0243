"""Admin commands about the leader of a broker group: transferLeader.

The way is DLedger's own, so that it works with groups of Apache's brokers, too: the broker's
configuration tells the group and its ledger addresses, METADATA who leads, a heart beat of
no term tells the term (the answer is 403 with it, and nothing changes), LEADERSHIP_TRANSFER does
it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final

from ledgermq.cli.remote import AdminError, Remote
from ledgermq.cli.subcommand import Subcommand
from ledgermq.cli.table import print_table
from ledgermq.dledger.addresses import ConfigValueError, parse_peers
from ledgermq.dledger.messages import DLedgerCode, JsonCode
from ledgermq.protocol.codes import RequestCode

# A leader that is handing over, or is being elected, is asked again for so long.
_PATIENCE_S: Final = 10.0
_PAUSE_S: Final = 0.2
# Where the remark of an answer's head is put among the fields of its body.
_REMARK: Final = "remark"
_COLUMNS: Final = ("group", "from", "to", "term")


class LedgerGroup:
    """The members of a group, asked as DLedger's tools ask them."""

    def __init__(self, remote: Remote, group: str, peers: Mapping[str, str]) -> None:
        """Asks nothing yet.

        Args:
            remote: makes the connections.
            group: dLegerGroup.
            peers: member id -> "host:port" of its ledger port.
        """
        self._remote = remote
        self.group = group
        self.peers = peers

    def find_leader(self) -> tuple[str, int]:
        """Returns the leader and its term.

        Only what a member says of itself counts: another one may hear late of a new leader, and
        name the former one, which knows the new term already.

        Raises:
            AdminError: no member leads.
        """
        reasons: list[str] = []
        leaders: list[tuple[int, str]] = []
        for member_id in self.peers:
            try:
                if self._leads(member_id):
                    term = self._term_of(member_id)
                    # Still: the term is that of its leadership.
                    if self._leads(member_id):
                        leaders.append((term, member_id))
                        continue
                reasons.append(f"{member_id} does not lead")
            except AdminError as error:
                reasons.append(str(error))
        if not leaders:
            raise AdminError(f"group {self.group!r} has no leader: {'; '.join(reasons)}")
        term, leader_id = max(leaders)
        return leader_id, term

    def _leads(self, member_id: str) -> bool:
        return self._ask(member_id, JsonCode.METADATA).get("leaderId") == member_id

    def hand_over(self, target_id: str) -> tuple[str, int]:
        """Makes a member the leader; returns who led before, and the new term.

        Raises:
            AdminError: no such member, no leader, or the leader refuses; the text says why.
        """
        if target_id not in self.peers:
            raise AdminError(f"no member {target_id!r}; the group has {', '.join(self.peers)}")
        leader_id, term = self.find_leader()
        if leader_id == target_id:
            return leader_id, term
        fields = {"transferId": leader_id, "transfereeId": target_id, "term": term}
        answer = self._transfer(leader_id, target_id, fields)
        if answer is None:
            return leader_id, self._term_of(target_id)
        code = answer.get("code", int(DLedgerCode.SUCCESS))
        if code != DLedgerCode.SUCCESS and _number(answer, "term") <= term:
            reason = answer.get(_REMARK) or "no remark"
            raise AdminError(f"{leader_id} refuses: {_code_name(code)}: {reason}")
        return leader_id, self._wait_for(target_id, term)

    def _transfer(
        self, leader_id: str, target_id: str, fields: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Asks the leader to hand over.

        Returns:
            Its answer; one without fields when it is lost, as Java's may be when it steps down: who
            leads is the answer then. None when the other member leads before it comes: a leader
            answers when its disk knows the new term, which a slow one may for seconds not do.
        """
        answers: SimpleQueue[Mapping[str, Any] | Exception] = SimpleQueue()

        def ask() -> None:
            try:
                answers.put(self._ask(leader_id, JsonCode.LEADERSHIP_TRANSFER, **fields))
            except AdminError:
                answers.put({})
            except Exception as error:
                answers.put(error)

        # From here on the connection to the leader is the thread's, until it has the answer.
        Thread(target=ask, daemon=True).start()
        while True:
            try:
                answer = answers.get(timeout=_PAUSE_S)
            except Empty:
                if self._is_led_by(target_id):
                    return None
                continue
            if isinstance(answer, Exception):
                raise answer
            return answer

    def _is_led_by(self, member_id: str) -> bool:
        try:
            return self._leads(member_id)
        except AdminError:
            return False

    def _wait_for(self, target_id: str, past_term: int) -> int:
        end_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                leader_id, term = self.find_leader()
                reason = f"{leader_id} leads term {term}"
            except AdminError as error:
                leader_id, term, reason = None, -1, str(error)
            if leader_id == target_id:
                return term
            if term > past_term or time.monotonic() > end_s:
                raise AdminError(f"{target_id} did not take over: {reason}")
            time.sleep(_PAUSE_S)

    def _term_of(self, leader_id: str) -> int:
        term = _number(self._ask(leader_id, JsonCode.METADATA), "term")
        if term >= 0:
            return term
        other_id = next((member_id for member_id in self.peers if member_id != leader_id), None)
        if other_id is None:
            raise AdminError(f"group {self.group!r} has one member only")
        answer = self._ask(leader_id, JsonCode.HEART_BEAT, leaderId=other_id, term=-1)
        term = _number(answer, "term")
        if answer.get("code") != DLedgerCode.EXPIRED_TERM or term < 0:
            raise AdminError(f"{leader_id} does not tell its term: {answer}")
        return term

    def _ask(self, member_id: str, code: int, **fields: Any) -> dict[str, Any]:
        body = {"code": 200, "group": self.group, "remoteId": member_id, "term": -1} | fields
        address = self.peers[member_id]
        answer = self._remote.ask_ledger(address, code, json.dumps(body).encode())
        try:
            decoded = json.loads(answer.body)
        except ValueError as error:
            raise AdminError(f"{address} is no ledger port: {answer.remark}") from error
        if not isinstance(decoded, dict):
            raise AdminError(f"{address} is no ledger port: {decoded!r}")
        return decoded | {_REMARK: answer.remark}


def _number(answer: Mapping[str, Any], name: str) -> int:
    """Returns a number of an answer; -1 when there is none."""
    number = answer.get(name)
    return number if isinstance(number, int) else -1


def _code_name(code: object) -> str:
    if isinstance(code, int) and code in set(DLedgerCode):
        return f"{code} {DLedgerCode(code).name}"
    return str(code)


def _group_of(remote: Remote, broker_address: str) -> LedgerGroup:
    """Reads group and peers from the configuration of a broker."""
    text = remote.call(broker_address, RequestCode.GET_BROKER_CONFIG).body.decode()
    settings = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    try:
        peers = parse_peers(settings.get("dLegerPeers", ""))
    except ConfigValueError as error:
        raise AdminError(f"{broker_address} has no ledger group: {error}") from error
    addresses = {peer_id: str(address) for peer_id, address in peers.items()}
    return LedgerGroup(remote, settings.get("dLegerGroup", ""), addresses)


def _add_transfer(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("-b", "--brokerName", "--broker-name", help="name of the broker group")
    where.add_argument(
        "-a", "--brokerAddr", "--broker-addr", help="host:port of any broker of the group"
    )
    parser.add_argument("--to", required=True, metavar="ID", help="member that is to lead, as n1")


def _transfer(remote: Remote, options: argparse.Namespace) -> None:
    address = options.brokerAddr
    if address is None:
        table = remote.clusters().broker_addr_table
        if options.brokerName not in table:
            known = ", ".join(sorted(table)) or "none"
            raise AdminError(f"no broker {options.brokerName!r}; known: {known}")
        address = min(table[options.brokerName].broker_addrs.items())[1]
    group = _group_of(remote, address)
    former_id, term = group.hand_over(options.to)
    print_table(_COLUMNS, [(group.group, former_id, options.to, term)], options.json)


SUBCOMMANDS: Final = {
    "transferLeader": Subcommand("hands the leadership on", _add_transfer, _transfer),
}
