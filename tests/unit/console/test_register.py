"""The register of changes: what it keeps is bounded, and a token begins one run."""

import asyncio
from typing import Any, cast

import pytest

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import RefusedError, UnreachableError
from ledgermq.console.actions.plan import Plan, SkippedError, Step
from ledgermq.console.actions.register import Register
from ledgermq.console.audit import Audit
from ledgermq.console.call import Call
from ledgermq.console.cluster import ClusterView
from ledgermq.console.remote import Remote
from ledgermq.console.shapes.actions import ItemsQuery
from ledgermq.console.shapes.brokers import AuditEntry
from ledgermq.http.replies import RequestError


def a_call(session: str = "s", action: str = "", account: str = "") -> Call:
    view = ClusterView("c", "c", Remote("127.0.0.1:1", ClientConfig()))
    nobody = cast(Any, None)
    return Call(
        cluster=view,
        sampler=nobody,
        terms=nobody,
        audit=nobody,
        changes=nobody,
        searches=nobody,
        reading=nobody,
        path={"action": action},
        query=ItemsQuery(),
        body=None,
        session=session,
        account=account,
        peer="127.0.0.1",
        now_ms=0,
    )


class Clock:
    """Moves when it is told."""

    ms = 1_000

    def __call__(self) -> int:
        return self.ms


def plan_of(*steps: Step) -> Plan:
    return Plan(summary="s", object="o", steps=list(steps))


def run_of(answer: object) -> Any:
    async def run() -> str:
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    return run


async def wait() -> str:
    await asyncio.Event().wait()
    return ""


def test_each_item_ends_in_its_own_way() -> None:
    answers: list[object] = [
        "fine",
        SkippedError("left alone"),
        RefusedError(1, "no"),
        UnreachableError("no answer in 5 s"),
        UnreachableError("no connection: refused"),
        KeyError("a fault"),
    ]
    steps = [Step(target=str(i), run=run_of(answer)) for i, answer in enumerate(answers)]
    steps.append(Step(target="c", before="1", run=run_of("x"), look=run_of("2")))
    audit = Audit(None)

    async def run() -> Any:
        register = Register(audit, Clock())
        begun = register.preview(a_call(), "kind", plan_of(*steps))
        call = a_call(action=begun.id)
        for _ in range(3):
            register.confirm(call, begun.token)
        while register.look(call).state == "running":
            await asyncio.sleep(0)
        return register.look(call)

    ended = asyncio.run(run())
    states = [item.state for item in ended.items]
    assert states == ["done", "skipped", "failed", "unknown", "failed", "failed", "skipped"]
    assert "somebody changed it" in ended.items[-1].reason
    outcomes = [entry.outcome for entry in audit.newest_first()]
    assert outcomes == ["failed", "done"]


def test_what_is_stopped_as_it_is_confirmed_has_ended() -> None:
    """It held one of five places of its account for ever, and its message."""
    audit = Audit(None)

    async def run() -> Any:
        register = Register(audit, Clock())
        begun = register.preview(a_call(), "kind", plan_of(Step(target="t", run=run_of("x"))))
        call = a_call(action=begun.id)
        register.confirm(call, begun.token)
        register.stop(call)
        for _ in range(3):
            await asyncio.sleep(0)
        return register.look(call)

    ended = asyncio.run(run())
    assert (ended.state, ended.ended_ms) == ("stopped", Clock.ms)
    assert [entry.detail for entry in audit.newest_first()][0] == "stopped: 1 waiting"


def test_a_preview_ends_with_its_time_and_belongs_to_its_session() -> None:
    clock = Clock()
    register = Register(Audit(None), clock)
    begun = register.preview(a_call(), "kind", plan_of(Step(target="t", run=run_of(""))))
    with pytest.raises(RequestError) as refused:
        register.confirm(a_call("other", begun.id), begun.token)
    assert refused.value.status == 403
    assert register.look(a_call("other", begun.id)).token == ""
    clock.ms = begun.expires_ms + 1
    with pytest.raises(RequestError) as refused:
        register.confirm(a_call(action=begun.id), begun.token)
    assert refused.value.status == 404


def test_what_is_kept_is_bounded_by_its_items() -> None:
    register = Register(Audit(None), Clock())
    steps = [Step(target="t")] * 90_000
    kept = [register.preview(a_call(), "kind", plan_of(*steps)).id for _ in range(6)]

    def is_there(number: str) -> bool:
        try:
            register.look(a_call(action=number))
        except RequestError:
            return False
        return True

    assert [is_there(number) for number in kept] == [False] * 4 + [True] * 2
    with pytest.raises(RequestError) as refused:
        register.preview(a_call(), "kind", plan_of(*steps, *steps))
    assert refused.value.status == 400
    with pytest.raises(RequestError) as refused:
        register.preview(a_call(), "kind", plan_of())
    assert refused.value.code == "nothing_to_do"


