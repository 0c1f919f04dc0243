"""What the broker's own program sets for its whole process, and a library never does."""

import subprocess
import sys
from pathlib import Path


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
