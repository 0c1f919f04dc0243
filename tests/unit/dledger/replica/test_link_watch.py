"""When a link counts as dead, and how patience grows with a peer that is slow."""

from ledgermq.dledger.replica.link_watch import LinkWatch


def looks_until_dead(watch: LinkWatch, received_count: int = 0) -> int:
    """Opens a link on which something is asked and nothing comes; counts the looks at it."""
    watch.opened()
    watch.asked()
    for look in range(1, 100):
        if watch.is_dead(received_count):
            return look
    raise AssertionError("never")


def test_link_on_which_nothing_is_owed_may_be_silent() -> None:
    watch = LinkWatch(4)
    watch.opened()
    assert not any(watch.is_dead(0) for _ in range(100))


def test_link_is_dead_when_an_answer_is_owed_for_some_looks() -> None:
    assert looks_until_dead(LinkWatch(4)) == 4


def test_whatever_comes_is_a_sign_of_life_and_settles_what_was_owed() -> None:
    watch = LinkWatch(2)
    watch.opened()
    for count in range(1, 20):
        watch.asked()
        assert not watch.is_dead(count - 1)
        assert not watch.is_dead(count)
    assert not any(watch.is_dead(19) for _ in range(100))


def test_links_to_a_slow_peer_are_given_up_later_each_time_up_to_a_limit() -> None:
    watch = LinkWatch(4)
    assert [looks_until_dead(watch) for _ in range(5)] == [4, 8, 16, 20, 20]


def test_link_that_is_answered_for_a_while_ends_the_patience() -> None:
    watch = LinkWatch(4)
    for _ in range(3):
        looks_until_dead(watch)
    watch.opened()
    for count in range(1, 11):
        watch.asked()
        assert not watch.is_dead(count)
    assert looks_until_dead(watch) == 4


def test_answers_that_come_late_do_not_end_it() -> None:
    watch = LinkWatch(2)
    looks_until_dead(watch)
    watch.opened()
    for count in range(1, 31):
        watch.asked()
        assert not watch.is_dead(count - 1)
        assert not watch.is_dead(count)
    assert looks_until_dead(watch) == 4


def test_more_may_be_borne_of_peers_of_another_kind() -> None:
    watch = LinkWatch(4)
    watch.bear(7)
    assert looks_until_dead(watch) == 7
    watch.bear(4)
    assert looks_until_dead(watch) == 14
