"""Parts of the console that are values and functions: what they make of what brokers tell."""

import asyncio

import msgspec
import pytest

from ledgermq.client.errors import RefusedError, UnreachableError
from ledgermq.console.accounts import AccountRules
from ledgermq.console.api.rules import judge
from ledgermq.console.api.table import HANDLERS
from ledgermq.console.call import ordered, words_of
from ledgermq.console.desk import read_query
from ledgermq.console.figures import figures_of
from ledgermq.console.group_figures import Lag, state_of
from ledgermq.console.history import History
from ledgermq.console.kept import Kept
from ledgermq.console.routes import ROUTES, Gives
from ledgermq.console.settings import shown_value
from ledgermq.console.shapes.access import MayQuestion
from ledgermq.console.shapes.topics import TopicsQuery
from ledgermq.console.tally import reason_of
from ledgermq.console.timeline import Seen, Timeline
from ledgermq.console.topic_tables import kind_of, read_topic_table
from ledgermq.console.versions import is_outdated, version_name
from ledgermq.http.replies import RequestError

_OF_THE_DESK = {"get_session", "sign_in", "sign_out", "get_clusters"}


def test_each_route_has_its_handler() -> None:
    json_routes = {route.name for route in ROUTES if route.gives is Gives.JSON}
    assert set(HANDLERS) | _OF_THE_DESK == json_routes


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (399, "V4_9_3"),
        (401, "V4_9_4"),
        (413, "V5_0_0"),
        (439, "V5_1_3"),
        (232, "V4_1_0_SNAPSHOT"),
        (121, "ordinal 121"),
        (-1, "ordinal -1"),
    ],
)
def test_versions_have_names(ordinal: int, name: str) -> None:
    assert version_name(ordinal) == name
    assert is_outdated(ordinal) == (ordinal < 393)


def test_figures_of_any_broker_are_read() -> None:
    ours = figures_of(
        {
            "ledgerRole": "LEADER",
            "ledgerSelfId": "n1",
            "ledgerTerm": "7",
            "commitLogMaxOffset": "100",
            "putTps": "1.5 2.5 3.5",
            "commitLogDiskRatio": "0.25",
            "commitLogDirCapacity": "Total : 9.9 GiB, Free : 2.5 GiB.",
            "scheduleMessageOffset_3": "4,9",
            "stateAlarm": "too large",
            "earliestMessageTimeStamp": "-1",
        }
    )
    assert (ours.role, ours.member, ours.term, ours.log_end) == ("LEADER", "n1", 7, 100)
    assert (ours.in_per_s, ours.disk_used_ratio, ours.oldest_ms) == (1.5, 0.25, None)
    assert ours.disk_free_bytes == int(2.5 * 2**30)
    assert ours.delays == {3: (4, 9)} and ours.alarms == ["stateAlarm: too large"]


def test_what_a_member_says_of_itself_is_cut_where_it_is_long() -> None:
    long = "x" * 100_000
    keys = ("ledgerRole", "ledgerSelfId", "ledgerLeaderId", "brokerVersionDesc", "ledgerRepair")
    found = figures_of(dict.fromkeys((*keys, "accessAlarm"), long))
    assert (found.role, found.member, found.leader, found.version) == ("x" * 255,) * 4
    assert found.repair == "x" * 1024 and found.alarms == ["accessAlarm: " + "x" * 1024]
    assert reason_of(RefusedError(1, long)) == reason_of(UnreachableError(long)) == "x" * 1024


@pytest.mark.parametrize("text", ["", "x", "1e999", "9" * 40, "nan nan", "Free :", "-", "\x00"])
def test_figures_that_are_none_are_unknown(text: str) -> None:
    keys = ("ledgerTerm", "putTps", "commitLogDiskRatio", "commitLogDirCapacity")
    found = figures_of(dict.fromkeys((*keys, "scheduleMessageOffset_1"), text))
    assert found.term is None and found.disk_used_ratio is None and found.delays == {}


