"""The thread of the keeper: in order, one at a time, and its end."""

import threading

from twisted.python.failure import Failure

from ledgermq.dledger.store.disk_thread import DiskThread

PATIENCE_S = 30.0


def test_functions_run_in_their_order_and_in_one_thread() -> None:
    thread, told = DiskThread("keeper"), list[tuple[bool, object]]()
    names = []

    def job(number: int) -> int:
        names.append(threading.current_thread().name)
        return number

    for number in range(100):
        thread.callInThreadWithCallback(lambda *answer: told.append(answer), job, number)
    thread.stop()
    assert told == [(True, number) for number in range(100)]
    assert set(names) == {"keeper"}


def test_what_a_function_raises_is_told_and_the_next_one_runs() -> None:
    thread, told = DiskThread("keeper"), list[tuple[bool, object]]()

    def fail() -> None:
        raise OSError(5, "Input/output error")

    thread.callInThreadWithCallback(lambda *answer: told.append(answer), fail)
    thread.callInThreadWithCallback(lambda *answer: told.append(answer), lambda: 7)
    thread.stop()
    (is_done, failure), after = told
    assert not is_done and isinstance(failure, Failure) and failure.check(OSError)
    assert after == (True, 7)


def test_a_stop_waits_for_what_runs_and_leaves_no_thread() -> None:
    thread, told = DiskThread("keeper-of-this-test"), list[tuple[bool, object]]()
    begun, may_end = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        assert may_end.wait(PATIENCE_S)

    thread.callInThreadWithCallback(lambda *answer: told.append(answer), job)
    assert begun.wait(PATIENCE_S)
    threading.Timer(0.05, may_end.set).start()
    thread.stop()
    assert told == [(True, None)]
    assert all(one.name != "keeper-of-this-test" for one in threading.enumerate())
    thread.stop()