def test_a_run_ends_with_its_session_before_its_next_item() -> None:
    gate: asyncio.Event

    async def run() -> Any:
        nonlocal gate
        gate = asyncio.Event()

        async def wait() -> str:
            await gate.wait()
            return ""

        register = Register(Audit(None), Clock())
        steps = [Step(target="1", run=wait), Step(target="2", run=run_of(""))]
        begun = register.preview(a_call(), "kind", plan_of(*steps))
        call = a_call(action=begun.id)
        register.confirm(call, begun.token)
        await asyncio.sleep(0)
        register.stop_all("other")
        register.stop_all("s")
        while register.look(call).state == "running":
            await asyncio.sleep(0)
        return register.look(call)

    ended = asyncio.run(run())
    assert (ended.state, ended.counts) == ("stopped", {"unknown": 1, "waiting": 1})


def test_one_account_holds_a_part_of_the_places() -> None:
    async def run() -> None:
        register = Register(Audit(None), Clock())
        waits = asyncio.Event()

        async def wait() -> str:
            await waits.wait()
            return ""

        begun = []
        for _ in range(6):
            action = register.preview(a_call(account="a"), "k", plan_of(Step(target="t", run=wait)))
            begun.append(a_call(action=action.id, account="a"))
            if len(begun) == 6:
                with pytest.raises(RequestError) as refused:
                    register.confirm(begun[-1], action.token)
                assert (refused.value.status, refused.value.limit) == (429, 5)
            else:
                register.confirm(begun[-1], action.token)
        other = register.preview(a_call(account="b"), "k", plan_of(Step(target="t", run=wait)))
        # Previews of one account drive out its own.
        mine = [
            register.preview(a_call(account="a"), "k", plan_of(Step(target="t", run=wait))).id
            for _ in range(30)
        ]
        with pytest.raises(RequestError):
            register.look(a_call(action=mine[9], account="a"))
        register.look(a_call(action=mine[10], account="a"))
        register.confirm(a_call(action=other.id, account="b"), other.token)
        register.stop_all()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_all_accounts_together_hold_so_many_places() -> None:
    async def run() -> None:
        register = Register(Audit(None), Clock())

        def begin(account: str) -> None:
            plan = plan_of(Step(target="t", run=wait))
            action = register.preview(a_call(account=account), "k", plan)
            register.confirm(a_call(action=action.id, account=account), action.token)

        for number in range(20):
            begin(f"a{number // 5}")
        with pytest.raises(RequestError) as refused:
            begin("late")
        assert (refused.value.status, refused.value.limit) == (429, 20)
        register.stop_all()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_previews_that_keep_messages_take_bounded_memory() -> None:
    """Twenty of one account held 2 GB; those that it stopped were kept, too."""
    register = Register(Audit(None), Clock())

    def preview(account: str) -> str:
        plan = plan_of(Step(target="t", run=run_of("")))
        # With what else it keeps, a quarter of what an account has.
        plan.held_bytes = (4 << 20) - 4096
        return register.preview(a_call(account=account), "k", plan).id

    def held() -> list[str]:
        return [one.account for one in register._actions.values() if one.plan.held_bytes]

    first = preview("b")
    for _ in range(10):
        preview("a")
    assert held() == ["b", *["a"] * 4]
    for number in range(20):
        preview(f"c{number}")
    assert len(held()) == 16
    stopped = preview("b")
    shown = register.stop(a_call(account="b", action=stopped))
    assert shown.state == "stopped" and len(held()) == 15
    [step] = register._actions[stopped].plan.steps
    assert step.run is None
    with pytest.raises(RequestError):
        register.look(a_call(account="b", action=first))


def test_what_has_ended_keeps_nothing_to_be_done() -> None:
    async def run() -> None:
        register = Register(Audit(None), Clock())
        plan = plan_of(Step(target="t", run=run_of("")))
        plan.held_bytes = 4 << 20
        begun = register.preview(a_call(), "k", plan)
        call = a_call(action=begun.id)
        register.confirm(call, begun.token)
        while register.look(call).state == "running":
            await asyncio.sleep(0)
        assert (plan.held_bytes, plan.steps[0].run, plan.steps[0].state) == (0, None, "done")

    asyncio.run(run())