def test_a_table_of_topics_is_read_with_their_types() -> None:
    body = (
        b'{"topicConfigTable":{"A":{"topicName":"A","attributes":{"message.type":"FIFO"}},'
        b'"B":{"topicName":"B","order":true},"C":{"topicName":"C","attributes":7}}}'
    )
    table = read_topic_table(body)
    own = frozenset({"DefaultCluster"})
    kinds = {name: kind_of(name, entry, own) for name, entry in table.items()}
    assert kinds == {"A": "fifo", "B": "fifo", "C": "normal"}
    for name, kind in (
        ("%RETRY%g", "retry"),
        ("%DLQ%g", "dead_letter"),
        ("TBW102", "system"),
        ("DefaultCluster", "system"),
        ("DefaultCluster_REPLY_TOPIC", "system"),
        ("RMQ_SYS_TRACE_TOPIC", "system"),
    ):
        assert kind_of(name, None, own) == kind


@pytest.mark.parametrize(
    ("online", "lag", "rate", "differs", "outside", "state"),
    [
        (0, Lag(5, 1), 1.0, False, 0, "offline"),
        (2, Lag(0, None), 0.0, False, 0, "fine"),
        (2, Lag(5, 100), 3.0, False, 0, "fine"),
        (2, Lag(5, 50_000), 3.0, False, 0, "behind"),
        (2, Lag(5, 90_000), 0.0, False, 0, "stuck"),
        (2, Lag(5, 90_000), 0.0, True, 0, "differs"),
        (2, Lag(5, 90_000), 0.0, False, 1, "outside"),
        (None, Lag(5, 90_000), 0.0, False, 0, "unknown"),
        (2, None, 0.0, False, 0, "unknown"),
    ],
)
def test_a_group_is_judged_in_a_word(
    online: int | None, lag: Lag | None, rate: float, differs: bool, outside: int, state: str
) -> None:
    found, text = state_of(online=online, lag=lag, out_per_s=rate, differs=differs, outside=outside)
    assert found == state and text


def _seen(name: str, leads: bool = False, answers: bool = True, ratio: float = 0.1) -> Seen:
    return Seen(name, leads, answers, 3, ratio, ())


def test_the_timeline_tells_what_changed() -> None:
    timeline = Timeline()
    timeline.look({"g": [_seen("n0", leads=True), _seen("n1")]}, 1)
    assert timeline.recent(0) == []
    timeline.look({"g": [_seen("n0", answers=False), _seen("n1")]}, 2)
    timeline.look({"g": [_seen("n0", answers=False), _seen("n1", leads=True)]}, 3)
    timeline.look({"g": [_seen("n0", ratio=0.9), _seen("n1", leads=True)]}, 4)
    codes = [(event.at_ms, event.code) for event in timeline.recent(0, "g")]
    assert sorted(codes) == [
        (2, "member_gone"), (2, "no_leader"), (3, "leader_changed"), (4, "disk_high"),
        (4, "member_back"),
    ]  # fmt: skip
    assert timeline.recent(5) == [] and timeline.recent(0, "other") == []


def test_members_of_a_consumer_group_come_and_go() -> None:
    timeline = Timeline()
    assert timeline.of_group("g", ["a"], 1) == []
    events = timeline.of_group("g", ["b"], 2)
    assert [(one.code, one.values["client"]) for one in events] == [
        ("group_left", "a"), ("group_joined", "b"),
    ]  # fmt: skip


def test_history_is_bounded_and_knows_a_trend() -> None:
    history = History()
    for i in range(400):
        history.add("disk_used_ratio", "g/n0", i * 10_000, 0.5 + i / 10_000)
    (series,) = history.read(frozenset({"disk_used_ratio"}), 0, members=True)
    assert len(series.values) == len(series.at_ms) == 360
    days = history.days_to("disk_used_ratio", "g/n0", 1.0)
    assert days == pytest.approx((1.0 - 0.5399) / (0.0001 / 10) / 86_400)
    assert history.days_to("disk_used_ratio", "g/n1", 1.0) is None
    assert history.read(frozenset(), 0, members=False) == []


def test_those_who_ask_at_one_time_share_a_load() -> None:
    loads = []

    async def load() -> int:
        loads.append(1)
        await asyncio.sleep(0)
        return len(loads)

    async def fail() -> int:
        raise ValueError("no")

    async def run() -> None:
        kept = Kept()
        found = await asyncio.gather(*(kept.get("k", 60, load) for _ in range(5)))
        assert [value for value, _ in found] == [1] * 5
        assert (await kept.get("k", 60, load))[0] == 1
        kept.drop("k")
        assert (await kept.get("k", 60, load))[0] == 2
        with pytest.raises(ValueError):
            await kept.get("f", 60, fail)
        assert kept.find("f") is None and kept.find("k") == 2

    asyncio.run(run())


