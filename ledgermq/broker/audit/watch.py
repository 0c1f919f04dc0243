"""Watch: stands around the processors that change something, and tells the audit log.

Whatever goes wrong here is no reason to refuse a request, or to answer another one: it is logged.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.audit.audit_log import AuditLog
from ledgermq.broker.access.rules import AccessRules
from ledgermq.broker.audit.changes import CHANGES, Find, Tables, Target, differences
from ledgermq.broker.dispatch import Answer, Processor
from ledgermq.broker.leadership import Leadership
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.signature import ACCESS_KEY
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.errors import BrokerError

_DONE: Final = "done"
_FAILED: Final = "failed"

_log = Logger()


class Watch:
    """Makes the lines of one broker."""

    def __init__(self, log: AuditLog, tables: Tables) -> None:
        """
        Args:
            log: takes the lines.
            tables: what changes.
        """
        self._audit = log
        self._tables = tables
        # As it was told last.
        self._leader: dict[str, Any] | None = None

    def around(self, processors: Mapping[int, Processor]) -> dict[int, Processor]:
        """Returns the table of processors; those that change something are watched."""
        return {
            code: processor if code not in CHANGES else self._watched(processor, CHANGES[code])
            for code, processor in processors.items()
        }

    def _watched(self, processor: Processor, find: Find) -> Processor:
        def watched(connection: CommandProtocol, command: RemotingCommand) -> Answer:
            tell = self._begin(connection, command, find)
            try:
                answer = processor(connection, command)
            except Exception as error:
                tell(error)
                raise
            if isinstance(answer, Deferred):
                answer.addBoth(_passing(tell))
            else:
                tell(answer)
            return answer

        return watched

    def _begin(
        self, connection: CommandProtocol, command: RemotingCommand, find: Find
    ) -> Callable[[object], None]:
        """Looks at what is there; returns what tells the rest when the request is answered."""
        try:
            target = find(command, self._tables)
        except Exception:
            # Whoever answers it says what is wrong with it.
            target = Target("not told", lambda: None)
        before, account = _seen(target), connection.account
        members = {
            "account": account,
            "address": connection.peer,
            **_request(command),
            "object": target.name,
        }

        def tell(answer: object) -> None:
            outcome, reason = _outcome(answer)
            line = {**members, "outcome": outcome, "reason": reason}
            line.update(before=before, after=_seen(target))
            if account is None or self._is_admin(account):
                self._audit.changed(**line)
            else:
                # It may do so thousands of times a second with what is its own.
                kind = (str(command.code), target.name, outcome)
                self._audit.changed_by(account, kind, **line)

        return _harmless(tell)

    def _is_admin(self, account: str) -> bool:
        rules = self._tables.rules
        found = None if rules is None else rules.rules.accounts.get(account)
        return found is not None and found.is_admin

    def leads(self, leadership: Leadership) -> None:
        """Notes who leads, when that has changed."""
        leader = {"leader": leadership.leader_id, "role": leadership.role}
        if leader != self._leader:
            before, self._leader = self._leader, leader
            self._audit.changed(object="leadership", outcome=_DONE, before=before, after=leader)

    def made(self, kind: str, name: str, maker: Any) -> Callable[[BrokerError | None], None]:
        """Returns what notes a topic or a group that was made by its use, when it is committed or
        refused.

        Args:
            kind: topic or group.
            maker: the connection that has used the name; by then others may sign on it.
        """
        account, address = maker.account, maker.peer

        def tell(error: BrokerError | None) -> None:
            table = self._tables.state.topics if kind == "topic" else self._tables.state.groups
            found = table.find(name)
            self._audit.changed(
                account=account,
                address=address,
                object=f"{kind} {name}",
                outcome=_FAILED if error else _DONE,
                reason=str(error) if error else "made by its use",
                before=None,
                after=None if found is None else found.to_json(),
            )

        return tell

    def rules_edited(self, before: AccessRules, after: AccessRules, reason: str | None) -> None:
        """Notes that somebody has edited the files of access control; `reason`: why in vain."""
        shown_before, shown_after = differences(before, after)
        self._audit.changed(
            object="files of access control",
            outcome=_FAILED if reason else _DONE,
            reason=reason,
            before=shown_before,
            after=shown_after,
        )

    def handed_over(self, address: str, target_id: str, reason: str | None) -> None:
        """Notes that a tool has asked at the ledger port for another leader."""
        self._audit.changed(
            address=address,
            object=f"leadership to {target_id}",
            outcome=_FAILED if reason else _DONE,
            reason=reason,
        )

    def refused(self, host: str, command: RemotingCommand, error: Exception) -> None:
        """Notes a request that its account had no right to; its name is what it claims."""
        claims = (command.ext_fields or {}).get(ACCESS_KEY)
        request = _request(command)
        _harmless(
            lambda reason: self._audit.refused(
                host,
                (str(claims), str(request["code"]), str(reason)),
                claims=claims,
                address=host,
                **request,
                outcome="refused",
                reason=str(reason),
            )
        )(error)


def _harmless(tell: Callable[[object], None]) -> Callable[[object], None]:
    def told(value: object) -> None:
        try:
            tell(value)
        except Exception:
            _log.failure("a line of the audit log was not made")

    return told


def _passing(tell: Callable[[object], None]) -> Callable[[Any], Any]:
    def passing(result: Any) -> Any:
        tell(result.value if isinstance(result, Failure) else result)
        return result

    return passing


def _seen(target: Target) -> Any:
    try:
        return target.look()
    except Exception:
        _log.failure("{name} cannot be shown in the audit log", name=target.name)
        return None


def _request(command: RemotingCommand) -> dict[str, Any]:
    try:
        name = RequestCode(command.code).name
    except ValueError:
        name = "unknown"
    return {"code": command.code, "name": name, "request": command.opaque}


def _outcome(answer: object) -> tuple[str, str | None]:
    if isinstance(answer, RemotingCommand):
        is_done = answer.code == ResponseCode.SUCCESS
        return (_DONE if is_done else _FAILED), answer.remark
    if isinstance(answer, BaseException):
        return _FAILED, str(answer)
    # Answered by others, or one-way.
    return _DONE, None
