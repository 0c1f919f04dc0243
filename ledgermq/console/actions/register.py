"""Register: the changes of a console: previews that wait for a word, runs, and what became of them.

A preview is confirmed by its token, by the session that asked for it. The token begins one run,
however often it comes. What an item showed is looked at again before it is done, so that of two
people who change one thing, the second is told. A run ends with its session, before its next item.
"""

import asyncio
import hmac
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from twisted.logger import Logger

from ledgermq.client.errors import ClientError, UnreachableError
from ledgermq.console.absent import missing
from ledgermq.console.actions.plan import ItemState, Plan, SkippedError, Step
from ledgermq.console.audit import Audit, Outcome
from ledgermq.console.call import Call
from ledgermq.console.shapes import actions as shapes
from ledgermq.console.shapes.brokers import AuditEntry
from ledgermq.console.tally import FAILURES, reason_of
from ledgermq.http.replies import RequestError

_KEPT_MS: Final = 600_000
_PREVIEWS_MAX: Final = 200
# Of one account: its eldest gives way.
_PREVIEWS_OF_ACCOUNT_MAX: Final = 20
_ENDED_MAX: Final = 100
_RUNNING_MAX: Final = 20
_RUNNING_OF_ACCOUNT_MAX: Final = 5
# Memory of what does not run, of all and of one account: what has ended gives way, then the eldest.
_HELD_BYTES_MAX: Final = 64 << 20
_HELD_BYTES_OF_ACCOUNT_MAX: Final = 16 << 20
# One that is larger than an account's part is let in alone: an import of ten thousand topics. Some
# are kept besides the others, of different accounts, so that none of these gives way to it.
_LARGE_BYTES_MAX: Final = 128 << 20
_LARGE_MAX: Final = 2
# Memory of what runs, of all and of one account, but for one that runs alone.
_RUNNING_BYTES_MAX: Final = 256 << 20
_RUNNING_BYTES_OF_ACCOUNT_MAX: Final = 128 << 20
# Of all that is kept besides what runs.
_KEPT_STEPS_MAX: Final = 300_000
# A request that could not even be sent was not carried out.
_NOT_SENT: Final = "no connection"
_REASONS_SHOWN: Final = 3

_log = Logger()
State = Literal["preview", "running", "done", "stopped"]


@dataclass(slots=True, kw_only=True)
class _Action:
    id: str
    kind: str
    cluster: str
    session: str
    account: str
    # It was an admin's when it was wanted, or nobody is asked for an account.
    is_admin: bool
    peer: str
    token: str
    plan: Plan
    # Of memory.
    size: int
    expires_ms: int
    state: State = "preview"
    begun_ms: int | None = None
    ended_ms: int | None = None
    task: "asyncio.Task[None] | None" = None