def test_what_takes_long_to_load_stays_beside_the_values_of_a_long_list() -> None:
    async def load() -> int:
        return 1

    async def run() -> None:
        kept = Kept()
        await kept.get("all", 90, load)
        for topic in range(3000):
            await kept.get(("rates", topic), 5, load)
        assert kept.find("all") == 1

    asyncio.run(run())


def test_a_value_that_is_a_little_too_old_keeps_nobody_waiting() -> None:
    loads: list[int] = []

    async def run() -> None:
        kept, gate = Kept(), asyncio.Event()

        async def load() -> int:
            loads.append(1)
            if len(loads) > 1:
                await gate.wait()
            return len(loads)

        assert (await kept.get_soon("all", 0.0, 60, load))[0] == 1
        await asyncio.sleep(0.01)
        for _ in range(3):
            value, age_s = await kept.get_soon("all", 0.0, 60, load)
            assert value == 1 and age_s > 0
        await asyncio.sleep(0)
        assert len(loads) == 2
        waits = asyncio.ensure_future(kept.get_soon("all", 0.0, 0.0, load))
        await asyncio.sleep(0)
        assert not waits.done()
        gate.set()
        assert (await waits)[0] == 2
        kept.close()

    asyncio.run(run())


def test_rows_without_a_value_stand_last() -> None:
    rows = [3, None, 1, 2]
    assert ordered(rows, lambda row: row, "asc") == [1, 2, 3, None]
    assert ordered(rows, lambda row: row, "desc") == [3, 2, 1, None]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"limit": ["0"]}, "limit"),
        ({"limit": ["x"]}, "limit"),
        ({"limit": ["1", "2"]}, "limit"),
        ({"order": ["up"]}, "order"),
        ({"nothing": ["1"]}, "nothing"),
        ({"filter": ["x" * 256]}, "filter"),
    ],
)
def test_a_query_is_read_strictly(given: dict[str, list[str]], field: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_query(TopicsQuery, given)
    assert (refused.value.status, refused.value.field) == (400, field)


def test_words_are_those_that_are_allowed() -> None:
    assert words_of("a,b", "f", ("a", "b", "c")) == {"a", "b"}
    with pytest.raises(RequestError):
        words_of("a,d", "f", ("a", "b"))


def test_secrets_among_settings_are_hidden() -> None:
    assert shown_value("tls.key.password", "x") == "********"
    assert shown_value("dLegerGroupSecretFile", "/run/x") == "/run/x"
    assert shown_value("brokerName", "a") == "a"


def test_rules_are_judged_as_brokers_judge_them() -> None:
    rules = AccountRules(False, "", "DENY", "SUB", ("a=PUB", "b=ANY"), ("g=DENY",))

    def may(kind: str, name: str, what: str) -> bool:
        given = {"access_key": "x", "kind": kind, "name": name, "what": what}
        question = msgspec.convert(given, MayQuestion)
        return judge(rules, question).allowed

    assert may("topic", "a", "PUB") and not may("topic", "a", "SUB")
    assert may("topic", "b", "SUB") and not may("topic", "c", "PUB")
    assert may("group", "h", "SUB") and not may("group", "g", "SUB")
    assert judge(
        rules._replace(is_admin=True),
        MayQuestion(access_key="x", kind="topic", name="c", what="PUB"),
    ).allowed


def test_what_was_asked_for_before_a_change_is_not_kept_behind_it() -> None:
    """A table that was under way stood for 5 s after a topic was made through the console."""

    async def run() -> list[int]:
        kept, gate = Kept(), asyncio.Event()
        seen: list[int] = []

        async def old() -> int:
            await gate.wait()
            return 1

        async def new() -> int:
            return 2

        first = asyncio.ensure_future(kept.get("table", 5.0, old))
        await asyncio.sleep(0)
        kept.forget()
        seen.append((await kept.get("table", 5.0, new))[0])
        gate.set()
        seen.append((await first)[0])
        seen.append((await kept.get("table", 5.0, new))[0])
        kept.close()
        return seen

    assert asyncio.run(run()) == [2, 1, 2]
