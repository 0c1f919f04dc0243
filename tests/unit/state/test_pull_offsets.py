"""Up to where groups have pulled: noted, forgotten with their group or topic, bounded."""

from ledgermq.state.pull_offsets import PullOffsets
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import Parts


def test_last_pull_is_known_for_each_queue() -> None:
    pulled = PullOffsets()
    assert pulled.find("g", "T", 0) == 0
    pulled.of("g", "T")[0] = 5
    pulled.of("g", "T")[1] = 7
    pulled.of("h", "T")[0] = 9
    assert [pulled.find("g", "T", n) for n in range(3)] == [5, 7, 0]
    assert pulled.find("h", "T", 0) == 9


def test_pairs_are_bounded_and_removals_make_room() -> None:
    pulled = PullOffsets(pairs_max=2)
    for topic in ("T", "U", "V"):
        pulled.of("g", topic)[0] = 5
    assert [pulled.find("g", topic, 0) for topic in ("T", "U", "V")] == [5, 5, 0]
    pulled.remove_topic("T")
    pulled.remove_topic("none")
    pulled.of("g", "V")[0] = 6
    assert [pulled.find("g", topic, 0) for topic in ("T", "U", "V")] == [0, 5, 6]
    pulled.remove_group("g")
    pulled.remove_group("none")
    pulled.of("h", "T")[0] = 1
    pulled.of("h", "U")[0] = 2
    assert (pulled.find("h", "U", 0), pulled.find("g", "U", 0)) == (2, 0)


def test_removed_topics_and_groups_are_forgotten_by_leader_and_follower() -> None:
    leader, follower = Parts().lead(), Parts()
    state = leader.state
    state.put_topic(TopicConfig("T"))
    state.put_group(SubscriptionGroup("g"))
    for parts in (leader, follower):
        for group, topic in (("g", "U"), ("h", "T"), ("h", "U")):
            parts.state.pulled.of(group, topic)[0] = 5
    leader.is_prompt = False
    state.remove_topic("T")
    state.remove_group("g", False)
    for index, body in enumerate(leader.commit_state()):
        follower.state.apply(body, index)
    for parts in (leader, follower):
        pulled = parts.state.pulled
        assert [pulled.find(*place, 0) for place in (("g", "U"), ("h", "T"))] == [0, 0]
        assert pulled.find("h", "U", 0) == 5


def test_groups_that_nobody_knows_are_forgotten_some_at_a_time() -> None:
    """Followers answer pulls of any group."""
    pulled = PullOffsets(pairs_max=25_000)
    for number in range(25_000):
        pulled.of(f"g{number}", "T")[0] = 1
    known = {f"g{number}" for number in range(0, 25_000, 1000)}
    for _ in range(3):
        pulled.forget_unknown(known.__contains__)
    assert pulled.find("g24000", "T", 0) == 1 and pulled.find("g24001", "T", 0) == 0
    # There is room for as many.
    for number in range(25_000 - len(known) + 1):
        pulled.of(f"h{number}", "T")[0] = 1
    assert pulled.find("h24974", "T", 0) == 1 and pulled.find("h24975", "T", 0) == 0
