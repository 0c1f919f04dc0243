"""What the broker's own program sets for its whole process, and a library never does."""

import subprocess
import sys
from pathlib import Path

import pytest


def printed_by(program: str, *arguments: str) -> str:
    """What a process of its own prints that runs this program."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


def test_a_keeper_leaves_the_switch_interval_of_its_users_process_alone() -> None:
    program = """
import sys
from twisted.internet import reactor
from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.store.keeper import Keeper
before = sys.getswitchinterval()
keeper = Keeper(reactor)
def begin():
    done = keeper.run(lambda: DiskJob(lambda: None))
    done.addCallback(lambda _: keeper.stop()).addCallback(lambda _: reactor.stop())
reactor.callWhenRunning(begin)
reactor.run()
print(sys.getswitchinterval() == before)
"""
    assert printed_by(program) == "True"


def test_the_broker_program_has_threads_wait_for_less_than_a_disk_does(tmp_path: Path) -> None:
    program = """
import sys
from ledgermq.cli import broker, main
broker.run_program = lambda service, **_: print(sys.getswitchinterval()) or 0
main.main(["broker", "storePathRootDir=" + sys.argv[1], "listenPort=1"])
"""
    assert printed_by(program, str(tmp_path)) == "0.0005"


_TIMERS = """
import sys
import time
from pathlib import Path
from tests.fault.hosts import moved_clock
wall = moved_clock.WallClock(Path(sys.argv[1]))
moved_clock.move_clock(sys.argv[1])
from ledgermq.cli import program
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater
reactor = program.reactor
OWN_CLOCK
fired = []

class Service:
    exit_code = 0
    def start(self):
        reactor.callLater(3600, fired.append, "an hour's timer")
        return Deferred.fromCoroutine(self.look())
    def stop(self):
        return succeed(None)
    async def look(self):
        begun = time.time()
        wall.set(86_400)
        assert time.time() - begun > 80_000
        await deferLater(reactor, 0.05, lambda: None)
        before, now, after = time.monotonic(), reactor.seconds(), time.monotonic()
        print(fired, before <= now <= after)
        wall.set(-86_400)
        await deferLater(reactor, 0.05, lambda: None)
        print("a timer rang")
        reactor.callLater(0, reactor.stop)

sys.exit(program.run_program(Service(), until_stdin_closes=False, expected=()))
"""


def test_timers_of_a_program_do_not_go_by_the_wall_clock(tmp_path: Path) -> None:
    program = _TIMERS.replace("OWN_CLOCK", "")
    assert printed_by(program, str(tmp_path / "clock")) == "[] True\na timer rang"


def test_timers_that_went_by_the_wall_clock_would_be_seen(tmp_path: Path) -> None:
    program = _TIMERS.replace("OWN_CLOCK", "reactor.seconds = time.time")
    program = program.replace("wall.set(-86_400)", "")
    found = printed_by(program, str(tmp_path / "clock"))
    assert found == '["an hour\'s timer"] False\na timer rang'


_FAILING_END = """
import sys
from ledgermq.cli import program
from twisted.internet.defer import fail, succeed

class Service:
    exit_code = 0
    def start(self):
        self.exit_code = program.EXIT_DISK_FAILED
        program.reactor.callLater(0, program.reactor.stop)
        return succeed(None)
    def stop(self):
        return fail(OSError(30, "Read-only file system"))

print(program.run_program(Service(), until_stdin_closes=False, expected=()))
"""


def test_a_stop_that_fails_does_not_hide_that_the_disk_has_failed() -> None:
    assert printed_by(_FAILING_END) == "74"


_REPAIR = """
import sys
from pathlib import Path
from ledgermq.cli import broker, main
from twisted.internet.defer import fail, succeed

class Service:
    made = []
    role = address = ledger_address = ""
    is_serving = has_failed = False
    broker_id, registered_with = -1, []
    class leadership:
        alarm = failure = None
    def __init__(self, config, reactor, *, on_ready, on_damage, formats, run_opening):
        self.number = len(self.made)
        self.made.append(self)
        self.on_damage = on_damage
    def start(self):
        if self.number:
            return fail(ValueError("still damaged"))
        broker.reactor.callLater(0, self.on_damage)
        # A program that would live on for ever ends here.
        broker.reactor.callLater(20, broker.reactor.stop)
        return succeed(None)
    def stop(self):
        return STOPPED

broker.BrokerService = Service
words = ["broker", "storePathRootDir=" + sys.argv[1], "listenPort=1"]
print("exit", main.main(words), len(Service.made))
"""


@pytest.mark.parametrize(
    ("stopped", "end"),
    [("succeed(None)", "exit 74 2"), ('fail(OSError(30, "Read-only"))', "exit 74 1")],
    ids=["the start fails", "the stop fails"],
)
def test_a_repair_that_fails_ends_the_program_with_a_code(
    tmp_path: Path, stopped: str, end: str
) -> None:
    program = _REPAIR.replace("STOPPED", stopped)
    assert printed_by(program, str(tmp_path)).splitlines()[-1] == end
