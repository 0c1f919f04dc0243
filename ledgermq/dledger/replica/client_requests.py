"""What DLedger's own tools ask a member: METADATA, APPEND, GET, LEADERSHIP_TRANSFER, in JSON.

APPEND is answered when its entry is committed, 501 when the term changes before, 502 when it takes
too long (the entry may still be committed later). GET gives committed entries only, which upstream
does not promise. Upstream answers both on the leader only; so does this. A transfer is
answered when another leader is known: 200 when it is the one that was asked for.

Source: DLedgerServer.handleAppend, handleGet, handleMetadata, handleLeadershipTransfer.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec import UNSET, UnsetType

from ledgermq.dledger.entry import EntrySlice
from ledgermq.dledger.errors import (
    DropReason,
    EntryTooLargeError,
    NotLeaderError,
    ProposalDroppedError,
    TransferRefusal,
    TransferRefusedError,
)
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import DLedgerCode, JsonCode
from ledgermq.dledger.replica import wire_json
from ledgermq.dledger.replica.config import ReplicaConfig
from ledgermq.dledger.replica.json_bodies import (
    AppendAnswerBody,
    AppendBody,
    EntryBody,
    GetAnswerBody,
    GetBody,
    MetadataAnswerBody,
    RequestBody,
    RpcBody,
    TransferBody,
)
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.transfer import Transfer
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.transport import CommandProtocol


class ServingLedger(Protocol):
    """What is needed of the member."""

    @property
    def role(self) -> Role: ...
    @property
    def term(self) -> int: ...
    @property
    def leader_id(self) -> str | None: ...
    @property
    def commit_index(self) -> int: ...
    @property
    def store(self) -> LedgerStore: ...
    @property
    def now_ms(self) -> float: ...
    def propose(self, bodies: Sequence[bytes]) -> list[EntrySlice]: ...
    def transfer(self, target_id: str) -> Transfer: ...


@dataclass(slots=True, frozen=True, kw_only=True)
class _WaitingAppend:
    """An APPEND that was proposed and is not committed yet."""

    index: int
    term: int
    position: int
    deadline_ms: float
    connection: CommandProtocol
    command: RemotingCommand
    group: str | None | UnsetType


@dataclass(slots=True, frozen=True, kw_only=True)
class _WaitingTransfer:
    """A LEADERSHIP_TRANSFER that was begun; no other one is begun before it is over."""

    transfer: Transfer
    deadline_ms: float
    connection: CommandProtocol
    command: RemotingCommand


# Told of a hand-over that was asked for: the address that asked, to whom, and why it failed; None
# when that member leads.
OnHandOver = Callable[[str, str, str | None], None]

# What a Java leader answers for the same reason.
_REFUSALS: Final = {
    TransferRefusal.UNKNOWN_MEMBER: DLedgerCode.UNKNOWN_MEMBER,
    TransferRefusal.UNDER_WAY: DLedgerCode.LEADER_TRANSFERRING,
    TransferRefusal.SILENT: DLedgerCode.FALL_BEHIND_TOO_MUCH,
    TransferRefusal.RECOVERING: DLedgerCode.FALL_BEHIND_TOO_MUCH,
    TransferRefusal.BEHIND: DLedgerCode.FALL_BEHIND_TOO_MUCH,
}


class ClientRequests:
    """Answers the requests of DLedger's tools, which are in JSON."""

    CODES: Final = frozenset(
        {JsonCode.METADATA, JsonCode.APPEND, JsonCode.GET, JsonCode.LEADERSHIP_TRANSFER}
    )

    def __init__(self, config: ReplicaConfig, ledger: ServingLedger) -> None:
        """Keeps both; nothing waits yet."""
        self._config = config
        self._ledger = ledger
        # In the order of their indexes; as many as the core lets wait for a majority, at most.
        self._waiting: deque[_WaitingAppend] = deque()
        self._transfer: _WaitingTransfer | None = None
        # None: nobody wants to know.
        self.on_hand_over: OnHandOver | None = None

    def receive(
        self, connection: CommandProtocol, code: int, command: RemotingCommand, request: RequestBody
    ) -> None:
        """Answers a request whose ids were checked, now or when its entry is committed."""
        match request:
            case AppendBody():
                self._append(connection, command, request)
            case GetBody():
                self._get(connection, command, request)
            case TransferBody():
                self._hand_over(connection, command, request)
            case _:
                answer = MetadataAnswerBody(
                    group=self._config.group,
                    leader_id=self._ledger.leader_id,
                    # Java's members do not tell it.
                    term=self._ledger.term,
                    peers={
                        peer_id: str(address)
                        for peer_id, address in self._config.addresses().items()
                    },
                )
                _send(connection, command, answer)

    def committed(self, end_index: int) -> None:
        """Answers the appends below `end_index`."""
        waiting = self._waiting
        while waiting and waiting[0].index < end_index:
            self._finish(waiting.popleft(), DLedgerCode.SUCCESS)

    def term_changed(self) -> None:
        """Answers all appends that wait: nobody here can tell what becomes of them."""
        while self._waiting:
            self._finish(self._waiting.popleft(), DLedgerCode.TERM_CHANGED)

    def expire(self, now_ms: float) -> None:
        """Answers what has waited too long."""
        if self._transfer is not None and self._transfer.deadline_ms <= now_ms:
            self._finish_transfer(DLedgerCode.TIMEOUT)
        waiting = self._waiting
        while waiting and waiting[0].deadline_ms <= now_ms:
            self._finish(waiting.popleft(), DLedgerCode.WAIT_QUORUM_ACK_TIMEOUT)

    def deadline_ms(self) -> float:
        """Tells when `expire` is due; infinity when nothing waits."""
        deadline_ms = self._waiting[0].deadline_ms if self._waiting else float("inf")
        if self._transfer is not None:
            deadline_ms = min(deadline_ms, self._transfer.deadline_ms)
        return deadline_ms

    def look_at_transfer(self) -> None:
        """Answers a transfer that has failed, or after which a leader is known."""
        waiting, ledger = self._transfer, self._ledger
        if waiting is None:
            return
        transfer = waiting.transfer
        if transfer.code is not None:
            self._finish_transfer(transfer.code)
        elif ledger.term > transfer.term and ledger.leader_id is not None:
            is_target = ledger.leader_id == transfer.target_id
            done, failed = DLedgerCode.SUCCESS, DLedgerCode.TAKE_LEADERSHIP_FAILED
            self._finish_transfer(done if is_target else failed)

    def _hand_over(
        self, connection: CommandProtocol, command: RemotingCommand, request: TransferBody
    ) -> None:
        ledger = self._ledger
        remark = None
        try:
            if ledger.role is Role.LEADER and request.term != ledger.term:
                code = DLedgerCode.INCONSISTENT_TERM
            else:
                transfer = ledger.transfer(request.transferee_id or "")
                self._transfer = _WaitingTransfer(
                    transfer=transfer,
                    deadline_ms=transfer.deadline_ms + self._config.request_timeout_ms,
                    connection=connection,
                    command=command,
                )
                return
        except NotLeaderError as error:
            code, remark = DLedgerCode.NOT_LEADER, str(error)
        except TransferRefusedError as error:
            code, remark = _REFUSALS[error.reason], str(error)
        answer = RpcBody(
            code=code,
            group=request.group,
            leader_id=ledger.leader_id,
            remote_id=request.remote_id,
            term=ledger.term,
        )
        _send(connection, command, answer, remark)
        self._handed_over(connection, request.transferee_id or "", code, remark)

    def _handed_over(
        self, connection: CommandProtocol, target_id: str, code: DLedgerCode, remark: str | None
    ) -> None:
        if self.on_hand_over is not None:
            reason = None if code is DLedgerCode.SUCCESS else f"{code.name}: {remark or ''}"
            self.on_hand_over(connection.peer, target_id, reason)

    def _finish_transfer(self, code: DLedgerCode) -> None:
        waiting, self._transfer = self._transfer, None
        assert waiting is not None
        ledger, target_id = self._ledger, waiting.transfer.target_id
        remark = None
        if code is not DLedgerCode.SUCCESS:
            remark = f"{target_id!r} did not take over; the leader is {ledger.leader_id!r}"
        answer = RpcBody(code=code, leader_id=ledger.leader_id, term=ledger.term)
        _send(waiting.connection, waiting.command, answer, remark)
        self._handed_over(waiting.connection, target_id, code, remark)

    def _append(
        self, connection: CommandProtocol, command: RemotingCommand, request: AppendBody
    ) -> None:
        ledger = self._ledger
        if not self._config.serves_append:
            self._refuse_append(connection, command, request, DLedgerCode.UNSUPPORTED)
            return
        if not request.body:
            self._refuse_append(connection, command, request, DLedgerCode.UNEXPECTED_ARGUMENT)
            return
        try:
            entries = ledger.propose([request.body])[0]
        except NotLeaderError:
            self._refuse_append(connection, command, request, DLedgerCode.NOT_LEADER)
        except EntryTooLargeError:
            self._refuse_append(connection, command, request, DLedgerCode.UNEXPECTED_ARGUMENT)
        except ProposalDroppedError as error:
            is_transfer = error.reason is DropReason.TRANSFERRING
            full, moving = DLedgerCode.LEADER_PENDING_FULL, DLedgerCode.LEADER_TRANSFERRING
            self._refuse_append(connection, command, request, moving if is_transfer else full)
        else:
            # The entry is in the log; nothing else of the request is needed for the answer.
            command.body = b""
            self._waiting.append(
                _WaitingAppend(
                    index=entries.first_index,
                    term=ledger.term,
                    position=entries.position,
                    deadline_ms=ledger.now_ms + self._config.append_timeout_ms,
                    connection=connection,
                    command=command,
                    group=request.group,
                )
            )

    def _refuse_append(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        request: AppendBody,
        code: DLedgerCode,
    ) -> None:
        answer = AppendAnswerBody(
            code=code,
            group=request.group,
            leader_id=self._ledger.leader_id,
            remote_id=request.remote_id,
            term=request.term,
        )
        _send(connection, command, answer)

    def _finish(self, waiting: _WaitingAppend, code: DLedgerCode) -> None:
        answer = AppendAnswerBody(
            code=code,
            group=waiting.group,
            index=waiting.index,
            leader_id=self._ledger.leader_id,
            pos=waiting.position,
            term=waiting.term,
        )
        _send(waiting.connection, waiting.command, answer)

    def _get(self, connection: CommandProtocol, command: RemotingCommand, request: GetBody) -> None:
        ledger, index = self._ledger, request.begin_index
        entries: list[EntryBody] = []
        code = DLedgerCode.SUCCESS
        if ledger.role is not Role.LEADER:
            code = DLedgerCode.NOT_LEADER
        elif index < ledger.store.first_index or index > ledger.commit_index:
            code = DLedgerCode.INDEX_OUT_OF_RANGE
        else:
            entries = wire_json.entry_bodies(ledger.store.read(index, 1).take(1, 1))
        answer = GetAnswerBody(
            code=code,
            entries=entries,
            group=request.group,
            leader_id=ledger.leader_id,
            term=request.term,
        )
        _send(connection, command, answer)


def _send(
    connection: CommandProtocol,
    command: RemotingCommand,
    answer: RpcBody,
    remark: str | None = None,
) -> None:
    answer.leader_id = answer.leader_id or UNSET
    body = wire_json.encode_struct(answer)
    connection.send(command.response(DLedgerCode.SUCCESS, remark, body=body))
