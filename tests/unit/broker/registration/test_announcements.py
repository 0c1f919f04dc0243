"""What a name server is told of the topic table, by what it knows: slices, changes, versions."""

import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock, StringTransport

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.registration.announcements import NOTHING, SLICE_BYTES_MAX
from ledgermq.broker.registration.registration import Registration
from ledgermq.protocol import lenient_json
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.route import DataVersion
from ledgermq.protocol.transport import TurnOutput
from ledgermq.state.topics import TopicTable
from tests.unit.broker.registration.rig import (
    ADDRESS,
    ASK_ROUTE,
    ASK_SETTINGS,
    ASK_VERSION,
    BROKER_NAME,
    REGISTER,
    JavaNameServer,
    OwnNameServer,
    Rig,
    names_of,
    table_of,
)

TOPICS = 20_000


def registrations(asked: list[RemotingCommand]) -> list[RemotingCommand]:
    return [command for command in asked if command.code == REGISTER]


def version_of(rig: Rig) -> DataVersion:
    version = rig.topics.version
    return DataVersion(timestamp=version.timestamp_ms, counter=version.counter)


def assert_equal(rig: Rig, namesrv: JavaNameServer) -> None:
    """The name server knows exactly what the broker has."""
    told = {name: (t.read_queue_nums, t.perm) for name, t in namesrv.topics.items()}
    permission = rig.config.broker_permission
    assert told == {
        topic.name: (topic.read_queue_count, topic.permission if permission == 6 else permission)
        for topic in rig.topics.all()
    }
    assert namesrv.names == {0: ADDRESS}
    assert namesrv.live[ADDRESS] == version_of(rig)


def test_a_changed_topic_of_20_000_is_told_alone() -> None:
    rig, namesrv = Rig(topic_count=TOPICS), JavaNameServer()
    rig.lead()
    rig.meet(namesrv.answer)
    rig.put("fresh")
    rig.server.tell()
    (change,) = rig.serve(namesrv.answer)
    assert names_of(change) == ["fresh"] and len(change.body) < 500
    assert_equal(rig, namesrv)
    rig.server.tell()
    assert rig.told() == []


def test_the_body_is_upstream_s() -> None:
    rig = Rig()
    rig.lead()
    identity = rig.announcements.identity()
    assert identity is not None
    rig.announcements.next(identity, None)
    first = rig.announcements.next(identity, None)
    assert first is not None
    last = rig.announcements.next(identity, first.known._replace(number=NOTHING))
    assert last is not None
    assert lenient_json.read(last.request.body) == {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": 1, "timestamp": 1_700_000_000_000},
            "topicConfigTable": {
                BROKER_NAME: {
                    "order": False,
                    "perm": 6,
                    "readQueueNums": 8,
                    "topicFilterType": "SINGLE_TAG",
                    "topicName": BROKER_NAME,
                    "topicSysFlag": 0,
                    "writeQueueNums": 8,
                }
            },
        },
    }


def test_a_registration_has_a_bounded_size_and_its_checksum() -> None:
    rig, namesrv = Rig(topic_count=TOPICS), JavaNameServer()
    rig.lead()
    sent = registrations(rig.meet(namesrv.answer))
    assert len(sent) > 10
    assert max(len(command.body) for command in sent) < SLICE_BYTES_MAX + 200
    for command in sent:
        told = int((command.ext_fields or {})["bodyCrc32"])
        assert told == zlib.crc32(command.body) & 0x7FFFFFFF
    assert_equal(rig, namesrv)
    # Only the last one has the table's version: what a name server calls equal, it has all of.
    versions = [table_of(command).data_version for command in sent]
    assert len(set(versions)) == len(versions)
    assert versions.index(version_of(rig)) == len(versions) - 1


def test_slices_are_made_once_for_all_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MemoryReactorClock()
    config = load_broker_config(None, {"namesrvAddr": "10.0.0.8:9876;10.0.0.9:9876"})
    leadership, topics = Leadership("n0", 1), Rig(topic_count=3000).topics
    leadership.changed("LEADER", 1, "n0")
    leadership.serve()
    made: list[int] = []
    behind = topics.changes.behind

    def count(number: int) -> Any:
        made.append(number)
        return behind(number)

    monkeypatch.setattr(topics.changes, "behind", count)
    registration = Registration(
        config, leadership, topics, reactor=clock, output=TurnOutput(clock),
        address=lambda: ADDRESS, ha_address=lambda: ADDRESS,
    )  # fmt: skip
    registration.start()
    links = []
    for _, _, factory, *_ in clock.tcpClients:
        protocol: Any = factory.buildProtocol(None)  # type: ignore[union-attr]
        transport = StringTransport()
        protocol.makeConnection(transport)
        links.append((protocol, transport, FrameDecoder(), JavaNameServer()))
    is_busy = True
    while is_busy:
        clock.advance(0)
        is_busy = False
        for protocol, transport, decoder, namesrv in links:
            frames = decoder.feed(transport.value())
            transport.clear()
            for frame in frames:
                is_busy = True
                protocol.dataReceived(encode(namesrv.answer(decode(frame))))
    assert [len(namesrv.topics) for *_, namesrv in links] == [3001, 3001]
    assert len(made) == len(set(made))


