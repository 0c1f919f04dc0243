"""A follower that is far behind is brought up at a bounded rate, and always arrives."""

from ledgermq.dledger.messages import AppendRequest
from ledgermq.dledger.throttle import NEAR_COUNT, PushThrottle
from tests.unit.dledger.test_dispatcher import Desk


def test_near_followers_get_no_allowance() -> None:
    throttle = PushThrottle(1000, 100)
    assert throttle.is_far(1000, NEAR_COUNT + 1)
    assert not throttle.is_far(999, NEAR_COUNT + 1)
    assert not throttle.is_far(1000, NEAR_COUNT)


def test_each_second_has_its_allowance() -> None:
    throttle = PushThrottle(0, 100)
    taken = [throttle.take(40, 5000, now_ms) for now_ms in (0, 10, 20, 30, 999)]
    assert taken == [True, True, True, False, False]
    assert throttle.next_ms == 1000
    assert throttle.take(1000, 5005, 1000), "a frame may exceed what is left"
    assert not throttle.take(1, 5005, 1001)


def test_a_log_that_grows_faster_than_the_quota_raises_it() -> None:
    throttle = PushThrottle(0, 100)
    assert throttle.take(100, 5000, 0)
    sent = 0
    while throttle.take(100, 8000, 1000):
        sent += 100
    assert sent == 2 * 3000


def test_a_log_that_hardly_grows_lifts_the_quota_for_a_second() -> None:
    throttle = PushThrottle(0, 100)
    assert throttle.take(100, 5000, 0)
    assert not throttle.take(1, 5000, 999), "nothing is known of the second before"
    assert all(throttle.take(1 << 30, 5004, 1000 + number) for number in range(1000))
    assert throttle.take(100, 5009, 2000), "clients are back"
    assert not throttle.take(1, 5009, 2001)


def test_leader_holds_back_what_a_far_follower_lacks() -> None:
    quota_bytes = 4096
    desk = Desk([1] * 2000, throttle_far_bytes=1, throttle_quota_bytes=quota_bytes)
    desk.propose()
    desk.answer(desk.only_append(), 406, -1)
    far_index = desk.log.last_index - NEAR_COUNT
    sent_bytes: dict[int, int] = {}
    match_index = -1
    while match_index < desk.log.last_index:
        due_ms = min(desk.pusher.deadline_ms(), desk.now_ms + 60_000)
        if due_ms > desk.now_ms:
            desk.now_ms = due_ms
            if match_index < far_index:
                # Clients send on.
                desk.propose(5)
        for push in desk.pushes():
            assert isinstance(push, AppendRequest)
            if push.entries.first_index < far_index:
                second = int(desk.now_ms // 1000)
                sent_bytes[second] = sent_bytes.get(second, 0) + len(push.entries.data)
            match_index = push.entries.last_index
            desk.answer(push, 200, match_index)
    assert len(sent_bytes) >= 3, "held back"
    frame_bytes = max(sent_bytes.values()) - quota_bytes
    assert frame_bytes <= 4096, "no more than one frame above the allowance"


def test_held_back_follower_is_not_asked_about_in_a_loop() -> None:
    """The deadline lies ahead while the allowance is used up, also with frames in flight."""
    desk = Desk([1] * 2000, throttle_far_bytes=1, throttle_quota_bytes=1)
    desk.propose()
    desk.answer(desk.only_append(), 406, -1)
    (push,) = desk.pushes()
    assert isinstance(push, AppendRequest)
    desk.answer(push, 200, push.entries.last_index)
    desk.now_ms += 1
    assert desk.pushes() == []
    assert desk.pusher.deadline_ms() == 1000
    desk.propose()
    assert len(desk.pushes(after_ms=999)) == 1
