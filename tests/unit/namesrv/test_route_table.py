"""The route table's rules, with values only."""

from __future__ import annotations

import pytest

from ledgermq.namesrv.errors import LimitError, RouteNotFoundError
from ledgermq.namesrv.route_table import Registration, RouteTable
from ledgermq.protocol.route import DataVersion, TopicConfig

MASTER = "10.0.0.1:10911"
REPLICA = "10.0.0.2:10911"


def make_table(topics_max: int = 100, brokers_max: int = 10) -> RouteTable:
    return RouteTable(expires_after_ms=1000, topics_max=topics_max, brokers_max=brokers_max)


def told(
    address: str = MASTER,
    broker_id: int = 0,
    *topics: str,
    counter: int = 1,
    broker_name: str = "broker-a",
    cluster_name: str = "C1",
    perm: int = 6,
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
    table.unregister(MASTER, "broker-a", 0)
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


def test_registration_on_a_new_connection_survives_the_end_of_the_old_one() -> None:
    table = make_table()
    table.register(told(), owner=1, now_ms=0)
    table.register(told(), owner=2, now_ms=1)
    assert table.owner_lost(1) == []
    assert table.topics() == ["TopicA"]


def test_silent_broker_expires_and_a_version_query_keeps_it() -> None:
    table = make_table()
    table.register(told(), owner=1, now_ms=0)
    assert table.refresh(MASTER, DataVersion(timestamp=7, counter=1), 900) is not None
    assert table.expire(1500) == []
    assert table.refresh(MASTER, DataVersion(timestamp=7, counter=9), 1800) is not None
    assert table.expire(1901) == [(MASTER, 1)]
    assert table.refresh(MASTER, DataVersion(timestamp=7, counter=1), 2000) is None


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