@pytest.mark.parametrize("is_admin", [True, False])
def test_the_audit_log_is_told_whether_an_admin_did_it(is_admin: bool) -> None:
    told: list[bool] = []

    class Noted(Audit):
        def add(self, entry: AuditEntry, *, is_admin: bool = False) -> None:
            told.append(is_admin)

    async def run() -> None:
        register = Register(Noted(None), Clock())
        call = a_call(account="a")._replace(sees_all=is_admin)
        begun = register.preview(call, "k", plan_of(Step(target="t", run=run_of(""))))
        call = call._replace(path={"action": begun.id})
        register.confirm(call, begun.token)
        while register.look(call).state == "running":
            await asyncio.sleep(0)

    asyncio.run(run())
    assert told == [is_admin] * 2


def large_plan(count: int, name: str = "n") -> Plan:
    return plan_of(*(Step(target=name, run=run_of("")) for _ in range(count)))


def sizes(register: Register, account: str) -> list[int]:
    return [len(one.plan.steps) for one in register._actions.values() if one.account == account]


def test_what_steps_keep_counts_too() -> None:
    """Fifteen previews of an import, with names of 255 characters of four bytes, held 1 GB."""
    name = "\U0001f600" * 255
    register = Register(Audit(None), Clock())
    register.preview(a_call(account="b"), "k", large_plan(1))
    for _ in range(4):
        register.preview(a_call(account="a"), "k", large_plan(20_000, name))
        assert sizes(register, "a") == [20_000]
    # One that is larger than the part of an account is let in, and nobody gives way to it.
    assert sizes(register, "b") == [1]
    for number in range(4):
        register.preview(a_call(account=f"c{number}"), "k", large_plan(20_000, name))
    assert [len(sizes(register, f"c{number}")) for number in range(4)] == [0, 0, 1, 1]
    assert (sizes(register, "a"), sizes(register, "b")) == ([], [1])
    with pytest.raises(RequestError) as refused:
        register.preview(a_call(account="a"), "k", large_plan(50_000, name))
    assert (refused.value.status, refused.value.limit) == (400, 128 << 20)
    # The largest that has names as brokers allow them.
    register.preview(a_call(account="a"), "k", large_plan(100_000, "n" * 127))


def test_who_holds_the_most_gives_way() -> None:
    register = Register(Audit(None), Clock())
    few = register.preview(a_call(account="few"), "k", large_plan(1)).id
    for number in range(5):
        for _ in range(3):
            register.preview(a_call(account=f"a{number}"), "k", large_plan(5_000))
    assert sizes(register, "few") == [1]
    assert sum(one.size for one in register._actions.values()) <= 64 << 20
    assert [len(sizes(register, f"a{number}")) for number in range(5)] == [2, 2, 3, 3, 3]
    register.look(a_call(account="few", action=few))


def test_what_has_ended_counts_and_gives_way_first() -> None:
    register = Register(Audit(None), Clock())
    shown = register.preview(a_call(account="a"), "k", large_plan(4_000))
    ended = [register.preview(a_call(account="a"), "k", large_plan(4_000)).id for _ in range(2)]
    for number in ended:
        register.stop(a_call(account="a", action=number))
    for count in (4_001, 4_002, 4_003):
        register.preview(a_call(account="a"), "k", large_plan(count))
    assert register.look(a_call(account="a", action=shown.id)).state == "preview"
    assert sizes(register, "a") == [4_000, 4_001, 4_002, 4_003]


def test_what_runs_is_bounded_by_its_memory() -> None:
    async def run() -> None:
        register = Register(Audit(None), Clock())

        def begin(account: str) -> None:
            steps = [Step(target="n" * 4096, run=wait) for _ in range(9_000)]
            action = register.preview(a_call(account=account), "k", plan_of(*steps))
            register.confirm(a_call(action=action.id, account=account), action.token)

        begin("a")
        with pytest.raises(RequestError, match="large") as refused:
            begin("a")
        assert (refused.value.status, refused.value.limit) == (429, 128 << 20)
        begin("b")
        begin("c")
        with pytest.raises(RequestError, match="large") as refused:
            begin("d")
        assert (refused.value.status, refused.value.limit) == (429, 256 << 20)
        register.stop_all()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_previews_end_with_their_session_and_with_their_time() -> None:
    clock = Clock()
    register = Register(Audit(None), clock)
    gone = register.preview(a_call("s"), "k", large_plan(1))
    kept = register.preview(a_call("other"), "k", large_plan(1))
    register.stop_all("s")
    assert list(register._actions) == [kept.id] and gone.id != kept.id
    clock.ms = kept.expires_ms + 1
    # Whoever looks at anything.
    assert register.listed(a_call("s")).rows == [] and not register._actions
