"""The keeper: what is done in which order, who waits for which job, and what an error ends."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from ledgermq.dledger.disk_job import Begin, DiskJob, do_now, joined
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.dledger.store.keeper import GroupCommit, Keeper
from tests.unit.dledger.hand_pool import DirectReactor, HandPool


class KeeperTests(SynchronousTestCase):
    """With a pool and a reactor in the test's hand."""

    def setUp(self) -> None:
        self.pool = HandPool()
        self.done: list[str] = []
        self.keeper = Keeper(DirectReactor(), self.pool)  # type: ignore[arg-type]

    def job(self, name: str, error: Exception | None = None) -> Begin:
        def run() -> None:
            self.done.append(f"run {name}")
            if error is not None:
                raise error

        def begin() -> DiskJob:
            self.done.append(f"begin {name}")
            return DiskJob(run, lambda: self.done.append(f"end {name}"))

        return begin

    def steps(self, name: str, count: int) -> Iterator[Callable[[], None]]:
        for number in range(count):
            yield lambda number=number: self.done.append(f"{name}{number}")

    def test_a_job_has_ended_when_its_deferred_fires(self) -> None:
        ended = self.keeper.run(self.job("a"))
        self.assertNoResult(ended)
        self.assertEqual(self.done, ["begin a"])
        self.pool.finish_one()
        self.successResultOf(ended)
        self.assertEqual(self.done, ["begin a", "run a", "end a"])

    def test_jobs_are_begun_when_the_one_before_has_ended(self) -> None:
        ended = [self.keeper.run(self.job(name)) for name in "abc"]
        self.assertEqual(self.done, ["begin a"])
        self.pool.finish_all()
        for deferred in ended:
            self.successResultOf(deferred)
        expected = [f"{part} {name}" for name in "abc" for part in ("begin", "run", "end")]
        self.assertEqual(self.done, expected)

    def test_the_next_job_begins_before_the_answer_goes_out(self) -> None:
        self.keeper.run(self.job("a")).addCallback(lambda _: self.done.append("answer a"))
        self.keeper.run(self.job("b"))
        self.pool.finish_one()
        self.assertEqual(self.done[2:], ["end a", "begin b", "answer a"])

    def test_a_begin_that_finds_nothing_to_do_waits_for_its_turn_only(self) -> None:
        self.successResultOf(self.keeper.run(lambda: None))
        self.keeper.run(self.job("a"))
        nothing = self.keeper.run(lambda: None)
        self.assertNoResult(nothing)
        self.pool.finish_one()
        self.successResultOf(nothing)

    def test_a_second_job_of_an_end_comes_before_all_others(self) -> None:
        second = DiskJob(lambda: self.done.append("second"))
        first = DiskJob(lambda: self.done.append("first"), lambda: second)
        ended = self.keeper.run(lambda: first)
        self.keeper.run(self.job("b"))
        self.pool.finish_one()
        self.assertNoResult(ended)
        self.pool.finish_all()
        self.successResultOf(ended)
        self.assertEqual(self.done, ["first", "second", "begin b", "run b", "end b"])

    def test_no_room_fails_one_job_alone(self) -> None:
        full = self.keeper.run(self.job("a", DiskFullError("file", 1)))
        other = self.keeper.run(self.job("b"))
        self.pool.finish_all()
        self.failureResultOf(full, DiskFullError)
        self.successResultOf(other)
        self.assertNotIn("end a", self.done)

    def test_any_other_error_is_final_for_all(self) -> None:
        failing = self.keeper.run(self.job("a", OSError(5, "input/output error")))
        waiting = [self.keeper.run(self.job("b")), self.keeper.run_steps(self.steps("s", 2))]
        self.pool.finish_one()
        for deferred in (failing, *waiting, self.keeper.run(self.job("c"))):
            self.failureResultOf(deferred, OSError)
        self.assertEqual(self.done, ["begin a", "run a"])
        self.assertEqual(self.pool.work, [])

    def test_an_error_of_a_begin_or_an_end_is_final_too(self) -> None:
        for stage in ("begin", "end"):
            with self.subTest(stage):
                keeper = Keeper(DirectReactor(), HandPool(holds=False))  # type: ignore[arg-type]

                def fail() -> Any:
                    raise ValueError("a mistake of the program")

                begin = fail if stage == "begin" else lambda: DiskJob(lambda: None, fail)
                self.failureResultOf(keeper.run(begin), ValueError)
                self.failureResultOf(keeper.run(self.job("b")), ValueError)

    def test_steps_give_way_to_jobs_every_few(self) -> None:
        stepped = self.keeper.run_steps(self.steps("s", 10))
        ended = self.keeper.run(self.job("a"))
        self.pool.finish_one()
        self.assertEqual(self.done[-1], "begin a")
        self.assertLess(len(self.done), 10)
        self.pool.finish_one()
        self.successResultOf(ended)
        self.assertNoResult(stepped)
        self.pool.finish_all()
        self.successResultOf(stepped)
        self.assertEqual(
            [line for line in self.done if line[0] == "s"], [f"s{i}" for i in range(10)]
        )

    def test_jobs_without_end_do_not_keep_steps_from_theirs(self) -> None:
        stepped = self.keeper.run_steps(self.steps("s", 10))

        def again(_: None) -> None:
            if not stepped.called and len(self.done) < 1000:
                self.keeper.run(self.job("a")).addCallback(again)

        again(None)
        self.pool.finish_all()
        self.successResultOf(stepped)
        self.assertLess(len(self.done), 100)

    def test_stop_waits_for_what_was_asked(self) -> None:
        ended = [self.keeper.run(self.job("a")), self.keeper.run_steps(self.steps("s", 9))]
        stopped = [self.keeper.stop(), self.keeper.stop()]
        self.pool.finish_one()
        self.assertNoResult(stopped[0])
        self.pool.finish_all()
        for deferred in (*ended, *stopped):
            self.successResultOf(deferred)

    def test_stop_of_an_idle_keeper_is_done_at_once(self) -> None:
        self.successResultOf(self.keeper.stop())
        self.successResultOf(self.keeper.stop())


