"""ReactorThread: its end, whoever wakes it."""

from ledgermq.testing.reactor_thread import ReactorThread
from tests.waiting import wait_until


def test_a_reactor_that_stops_before_it_is_woken_ends_in_order() -> None:
    """Awake for another reason, it takes the call to stop, and is gone when the waking comes."""
    thread = ReactorThread("under-test")
    assert thread.call(lambda: 7) == 7
    waker = thread.reactor.waker

    def wake_late() -> None:
        waker.wakeUp()
        wait_until(lambda: not thread.reactor.running, what="the end of the reactor")
        thread._thread.join()
        waker.wakeUp()

    thread.reactor.wakeUp = wake_late
    thread.stop()
    assert thread.reactor.waker is None
    # Its pipe is closed.
    assert not hasattr(waker, "i")
    thread.stop()