def test_topics_of_one_turn_are_told_together_and_the_next_ones_soon() -> None:
    clock = MemoryReactorClock()
    config = load_broker_config(None, {"namesrvAddr": "10.0.0.9:9876"})
    leadership, topics = Leadership("n0", 1), TopicTable(10)
    registration = Registration(
        config, leadership, topics, reactor=clock, output=TurnOutput(clock),
        address=lambda: ADDRESS, ha_address=lambda: ADDRESS,
    )  # fmt: skip
    told_s: list[float] = []
    (server,) = registration.servers.values()
    server.tell = lambda: told_s.append(clock.seconds())  # type: ignore[method-assign]
    clock.advance(1.0)
    for _ in range(3):
        registration.topics_changed()
    clock.advance(0)
    assert told_s == [1.0]
    registration.topics_changed()
    clock.pump([0.1, 0.15, 0.5])
    assert told_s == pytest.approx([1.0, 1.25])
    registration.topics_changed()
    registration.unregister()
    registration.topics_changed()
    clock.advance(10)
    assert len(told_s) == 2


def test_what_changes_while_slices_are_told_stands_behind_them() -> None:
    rig, namesrv = Rig(topic_count=TOPICS), JavaNameServer()
    rig.lead()
    changes = iter(range(10))

    def change() -> None:
        number = next(changes, None)
        if number is not None:
            # One that was told already, one that was not, and a new one.
            rig.put("topic-000000", "topic-019980", f"fresh-{number}", queues=20 + number)
            # Its slice is made later: so it is not told at all.
            rig.topics.remove(f"topic-01999{number}", 1_700_000_000_001)
            rig.server.tell()

    rig.accept()
    rig.serve(namesrv.answer, between=change)
    assert next(changes, None) is None
    assert_equal(rig, namesrv)


def test_a_topic_made_while_an_answer_is_waited_for_is_told_right_behind_it() -> None:
    rig, namesrv = Rig(), JavaNameServer()
    rig.lead()
    rig.meet(namesrv.answer)
    rig.put("first")
    rig.server.tell()
    (first,) = rig.told()
    rig.put("second", "third")
    rig.server.tell()
    assert rig.told() == []
    rig.reply(namesrv.answer(first))
    (second,) = rig.told()
    assert (names_of(first), names_of(second)) == (["first"], ["second", "third"])
    # A topic that nobody was asked to tell waits for its time.
    rig.put("fourth")
    rig.reply(namesrv.answer(second))
    assert rig.told() == []


def test_a_new_connection_in_the_middle_of_slices_begins_anew() -> None:
    rig, namesrv = Rig(topic_count=5000), JavaNameServer()
    rig.lead()
    rig.accept()
    for _ in range(3):
        (request,) = rig.told()
        rig.reply(namesrv.answer(request))
    assert 0 < len(namesrv.topics) < 5000
    rig.told()
    rig.lose()
    namesrv.forget()
    rig.put("fresh")
    rig.server.tell()
    rig.pass_s(0.1)
    rig.meet(namesrv.answer)
    assert_equal(rig, namesrv)


def test_a_removal_is_told_by_the_version_alone() -> None:
    rig, namesrv = Rig(topic_count=10), JavaNameServer()
    rig.lead()
    rig.meet(namesrv.answer)
    rig.topics.remove("topic-000003", 1_700_000_000_001)
    # A tool deletes it at the name servers, too.
    del namesrv.topics["topic-000003"]
    rig.server.tell()
    (change,) = rig.serve(namesrv.answer)
    assert names_of(change) == []
    assert_equal(rig, namesrv)
    rig.put("topic-000003", queues=3)
    rig.server.tell()
    (change,) = rig.serve(namesrv.answer)
    assert names_of(change) == ["topic-000003"]
    assert_equal(rig, namesrv)


