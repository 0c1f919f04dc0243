"""What the audit log of a name server tells: changes by tools, and who had no right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred, TimeoutError
from twisted.python.failure import Failure

from ledgermq.audit.audit_file import AuditFile
from ledgermq.audit.audit_log import AuditLog
from ledgermq.namesrv.accounts import NameAccount, NameAccounts
from ledgermq.namesrv.config import NamesrvConfig
from ledgermq.namesrv.guard import Caller, Peer
from ledgermq.namesrv.threads import Threads
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.signature import ACCESS_KEY

# What a line tells of a request: its fields, but for who signed it and how.
_FIELDS: Final = ("namespace", "key", "value", "topic", "clusterName", "brokerName")
# At a stop, what a disk has not taken by then is lost.
_CLOSE_S: Final = 3.0

Answer = RemotingCommand | Deferred[RemotingCommand]


class NameAudit:
    """Makes the lines."""

    def __init__(self, log: AuditLog) -> None:
        """`log` takes the lines."""
        self.log = log

    def watch(
        self,
        command: RemotingCommand,
        caller: Caller,
        answer: Callable[[], Answer],
        look: Callable[[], Any],
    ) -> Answer:
        """Answers a request that changes something, and notes what came of it.

        Args:
            command: the request.
            caller: whose it is.
            answer: makes the answer; may raise.
            look: returns what is there at the moment; raises nothing.
        """
        before = look()
        account = None if caller.account is None else caller.account.access_key
        fields = command.ext_fields or {}
        members = {
            "account": account or None,
            "address": caller.connection.peer_host,
            **_request(command),
            "object": {name: fields[name] for name in _FIELDS if name in fields} or None,
        }

        def tell(outcome: str, reason: str | None) -> None:
            self.log.changed(**members, outcome=outcome, reason=reason, before=before, after=look())

        def told(result: Any) -> Any:
            if isinstance(result, Failure):
                tell("failed", result.getErrorMessage())
            else:
                is_done = result.code == ResponseCode.SUCCESS
                tell("done" if is_done else "failed", result.remark)
            return result

        try:
            made = answer()
        except Exception as error:
            tell("failed", str(error))
            raise
        if isinstance(made, Deferred):
            return made.addBoth(told)
        told(made)
        return made

    def accounts_edited(
        self, before: NameAccounts, after: NameAccounts, reason: str | None
    ) -> None:
        """Notes that somebody has edited the file of accounts; `reason`: why in vain."""
        was, now = _differences(before, after)
        self.log.changed(
            object="file of accounts",
            outcome="failed" if reason else "done",
            reason=reason,
            before=was,
            after=now,
        )

    def refused(self, command: RemotingCommand, peer: Peer, error: Exception) -> None:
        """Notes a request that had no right to what it wanted."""
        claims = (command.ext_fields or {}).get(ACCESS_KEY)
        self.log.refused(
            peer.peer_host,
            (str(claims), str(command.code), str(error)),
            claims=claims,
            address=peer.peer_host,
            **_request(command),
            outcome="refused",
            reason=str(error),
        )


def _differences(before: NameAccounts, after: NameAccounts) -> tuple[Any, Any]:
    """What two files have that is not the same; of secrets, that they are other ones."""
    sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for name in sorted(before.accounts.keys() | after.accounts.keys()):
        known, found = before.accounts.get(name), after.accounts.get(name)
        if known == found:
            continue
        for side, account in zip(sides, (known, found), strict=True):
            side[name] = _shown(account)
        if known is not None and found is not None and known.secret_keys != found.secret_keys:
            sides[1][name]["secrets"] = f"{len(found.secret_keys)}, not the same"
    addresses = [[pattern.text for pattern in one.white_addresses] for one in (before, after)]
    if addresses[0] != addresses[1]:
        for side, texts in zip(sides, addresses, strict=True):
            side["addresses that need no account"] = texts
    return sides


def _shown(account: NameAccount | None) -> dict[str, Any] | None:
    """What an account may do, and how many secrets it has."""
    if account is None:
        return None
    return {
        "admin": account.is_admin,
        "brokerNames": list(account.broker_names),
        "certificateNames": sorted(account.certificate_names),
        "whiteRemoteAddress": account.white_remote_address.text,
        "secrets": len(account.secret_keys),
    }


def _request(command: RemotingCommand) -> dict[str, Any]:
    try:
        name = RequestCode(command.code).name
    except ValueError:
        name = "unknown"
    return {"code": command.code, "name": name, "request": command.opaque}


def audit_of(
    config: NamesrvConfig,
    threads: Threads,
    clock_ms: Callable[[], float],
    now_ms: Callable[[], int],
) -> NameAudit | None:
    """Returns the audit that a configuration asks for; None for none.

    Args:
        config: of the name server.
        threads: one of them writes.
        clock_ms: monotonic time.
        now_ms: wall clock.
    """
    if config.audit_file is None:
        return None
    file = AuditFile(Path(config.audit_file), config.audit_file_bytes, config.audit_files)
    log = AuditLog(
        file,
        threads,
        lambda function, *rest: threads.reactor.callFromThread(function, *rest),
        clock_ms=clock_ms,
        now_ms=now_ms,
        fixed={"nameServer": f"{config.bind_address}:{config.listen_port}"},
    )
    return NameAudit(log)


def closed(audit: NameAudit, reactor: Any) -> Deferred[None]:
    """Fires when what waits is written, or a slow disk has had its time; never fails."""
    done = audit.log.close().addTimeout(_CLOSE_S, reactor)
    return done.addErrback(lambda failure: failure.trap(TimeoutError) and None)
