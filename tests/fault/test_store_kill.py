"""Real processes: the writer of a store is killed, again and again."""

import subprocess
import sys
from pathlib import Path

from crc32c import crc32c

from ledgermq.dledger.entry import EntryCodec, EntryId
from tests.fault.store_writer import body_of, make_store

ROUNDS = 4
SEED = 3


def test_what_a_killed_writer_reported_is_there(tmp_path: Path) -> None:
    directory = str(tmp_path / "dledger-n0")
    reported = -1
    for turn in range(ROUNDS):
        reported = max(reported, written_until_killed(directory, lines=5 + 9 * turn))
        store = make_store(directory)
        report = store.open()
        assert report.last_index >= reported
        assert report.committed_index <= report.last_index
        # A kill leaves the page cache as it was: at most one entry may be half written.
        previous: EntryId | None = None
        chain, index = 0, 0
        while index <= store.last_index:
            run = store.read(index, 1 << 20)
            run = EntryCodec(crc32c).parse(
                run.data, position=run.position, previous=previous, previous_chain_crc=chain
            )
            for i, body in enumerate(run.bodies()):
                assert body == body_of(index + i, SEED)
            previous, chain, index = run.last_id, run.last_chain_crc, run.last_index + 1
        store.close()


def written_until_killed(directory: str, lines: int) -> int:
    """Runs the writer until it printed so many lines, kills it, and returns the last index."""
    command = [sys.executable, "-m", "tests.fault.store_writer", directory, str(SEED)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            for _ in range(lines):
                line = process.stdout.readline()
        finally:
            process.kill()
        rest = process.stdout.read().splitlines()
    return int([line, *rest][-1])