def test_who_refuses_a_change_is_told_all() -> None:
    rig, namesrv = Rig(topic_count=10), JavaNameServer()
    rig.lead()
    rig.meet(namesrv.answer)
    namesrv.refuses = 1
    rig.put("fresh")
    rig.server.tell()
    assert [names_of(command) for command in rig.serve(namesrv.answer)] == [["fresh"]]
    assert rig.server.is_registered is False
    rig.pass_s(1.1)
    all_again, *_ = rig.serve(namesrv.answer)
    assert len(names_of(all_again)) == 12
    assert rig.server.is_registered is True
    assert_equal(rig, namesrv)


def test_a_settled_name_server_is_asked_and_told_nothing() -> None:
    rig, namesrv = Rig(topic_count=TOPICS), JavaNameServer()
    rig.lead()
    rig.meet(namesrv.answer)
    rig.server.register()
    assert [command.code for command in rig.serve(namesrv.answer)] == [ASK_VERSION, ASK_ROUTE]
    # A slave is asked nothing: its registration is small, and tells it its master.
    rig.follow()
    for _ in range(2):
        rig.server.register()
        (request,) = rig.serve(namesrv.answer)
        assert (request.code, names_of(request)) == (REGISTER, [])


@pytest.mark.parametrize("loss", ["version", "broker", "id", "routes"])
def test_a_name_server_that_lost_something_is_told_all_again(loss: str) -> None:
    rig, namesrv = Rig(topic_count=1000), JavaNameServer()
    rig.lead()
    rig.meet(namesrv.answer)
    match loss:
        case "version":
            namesrv.live[ADDRESS] = DataVersion(timestamp=1, counter=1)
        case "broker":
            namesrv.forget()
        case "id":
            # What an old leader had said before came late.
            namesrv.names = {0: "10.0.0.7:10911"}
        case "routes":
            # The late farewell of an old leader: the name is gone, this address is not.
            namesrv.names, namesrv.topics = {}, {}
    rig.server.register()
    rig.serve(namesrv.answer)
    assert_equal(rig, namesrv)


def test_topics_made_while_it_is_asked_are_told_behind_the_questions() -> None:
    rig, namesrv = Rig(), JavaNameServer()
    rig.lead()
    rig.meet(namesrv.answer)
    rig.server.register()
    (question,) = rig.told()
    rig.put("fresh")
    rig.server.tell()
    asked = [question, *rig.serve(lambda request: namesrv.answer(request))]
    assert [command.code for command in asked] == [ASK_VERSION]
    rig.reply(namesrv.answer(question))
    assert [command.code for command in rig.serve(namesrv.answer)] == [ASK_ROUTE, REGISTER]
    assert_equal(rig, namesrv)


def test_a_new_leader_tells_all_though_it_told_the_same_version_before() -> None:
    """Apache's takes topics only with another version, and a follower has its leader's table."""
    rig, namesrv = Rig(topic_count=3), JavaNameServer()
    rig.meet(namesrv.answer)
    # The leader that told the topics was another one, and it did not tell the last of them.
    namesrv.names[0] = "10.0.0.7:10911"
    rig.lead()
    rig.server.register()
    rig.serve(namesrv.answer)
    assert_equal(rig, namesrv)


def test_a_follower_brings_no_topics_and_hears_of_no_changes() -> None:
    rig, namesrv = Rig(topic_count=1000), JavaNameServer()
    (request,) = rig.meet(namesrv.answer)
    assert names_of(request) == [] and rig.server.is_registered is True
    rig.put("fresh")
    rig.server.tell()
    assert rig.told() == []


def test_permission_of_the_broker_replaces_that_of_each_topic() -> None:
    rig, namesrv = Rig(topic_count=1000), JavaNameServer()
    rig.lead()
    rig.meet(namesrv.answer)
    for permission in (4, 6):
        object.__setattr__(rig.config, "broker_permission", permission)
        rig.topics.generation += 1
        rig.server.tell()
        rig.serve(namesrv.answer)
        assert_equal(rig, namesrv)
        rig.put("fresh", queues=permission)
        rig.server.tell()
        (change,) = rig.serve(namesrv.answer)
        assert names_of(change) == ["fresh"]
        assert_equal(rig, namesrv)


def test_a_name_server_that_drops_what_is_missing_is_never_told_a_part() -> None:
    rig, namesrv = Rig(topic_count=5000), JavaNameServer(drops_missing=True)
    rig.lead()
    asked = rig.meet(namesrv.answer)
    assert asked[0].code == ASK_SETTINGS
    assert_equal(rig, namesrv)
    rig.put("fresh")
    rig.topics.remove("topic-000003", 1_700_000_000_001)
    rig.server.tell()
    (whole,) = rig.serve(namesrv.answer)
    assert len(names_of(whole)) == 5001
    assert_equal(rig, namesrv)
    # Each of its registrations had all topics: no route was ever away.
    assert min(len(body.topic_config_table) for body in namesrv.registrations) == 5001