class GroupCommitTests(SynchronousTestCase):
    """Who shares a sync with whom."""

    def setUp(self) -> None:
        self.pool = HandPool()
        self.keeper = Keeper(DirectReactor(), self.pool)  # type: ignore[arg-type]
        # What is written, and what each sync covered.
        self.written = 0
        self.covered: list[int] = []
        self.commit = GroupCommit(self.keeper, self.begin)

    def begin(self) -> DiskJob:
        written = self.written
        return DiskJob(lambda: None, lambda: self.covered.append(written))

    def write(self) -> "Deferred[None]":
        self.written += 1
        return self.commit.request()

    def test_requests_made_during_a_sync_share_the_next(self) -> None:
        first = self.write()
        later = [self.write() for _ in range(5)]
        self.pool.finish_one()
        self.successResultOf(first)
        for request in later:
            self.assertNoResult(request)
        self.pool.finish_one()
        for request in later:
            self.successResultOf(request)
        self.assertEqual(self.covered, [1, 6])

    def test_a_sync_covers_what_is_written_until_it_begins(self) -> None:
        self.keeper.run(lambda: DiskJob(lambda: None))
        requests = [self.write(), self.write()]
        self.pool.finish_all()
        for request in requests:
            self.successResultOf(request)
        self.assertEqual(self.covered, [2])

    def test_a_request_made_by_an_answer_waits_for_a_sync_of_its_own(self) -> None:
        made: list[Deferred[None]] = []
        self.write().addCallback(lambda _: made.append(self.write()))
        self.pool.finish_one()
        self.assertNoResult(made[0])
        self.pool.finish_one()
        self.successResultOf(made[0])
        self.assertEqual(self.covered, [1, 2])

    def test_an_error_reaches_each_who_waits(self) -> None:
        def begin() -> DiskJob:
            def run() -> None:
                raise OSError(5, "input/output error")

            return DiskJob(run)

        commit = GroupCommit(self.keeper, begin)
        requests = [commit.request() for _ in range(3)]
        self.pool.finish_all()
        for request in (*requests, commit.request()):
            self.failureResultOf(request, OSError)


def test_what_syncs_take_lately_follows_a_disk_that_becomes_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0

    def sync(seconds: float) -> None:
        def run() -> None:
            nonlocal now_s
            now_s += seconds

        do_now(keeper.timed(DiskJob(run)))

    monkeypatch.setattr(time, "perf_counter", lambda: now_s)
    keeper = Keeper(DirectReactor(), HandPool())  # type: ignore[arg-type]
    sync(0.001)
    assert keeper.recent_sync_s < 0.005
    for _ in range(20):
        sync(0.3)
    assert 0.2 < keeper.recent_sync_s < 0.3
    assert keeper.sync_seconds.count == 21


def test_joined_jobs_are_run_in_order_and_then_ended() -> None:
    done: list[str] = []

    def job(name: str) -> DiskJob:
        return DiskJob(lambda: done.append(f"run {name}"), lambda: done.append(f"end {name}"))

    do_now(joined([None, job("a"), None, job("b")]))
    assert done == ["run a", "run b", "end a", "end b"]
    assert joined([None, None]) is None