class Register:
    """All changes of a console."""

    def __init__(self, audit: Audit, now_ms: Callable[[], int]) -> None:
        self._audit, self._now_ms = audit, now_ms
        # By id, the oldest first.
        self._actions: dict[str, _Action] = {}

    def preview(self, call: Call, kind: str, plan: Plan) -> shapes.Action:
        """Notes what somebody wants.

        Raises:
            RequestError: there is nothing to do, or too much.
        """
        if not plan.steps:
            raise RequestError(409, f"nothing to do: {plan.summary}", code="nothing_to_do")
        size = plan.size()
        if size > _LARGE_BYTES_MAX:
            message = f"this takes {size} bytes of memory, {_LARGE_BYTES_MAX} are allowed"
            raise RequestError(400, message, field="items", limit=_LARGE_BYTES_MAX)
        self._forget(call.account)
        action = _Action(
            id=secrets.token_urlsafe(12),
            kind=kind,
            cluster=call.cluster.id,
            session=call.session,
            account=call.account,
            is_admin=call.sees_all,
            peer=call.peer,
            token=secrets.token_urlsafe(24),
            plan=plan,
            size=size,
            expires_ms=self._now_ms() + _KEPT_MS,
        )
        self._make_room(action)
        self._actions[action.id] = action
        return self._shape(call, action)

    def confirm(self, call: Call, token: str) -> shapes.Action:
        """Begins a run, once.

        Raises:
            RequestError: 404 no such preview, 403 another session's or another token, 429 too many.
        """
        action = self._find(call)
        mine = action.session == call.session and action.account == call.account
        if not mine or not hmac.compare_digest(action.token.encode(), token.encode()):
            raise RequestError(403, "the token is not that of this preview", field="token")
        if action.state == "preview":
            self._check_room_to_run(action)
            action.state, action.begun_ms = "running", self._now_ms()
            for step in action.plan.steps:
                action.plan.told(step, "waiting")
            self._note(action, "done", f"begun: {action.plan.summary}")
            action.task = asyncio.get_running_loop().create_task(self._run(call, action))
            action.task.add_done_callback(lambda _: self._stop_unbegun(call, action))
        return self._shape(call, action)

    def _check_room_to_run(self, action: _Action) -> None:
        running = [one for one in self._actions.values() if one.state == "running"]
        own = [one for one in running if action.account and one.account == action.account]
        for found, limit, bytes_max in (
            (own, _RUNNING_OF_ACCOUNT_MAX, _RUNNING_BYTES_OF_ACCOUNT_MAX),
            (running, _RUNNING_MAX, _RUNNING_BYTES_MAX),
        ):
            if len(found) >= limit:
                message = f"{len(found)} changes are being carried out; wait for one"
                raise RequestError(429, message, limit=limit)
            if found and sum(one.size for one in found) + action.size > bytes_max:
                message = "changes that are large are being carried out; wait for one"
                raise RequestError(429, message, limit=bytes_max)

    def stop(self, call: Call) -> shapes.Action:
        """Ends a run before its next item, or forgets a preview."""
        action = self._find(call)
        if action.session != call.session:
            raise RequestError(403, "only who began it stops it")
        if action.state == "preview":
            action.state, action.ended_ms = "stopped", self._now_ms()
            self._let_go(action)
        self._end(action)
        return self._shape(call, action)

    def stop_all(self, session: str | None = None) -> None:
        """Ends the runs of a session, or of all; nobody can confirm its previews any more."""
        for action in list(self._actions.values()):
            if session in (None, action.session):
                if action.state == "preview":
                    del self._actions[action.id]
                self._end(action)

    def forget_old(self) -> None:
        """Drops previews whose time is over."""
        now_ms = self._now_ms()
        for action in list(self._actions.values()):
            if action.state == "preview" and action.expires_ms < now_ms:
                del self._actions[action.id]

    def look(self, call: Call) -> shapes.Action:
        """Returns how far a change is."""
        return self._shape(call, self._find(call))

    def listed(self, call: Call) -> shapes.Actions:
        """Returns what was confirmed lately."""
        self.forget_old()
        rows = [
            shapes.ActionRow(
                id=action.id,
                kind=action.kind,
                summary=action.plan.summary,
                state=action.state,
                account=action.account,
                begun_ms=action.begun_ms,
                ended_ms=action.ended_ms,
                counts=_counts(action),
            )
            for action in reversed(self._actions.values())
            if action.cluster == call.cluster.id
            and action.begun_ms is not None
            and call.sees_account(action.account)
        ]
        return shapes.Actions(rows=rows[:_ENDED_MAX])

    def _find(self, call: Call) -> _Action:
        self.forget_old()
        action = self._actions.get(call.path["action"])
        if (
            action is None
            or action.cluster != call.cluster.id
            or not call.sees_account(action.account)
        ):
            raise missing("action", call.path["action"])
        return action

    def _forget(self, account: str) -> None:
        """Drops previews whose time is over, those that an account has too many of to get one more,
        and what ended long ago.
        """
        self.forget_old()
        if account:
            mine = [
                one
                for one in self._actions.values()
                if one.state == "preview" and one.account == account
            ]
            for action in mine[: max(len(mine) - _PREVIEWS_OF_ACCOUNT_MAX + 1, 0)]:
                del self._actions[action.id]
        for states, count_max in ((("preview",), _PREVIEWS_MAX), (("done", "stopped"), _ENDED_MAX)):
            found = [one for one in self._actions.values() if one.state in states]
            for action in found[: max(len(found) - count_max + 1, 0)]:
                del self._actions[action.id]
        idle = [one for one in self._actions.values() if one.state != "running"]
        count = sum(len(one.plan.steps) for one in idle)
        for action in idle:
            if count <= _KEPT_STEPS_MAX:
                break
            count -= len(action.plan.steps)
            del self._actions[action.id]

    def _make_room(self, new: _Action) -> None:
        """Drops what does not run for one more: of its own account, then of who holds the most."""
        idle = [one for one in self._actions.values() if one.state != "running" and one is not new]
        # What has ended first, the eldest first.
        idle.sort(key=lambda one: one.state == "preview")
        if new.account:
            own = [one for one in idle if one.account == new.account]
            self._drop_until(own, _HELD_BYTES_OF_ACCOUNT_MAX - new.size)
        is_large = new.size > _HELD_BYTES_OF_ACCOUNT_MAX
        alike = [
            one
            for one in idle
            if one.id in self._actions and (one.size > _HELD_BYTES_OF_ACCOUNT_MAX) == is_large
        ]
        if is_large:
            for action in alike[: max(len(alike) - _LARGE_MAX + 1, 0)]:
                del self._actions[action.id]
            return
        held = Counter({new.account: new.size})
        for action in alike:
            held[action.account] += action.size
        while held.total() > _HELD_BYTES_MAX:
            most = max(held[one.account] for one in alike)
            action = next(one for one in alike if held[one.account] == most)
            alike.remove(action)
            held[action.account] -= action.size
            del self._actions[action.id]

    def _drop_until(self, found: list[_Action], bytes_max: int) -> None:
        held = sum(one.size for one in found)
        for action in found:
            if held <= bytes_max:
                break
            held -= action.size
            del self._actions[action.id]

    def _let_go(self, action: _Action) -> None:
        """Nothing of it will be done any more; what is kept to be looked at counts."""
        action.plan.let_go()
        action.size = action.plan.size()
        self._make_room(action)

    def _end(self, action: _Action) -> None:
        if action.task is not None and action.state == "running":
            action.task.cancel()

    async def _run(self, call: Call, action: _Action) -> None:
        try:
            if action.plan.run_all is not None:
                await self._run_all(action)
            else:
                for step in action.plan.steps:
                    await _run_step(action.plan, step)
            action.state = "done"
        except asyncio.CancelledError:
            action.state = "stopped"
        finally:
            self._ended(call, action)

    def _stop_unbegun(self, call: Call, action: _Action) -> None:
        """Ends a run that was stopped in the turn in which it was confirmed: it never began."""
        if action.state == "running":
            action.state = "stopped"
            self._ended(call, action)

    def _ended(self, call: Call, action: _Action) -> None:
        action.ended_ms = self._now_ms()
        self._let_go(action)
        call.cluster.kept.forget()
        self._note_end(action)

    async def _run_all(self, action: _Action) -> None:
        assert action.plan.run_all is not None
        by_target = {step.target: step for step in action.plan.steps}

        def tell(target: str, state: ItemState, reason: str) -> None:
            step = by_target.get(target)
            if step is not None:
                action.plan.told(step, state, reason)

        failure = "it ended before this item"
        try:
            await action.plan.run_all(tell)
        except FAILURES as error:
            failure = reason_of(error)
        except Exception:
            _log.failure("a change broke off")
            failure = "a fault of this program; its log says more"
        for step in action.plan.steps:
            if step.state == "waiting":
                action.plan.told(step, "failed", failure)

    def _note_end(self, action: _Action) -> None:
        counts = _counts(action)
        bad = [step for step in action.plan.steps if step.state in ("failed", "unknown")]
        told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        reasons = "; ".join(f"{step.target}: {step.reason}" for step in bad[:_REASONS_SHOWN])
        detail = f"{action.state}: {told}" + (f"; {reasons}" if reasons else "")
        self._note(action, "failed" if bad else "done", detail)

    def _note(self, action: _Action, outcome: Outcome, detail: str) -> None:
        self._audit.add(
            AuditEntry(
                at_ms=self._now_ms(),
                account=action.account,
                address=action.peer,
                cluster=action.cluster,
                action=action.kind,
                object=action.plan.object,
                outcome=outcome,
                detail=detail,
                action_id=action.id,
            ),
            is_admin=action.is_admin,
        )

    def _shape(self, call: Call, action: _Action) -> shapes.Action:
        query = call.asks(shapes.ItemsQuery)
        steps = action.plan.steps
        if query.state:
            steps = [step for step in steps if step.state == query.state]
        is_mine = action.session == call.session and action.state == "preview"
        return shapes.Action(
            id=action.id,
            kind=action.kind,
            summary=action.plan.summary,
            state=action.state,
            warnings=action.plan.warnings,
            token=action.token if is_mine else "",
            expires_ms=action.expires_ms,
            account=action.account,
            begun_ms=action.begun_ms,
            ended_ms=action.ended_ms,
            counts=_counts(action),
            items=[
                shapes.Item(
                    target=step.target,
                    before=step.before,
                    after=step.after,
                    state=step.state,
                    reason=step.reason,
                )
                for step in steps[query.offset : query.offset + query.limit]
            ],
            total=len(steps),
        )