def test_a_topic_removed_while_the_whole_table_is_gathered_is_not_told() -> None:
    rig, namesrv = Rig(topic_count=5000), JavaNameServer(drops_missing=True)
    rig.lead()
    rig.accept()
    (question,) = rig.told()
    rig.reply(namesrv.answer(question))
    rig.topics.remove("topic-000000", 1_700_000_000_001)
    rig.put("topic-000001", queues=77)
    rig.serve(namesrv.answer)
    assert_equal(rig, namesrv)


def test_a_setting_that_changes_is_seen_before_the_next_change_is_told() -> None:
    rig, namesrv = Rig(topic_count=100), JavaNameServer(drops_missing=False)
    rig.lead()
    rig.meet(namesrv.answer)
    namesrv.drops_missing = True
    rig.server.register()
    rig.serve(namesrv.answer)
    rig.put("fresh")
    rig.server.tell()
    assert [c.code for c in rig.serve(namesrv.answer)] == [ASK_SETTINGS, REGISTER]
    assert_equal(rig, namesrv)


def test_one_that_does_not_tell_its_settings_is_registered_with_all_the_same() -> None:
    rig, namesrv = Rig(topic_count=5000), JavaNameServer()
    rig.lead()
    for _ in range(2):
        rig.accept()
        (question,) = rig.told()
        assert question.code == ASK_SETTINGS
        rig.patience_s()
    rig.meet(namesrv.answer)
    assert_equal(rig, namesrv)


def test_our_name_server_takes_slices_changes_and_questions(tmp_path: Path) -> None:
    rig, namesrv = Rig(topic_count=5000), OwnNameServer(tmp_path)
    rig.lead()
    rig.meet(namesrv.answer)
    assert len(namesrv.routes.topics()) == 5001
    rig.put("fresh", queues=3)
    rig.server.tell()
    (change,) = rig.serve(namesrv.answer)
    assert names_of(change) == ["fresh"]
    assert namesrv.routes.route("fresh").queue_datas[0].read_queue_nums == 3
    assert namesrv.routes.route(BROKER_NAME).broker_datas[0].broker_addrs == {0: ADDRESS}
    rig.server.register()
    assert [command.code for command in rig.serve(namesrv.answer)] == [ASK_VERSION, ASK_ROUTE]


def test_versions_of_two_processes_differ() -> None:
    versions = []
    for chance in (0.1, 0.2):
        rig, namesrv = Rig(chance=chance), JavaNameServer()
        rig.lead()
        rig.meet(namesrv.answer)
        versions += [body.data_version for body in namesrv.registrations[:-1]]
    assert len(set(versions)) == len(versions) > 1


@pytest.mark.parametrize("drops_missing", [None, False, True])
@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_name_server_ends_with_the_table(
    seed: int, drops_missing: bool | None
) -> None:
    chance = random.Random(seed)
    rig, namesrv = Rig(topic_count=2500), JavaNameServer(drops_missing=drops_missing)
    rig.lead()
    rig.accept()
    term, removed = 2, set()
    for _ in range(150):
        match chance.randrange(9):
            case 0 | 1 | 2:
                rig.put(f"topic-{chance.randrange(4000):06}", queues=chance.randrange(1, 9))
                rig.server.tell()
            case 3:
                name = f"topic-{chance.randrange(4000):06}"
                if rig.topics.remove(name, 1_700_000_000_001):
                    removed.add(name)
                rig.server.tell()
            case 4:
                rig.server.register()
            case 5 if chance.random() < 0.3:
                rig.told()
                rig.lose()
                namesrv.forget()
                rig.pass_s(0.1)
                rig.accept()
            case 6 if chance.random() < 0.5:
                term += 1
                rig.lead(term) if chance.random() < 0.5 else rig.follow(term)
                rig.server.register()
            case 7:
                namesrv.refuses = chance.randrange(3)
            case _:
                for request in rig.told():
                    rig.reply(namesrv.answer(request))
    namesrv.refuses = 0
    rig.lead(term + 1)
    rig.server.register()
    rig.serve(namesrv.answer)
    rig.pass_s(31)
    rig.serve(namesrv.answer)
    for name in namesrv.topics.keys() & removed:
        if rig.topics.find(name) is None and not drops_missing:
            del namesrv.topics[name]
    assert_equal(rig, namesrv)
    assert rig.server.is_registered is True
