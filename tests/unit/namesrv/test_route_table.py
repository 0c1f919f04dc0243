"""The route table's rules, with values only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledgermq.namesrv.errors import HeldError, LimitError, RouteNotFoundError
from ledgermq.namesrv.registrations import MasterAddress, Registrant, Registration, RouteLimits
from ledgermq.namesrv.route_table import RouteTable
from ledgermq.protocol.route import DataVersion, TopicConfig

MASTER = "10.0.0.1:10911"
REPLICA = "10.0.0.2:10911"


ANYBODY = Registrant(key="address 10.0.0.7")
SHOP = Registrant(key="account shop", account="shop")
OTHER = Registrant(key="account other", account="other")


class Table(RouteTable):
    """Where nobody says who registers, nobody has an account."""

    def register(
        self,
        told: Registration,
        registrant: Registrant = ANYBODY,
        owner: object = None,
        now_ms: float = 0,
    ) -> MasterAddress | None:
        return super().register(told, registrant, owner, now_ms)


def make_table(topics_max: int = 100, brokers_max: int = 10, **limits: int) -> Table:
    return Table(
        expires_after_ms=1000,
        limits=RouteLimits(topics_max=topics_max, brokers_max=brokers_max, **limits),
        on_leaving=lambda: None,
    )


def told(
    address: str = MASTER,
    broker_id: int = 0,
    *topics: str,
    counter: int = 1,
    broker_name: str = "broker-a",
    cluster_name: str = "C1",
    perm: int = 6,
    term: int | None = None,
) -> Registration:
    return Registration(
        cluster_name=cluster_name,
        broker_name=broker_name,
        broker_id=broker_id,
        broker_addr=address,
        ha_server_addr=address + "9",
        data_version=DataVersion(timestamp=7, counter=counter),
        topics={t: TopicConfig(topic_name=t, perm=perm) for t in topics or ("TopicA",)},
        filter_servers=(),
        expires_after_ms=None,
        ledger_term=term,
    )


def test_master_brings_topics_and_replica_adds_its_address() -> None:
    table = make_table()
    table.register(told(), owner=1, now_ms=0)
    table.register(told(REPLICA, 1, "TopicB"), owner=2, now_ms=0)
    route = table.route("TopicA")
    assert route.broker_datas[0].broker_addrs == {0: MASTER, 1: REPLICA}
    with pytest.raises(RouteNotFoundError, match="TopicB"):
        table.route("TopicB")


def test_replica_is_told_its_master() -> None:
    table = make_table()
    assert table.register(told(REPLICA, 1), owner=2, now_ms=0) is None
    table.register(told(), owner=1, now_ms=0)
    master = table.register(told(REPLICA, 1), owner=2, now_ms=0)
    assert master is not None
    assert (master.broker_addr, master.ha_server_addr) == (MASTER, MASTER + "9")


def test_new_leader_takes_id_0_and_gives_up_its_replica_id() -> None:
    table = make_table()
    table.register(told(), owner=1, now_ms=0)
    table.register(told(REPLICA, 2), owner=2, now_ms=0)
    table.register(told(REPLICA, 0), owner=2, now_ms=1)
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: REPLICA}
    # The old leader's farewell comes late: id 0 belongs to its successor now.
    table.unregister(MASTER, "broker-a", ANYBODY, owner=1)
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: REPLICA}


def test_late_word_of_a_former_leader_does_not_leave_the_group_without_a_master() -> None:
    table = make_table()
    table.register(told(), owner=1, now_ms=0)
    table.register(told(REPLICA, 0), owner=2, now_ms=1)
    # What the former leader said while it was cut off arrives now, and then its new role.
    table.register(told(), owner=1, now_ms=2)
    table.register(told(MASTER, 1), owner=1, now_ms=3)
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: REPLICA, 1: MASTER}


@pytest.mark.parametrize("has_other_replica", [True, False])
def test_successor_is_the_master_again_when_the_former_leader_leaves(
    has_other_replica: bool,
) -> None:
    table = make_table()
    if has_other_replica:
        table.register(told("10.0.0.3:10911", 3), owner=3, now_ms=0)
    table.register(told(REPLICA, 0), owner=2, now_ms=1)
    table.register(told(), owner=1, now_ms=2)
    assert table.owner_lost(1) == [MASTER]
    assert table.route("TopicA").broker_datas[0].broker_addrs[0] == REPLICA


def test_changed_topic_is_taken_only_with_a_new_version() -> None:
    table = make_table()
    table.register(told(perm=6), owner=1, now_ms=0)
    table.register(told(perm=4), owner=1, now_ms=1)
    assert table.route("TopicA").queue_datas[0].perm == 6
    table.register(told(perm=4, counter=2), owner=1, now_ms=2)
    assert table.route("TopicA").queue_datas[0].perm == 4


def test_lost_connection_removes_what_came_on_it() -> None:
    table = make_table()
    table.register(told(), owner=1, now_ms=0)
    assert table.owner_lost(2) == []
    assert table.owner_lost(1) == [MASTER]
    assert table.topics() == []
    assert table.clusters().broker_addr_table == {}


def test_a_thousand_masters_of_one_name_go_at_the_cost_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = make_table(brokers_max=2000)
    for number in range(999):
        table.register(told(f"10.0.0.1:{60_000 - number}"), owner=1)
    table.register(told("10.0.0.2:1"), owner=2)
    looks: list[object] = []
    restore = RouteTable._restore_master
    monkeypatch.setattr(
        RouteTable, "_restore_master", lambda *parts: (looks.append(parts), restore(*parts))
    )
    assert len(table.owner_lost(1)) == 999
    assert len(looks) == 1
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: "10.0.0.2:1"}


def test_an_address_is_taken_out_without_a_look_at_all_of_its_name() -> None:
    class Counted(dict[int, str]):
        looks_count = 0

        def items(self) -> Any:
            Counted.looks_count += len(self)
            return super().items()

    table = make_table(brokers_max=2000)
    table.register(told(), owner=1)
    name = table._names["broker-a"]
    name.addresses = Counted(name.addresses)
    for number in range(900):
        table.register(told(f"10.0.0.2:{number + 1}", number + 1), owner=2)
    # One that takes the place of another gives up its own.
    table.register(told("10.0.0.2:1", 7), owner=2)
    assert 1 not in name.addresses and name.addresses[7] == "10.0.0.2:1"
    table.unregister("10.0.0.2:7", "broker-a", ANYBODY, owner=2)
    assert name.addresses[7] == "10.0.0.2:1"
    assert len(table.owner_lost(2)) == 899
    assert (Counted.looks_count, name.addresses) == (0, {0: MASTER})


def test_filter_servers_of_a_hundred_brokers_are_told() -> None:
    table = make_table(brokers_max=2000)
    for number in range(150):
        one = told(f"10.0.0.1:{number + 1}", broker_name=f"b-{number}")
        table.register(replace(one, filter_servers=("f:1",)))
    route = table.route("TopicA")
    assert (len(route.broker_datas), len(route.filter_server_table)) == (150, 100)


def test_registration_on_a_new_connection_survives_the_end_of_the_old_one() -> None:
    table = make_table()
    table.register(told(), owner=1, now_ms=0)
    table.register(told(), owner=2, now_ms=1)
    assert table.owner_lost(1) == []
    assert table.topics() == ["TopicA"]


def test_silent_broker_expires_and_a_version_query_keeps_it() -> None:
    table = make_table()
    table.register(told(), owner=1, now_ms=0)
    assert table.refresh(MASTER, DataVersion(7, 1), ANYBODY, 900) is not None
    assert table.expire(1500) == []
    assert table.refresh(MASTER, DataVersion(7, 9), ANYBODY, 1800) is not None
    assert table.expire(1901) == [(MASTER, 1)]
    assert table.refresh(MASTER, DataVersion(7, 1), ANYBODY, 2000) is None


def test_address_under_a_new_broker_name_leaves_the_old_name() -> None:
    table = make_table()
    table.register(told(), owner=1, now_ms=0)
    table.register(told(broker_name="broker-b"), owner=1, now_ms=1)
    assert sorted(table.clusters().broker_addr_table) == ["broker-b"]


@pytest.mark.parametrize(
    ("second", "name"),
    [
        (told(REPLICA, 1, "TopicA"), "brokersMax"),
        (told(MASTER, 0, "T1", "T2", counter=2), "topicsMax"),
    ],
)
def test_full_table_refuses_and_stays_as_it_was(second: Registration, name: str) -> None:
    table = make_table(topics_max=2, brokers_max=1)
    table.register(told(), owner=1, now_ms=0)
    with pytest.raises(LimitError, match=name):
        table.register(second, owner=2, now_ms=1)
    assert table.topics() == ["TopicA"]
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: MASTER}


def test_write_permission_is_taken_and_given_back() -> None:
    table = make_table()
    table.register(told(perm=7), owner=1, now_ms=0)
    assert table.set_write_perm("broker-a", writable=False) == 1
    assert table.route("TopicA").queue_datas[0].perm == 5
    assert table.set_write_perm("broker-a", writable=True) == 1
    assert table.route("TopicA").queue_datas[0].perm == 6
    assert table.set_write_perm("nobody", writable=True) == 0


def test_topic_is_deleted_everywhere_or_in_one_cluster() -> None:
    table = make_table()
    table.register(told(), owner=1, now_ms=0)
    table.register(
        told(REPLICA, 0, "TopicA", broker_name="broker-b", cluster_name="C2"), owner=2, now_ms=0
    )
    table.delete_topic("TopicA", "C2")
    assert [q.broker_name for q in table.route("TopicA").queue_datas] == ["broker-a"]
    assert table.topics_of_cluster("C1") == ["TopicA"]
    assert table.topics_of_cluster("C2") == []
    table.delete_topic("TopicA")
    assert table.topics() == []


def test_system_topics_are_clusters_and_broker_names() -> None:
    table = make_table()
    table.register(told(), owner=1, now_ms=0)
    assert table.system_topics() == (["C1", "broker-a"], MASTER)


# Who holds what.


@pytest.mark.parametrize("is_first", [True, False])
def test_an_address_under_a_name_of_another_account_keeps_nobody_out(is_first: bool) -> None:
    """Nothing proves that an address is the broker's, so none is taken by who says it first: not
    while its broker starts anew, nor ahead of a broker to come.
    """
    table = make_table()
    rival = told(MASTER, 0, "TopicB", broker_name="broker-b")
    if is_first:
        table.register(rival, OTHER, owner=2)
    table.register(told(), SHOP, owner=1)
    if not is_first:
        table.owner_lost(1)
        table.register(rival, OTHER, owner=2)
        table.register(told(), SHOP, owner=1)
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: MASTER}
    # Each has its own sign of life, its own quota, and leaves by itself.
    assert table.refresh(MASTER, DataVersion(7, 1), SHOP, 900) == DataVersion(7, 1)
    assert table.expire(1001) == [(MASTER, 2)]
    table.register(rival, OTHER, owner=2, now_ms=1001)
    table.unregister(MASTER, "broker-b", OTHER, owner=2)
    assert sorted(table.clusters().broker_addr_table) == ["broker-a"]
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: MASTER}
    assert table.owner_lost(1) == [MASTER] and table.topics() == []


def test_a_name_stays_with_the_account_that_registered_it() -> None:
    table = make_table()
    table.register(told(), SHOP, owner=1)
    before = table.route("TopicA")
    for word in (told(REPLICA, 0), told(REPLICA, 7), told(counter=9, perm=4)):
        with pytest.raises(HeldError, match="account shop registered it"):
            table.register(word, OTHER, owner=2)
    with pytest.raises(HeldError, match="account shop registered it"):
        table.unregister(MASTER, "broker-a", OTHER, owner=2)
    assert table.route("TopicA") == before
    # Another connection of the same account may.
    table.unregister(MASTER, "broker-a", SHOP, owner=2)
    table.register(told(REPLICA, 0), OTHER, owner=2)
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: REPLICA}


@pytest.mark.parametrize("leaves", ["silent", "closed"])
def test_a_name_is_free_when_all_of_its_holder_is_gone(leaves: str) -> None:
    table = make_table()
    table.register(told(), SHOP, owner=1)
    table.register(told(REPLICA, 1), SHOP, owner=2, now_ms=900)
    rival = told("10.6.6.6:1", 0)
    if leaves == "silent":
        table.expire(1500)
    else:
        table.owner_lost(1)
    with pytest.raises(HeldError):
        table.register(rival, OTHER, owner=3, now_ms=1500)
    table.expire(2000)
    table.register(rival, OTHER, owner=3, now_ms=2000)
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: "10.6.6.6:1"}


def test_a_sign_of_life_of_another_account_is_none() -> None:
    table = make_table()
    table.register(told(), SHOP, owner=1)
    assert table.refresh(MASTER, DataVersion(7, 1), OTHER, 900) is None
    assert table.expire(1001) == [(MASTER, 1)]


@pytest.mark.parametrize(
    ("held", "says", "takes_it"),
    [(5, 6, True), (5, 5, False), (5, 4, False), (5, None, True), (None, 1, True)],
)
def test_a_leader_of_a_later_term_takes_the_masters_id(
    held: int | None, says: int | None, takes_it: bool
) -> None:
    table = make_table()
    table.register(told(term=held), SHOP, owner=1)
    if takes_it:
        table.register(told(REPLICA, 0, term=says), SHOP, owner=2)
    else:
        with pytest.raises(HeldError, match=f"leads term 5, {REPLICA} says {says}"):
            table.register(told(REPLICA, 0, term=says), SHOP, owner=2)
    master = REPLICA if takes_it else MASTER
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: master}
    # Not against itself: a group may begin anew.
    table.register(told(master, 0, term=1, counter=3), SHOP, owner=3)


def test_without_accounts_the_last_word_counts_whatever_the_term() -> None:
    table = make_table()
    table.register(told(term=9), owner=1)
    table.register(told(REPLICA, 0, term=1), owner=2)
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: REPLICA}


def test_the_latest_of_former_leaders_is_the_master_again() -> None:
    table = make_table()
    table.register(told(term=5), owner=1, now_ms=0)
    table.register(told(REPLICA, 0, term=7), owner=2, now_ms=1)
    table.register(told(term=5), owner=1, now_ms=2)
    table.register(told("10.0.0.3:10911", 0, term=6), owner=3, now_ms=3)
    table.owner_lost(3)
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: REPLICA}


def test_without_accounts_only_its_own_connection_takes_an_address_out() -> None:
    table = make_table()
    table.register(told(), owner=1)
    with pytest.raises(HeldError, match="another connection"):
        table.unregister(MASTER, "broker-a", ANYBODY, owner=2)
    # Under a name that it does not have, nothing is taken out, wholly or in part.
    table.unregister(MASTER, "nonsense", ANYBODY, owner=2)
    assert table.route("TopicA").broker_datas[0].broker_addrs == {0: MASTER}
    assert table.owner_lost(1) == [MASTER]
    assert table.clusters().broker_addr_table == {}


# Quotas.


def test_topics_count_for_who_brought_them_last() -> None:
    table = make_table(topics_per_registrant_max=3)
    table.register(told(MASTER, 0, "A", "B"), owner=1)
    second = told(REPLICA, 0, "A", "B", broker_name="broker-b")
    with pytest.raises(LimitError, match=r"topicsPerRegistrantMax of address 10\.0\.0\.7: 4 .* 3"):
        table.register(second, owner=1)
    host = Registrant(key="address 10.0.0.8")
    table.register(second, host, owner=2)
    # The other broker comes from there now, with all that it has.
    with pytest.raises(LimitError, match=r"10\.0\.0\.8: 4"):
        table.register(told(MASTER, 0, "A", "B", counter=2), host, owner=3)
    table.delete_topic("A")
    table.register(told(MASTER, 0, "B", counter=2), host, owner=3)
    table.register(told(broker_name="broker-c", address="10.0.0.3:1"), owner=1)
    with pytest.raises(LimitError, match=r"10\.0\.0\.8: 4"):
        table.register(told(MASTER, 0, "C", "D", counter=3), host, owner=3)
    table.owner_lost(3)
    table.register(told(MASTER, 0, "C", "D", counter=3), host, owner=3)
    # What is known counts once, however often it is told.
    for counter in range(4, 10):
        table.register(told(MASTER, 0, "C", "D", counter=counter), host, owner=3)


def test_entries_over_all_broker_names_are_bounded() -> None:
    table = make_table(topic_entries_max=3)
    table.register(told(MASTER, 0, "A", "B"), owner=1)
    second = told(REPLICA, 0, "A", "B", broker_name="broker-b")
    with pytest.raises(LimitError, match="topicEntriesMax: 4 is over the limit of 3"):
        table.register(second, Registrant(key="account root", is_free=True), owner=1)
    assert "broker-b" not in table.clusters().broker_addr_table


def test_brokers_and_clusters_of_a_registrant_are_bounded() -> None:
    table = make_table(brokers_per_registrant_max=2, clusters_per_registrant_max=1)
    table.register(told("h:1", broker_name="a"), owner=1)
    table.register(told("h:2", broker_name="b"), owner=1)
    third = told("h:3", broker_name="c", cluster_name="C2")
    with pytest.raises(LimitError, match=r"brokersPerRegistrantMax of address .*: 3 .* 2"):
        table.register(third, owner=1)
    with pytest.raises(LimitError, match=r"clustersPerRegistrantMax of address .*: 2 .* 1"):
        table.register(told("h:2", broker_name="b", cluster_name="C2"), owner=1)
    table.register(third, Registrant(key="account root", is_free=True), owner=2)
    table.owner_lost(1)
    table.register(told("h:2", broker_name="b", cluster_name="C2"), owner=1)


def test_nothing_is_kept_of_those_who_left() -> None:
    table = make_table(brokers_max=50)
    for owner in range(50):
        table.register(told(f"h:{owner}", 0, "A", broker_name=f"n{owner % 7}"), owner=owner)
    for owner in range(50):
        table.owner_lost(owner)
    assert table.topics() == [] and table.clusters().broker_addr_table == {}
    kept = {name: value for name, value in vars(table).items() if isinstance(value, dict)}
    assert not any(kept.values()), kept
    inner = vars(table)["_topics"]
    assert not any(value for value in vars(inner).values() if isinstance(value, dict))


MANY = tuple(f"many-{number:04}" for number in range(1000))


def test_a_broker_that_leaves_while_its_topics_are_taken_over_leaves_none_behind() -> None:
    table = make_table(topics_max=10_000)
    owner = object()
    steps = table.registering(told(MASTER, 0, *MANY), ANYBODY, owner, 0)
    while not table.topics():
        next(steps)
    table.owner_lost(owner)
    assert list(steps) == []
    while table.forget_some():
        pass
    assert table.topics() == []
    assert table._topics._count == 0 and table._topics._counts == {}


def test_what_a_broker_says_later_counts_though_its_first_topics_are_not_all_there() -> None:
    table = make_table(topics_max=10_000)
    steps = table.registering(told(MASTER, 0, *MANY, perm=2), ANYBODY, "first", 0)
    while not table.topics():
        next(steps)
    table.register(told(MASTER, 0, *MANY, counter=2, perm=4), ANYBODY, "second", 1)
    assert list(steps) == []
    assert {table.route(topic).queue_datas[0].perm for topic in MANY} == {4}


def test_who_took_the_name_meanwhile_holds_it() -> None:
    table = make_table(topics_max=10_000)
    steps = table.registering(told(MASTER, 0, *MANY), SHOP, "first", 0)
    next(steps)
    table.register(told(REPLICA, 0, "own"), OTHER, "second", 1)
    with pytest.raises(HeldError):
        list(steps)
    assert table.topics() == ["own"]


def test_a_broker_that_left_is_in_no_route_before_its_topics_are_forgotten() -> None:
    table = make_table(topics_max=10_000)
    table.register(told(MASTER, 0, *MANY), ANYBODY, "first", 0)
    table.register(told(REPLICA, 0, *MANY, broker_name="broker-b"), ANYBODY, "second", 0)
    version = table.version
    table.owner_lost("first")
    for topic in MANY:
        assert [data.broker_name for data in table.route(topic).queue_datas] == ["broker-b"]
    table.owner_lost("second")
    assert table.version > version
    for topic in MANY:
        with pytest.raises(RouteNotFoundError):
            table.route(topic)
    table.delete_topic(MANY[-1], "C1")
    version = table.version
    while table.forget_some():
        pass
    assert table.topics() == [] and table.version > version


def test_topics_that_were_not_all_taken_over_are_brought_again() -> None:
    """A name server that said "I have this version" would lack them until a topic changes."""
    table = make_table(topics_max=10_000)
    registration = told(MASTER, 0, *MANY)
    steps = table.registering(registration, ANYBODY, "first", 0)
    while not table.topics():
        next(steps)
    # Its connection is closing.
    steps.close()
    version = registration.data_version
    assert table.refresh(MASTER, version, ANYBODY, 0) is None
    table.register(registration, ANYBODY, "second", 1)
    assert len(table.topics()) == len(MANY)
    assert table.refresh(MASTER, version, ANYBODY, 1) == version


def test_a_former_master_says_nothing_more_of_the_topics() -> None:
    table = make_table(topics_max=10_000)
    steps = table.registering(told(MASTER, 0, *MANY, perm=2), ANYBODY, "first", 0)
    while not table.topics():
        next(steps)
    table.register(told(REPLICA, 0, *MANY, perm=6), ANYBODY, "second", 1)
    assert list(steps) == []
    assert {table.route(topic).queue_datas[0].perm for topic in MANY} == {6}


def test_topics_that_two_bring_at_once_count_once() -> None:
    table = make_table(topics_max=1500)
    steps = table.registering(told(MASTER, 0, *MANY), SHOP, "first", 0)
    next(steps)
    table.register(told(REPLICA, 0, *MANY, broker_name="broker-b"), OTHER, "second", 0)
    assert list(steps) != [] and len(table.topics()) == len(MANY)


def test_a_former_master_that_leads_again_brings_all_of_its_topics_again() -> None:
    table = make_table(topics_max=10_000)
    registration = told(MASTER, 0, *MANY)
    steps = table.registering(registration, ANYBODY, "first", 0)
    while not table.topics():
        next(steps)
    table.register(told(REPLICA, 0, "own"), ANYBODY, "second", 1)
    assert list(steps) == []
    table.owner_lost("second")
    assert table.route("own").broker_datas[0].broker_addrs == {0: MASTER}
    assert table.refresh(MASTER, registration.data_version, ANYBODY, 2) is None
    table.register(registration, ANYBODY, "first", 2)
    assert set(table.topics()) == {*MANY, "own"}


def test_lists_that_were_made_while_topics_are_taken_over_are_made_anew() -> None:
    table = make_table(topics_max=10_000)
    steps = table.registering(told(MASTER, 0, *MANY), ANYBODY, "first", 0)
    while not table.topics():
        next(steps)
    version, count = table.version, len(table.topics())
    assert list(steps) != []
    assert count < len(table.topics()) and version < table.version