def _counts(action: _Action) -> dict[str, int]:
    return {state: count for state, count in action.plan.counts.items() if count}


async def _run_step(plan: Plan, step: Step) -> None:
    """Does one thing; whatever goes wrong is its own outcome."""
    assert step.run is not None
    is_sent = False
    try:
        if step.look is not None:
            now = await step.look()
            if now != step.before:
                reason = f"somebody changed it since the preview; now: {now or 'nothing'}"
                plan.told(step, "skipped", reason)
                return
        is_sent = True
        plan.told(step, "done", await step.run())
    except SkippedError as error:
        plan.told(step, "skipped", str(error))
    except asyncio.CancelledError:
        if is_sent:
            plan.told(step, "unknown", "it was stopped before an answer came")
        raise
    except RequestError as error:
        plan.told(step, "failed", error.message)
    except FAILURES as error:
        plan.told(
            step, "unknown" if is_sent and _may_be_done(error) else "failed", reason_of(error)
        )
    except Exception:
        _log.failure("an item of a change broke off")
        plan.told(step, "failed", "a fault of this program; its log says more")


def _may_be_done(error: Exception) -> bool:
    """Tells whether a request may have been carried out all the same."""
    if not isinstance(error, ClientError):
        return True
    return isinstance(error, UnreachableError) and not error.what.startswith(_NOT_SENT)
