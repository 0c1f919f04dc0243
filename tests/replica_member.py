"""A replica as a process of its own, for tests that kill it: `python -m tests.replica_member ...`.

Each line of standard input is a command, answered by one line:

    counts                 counts yes, when it knows a leader and votes; else counts no
    state                  state ROLE LEADER TERM FIRST LAST COMMIT  (LEADER is - when unknown)
    append COUNT PREFIX    appended COUNT_DONE COUNT_FAILED, when the outcome of all is known
    leave COUNT PREFIX     left COUNT; what becomes of them is not told
    digest                 digest COUNT SHA256, of the bodies of all entries
    stop                   stopped, when all files are closed

With --feed the leader appends on its own as long as it leads, bodies "RUN:NUMBER:..." where RUN is
its process id, and prints `acked RUN FIRST END` for the numbers that were committed.
"""

import argparse
import gc
import hashlib
import random
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet import stdio
from twisted.logger import globalLogBeginner, textFileLogObserver
from twisted.protocols.basic import LineReceiver

from ledgermq.dledger.config import MIB
from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.errors import LedgerError
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.replica import FlushDiskType, Replica, ReplicaConfig
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.dledger.store.vote_file import VoteFile
from ledgermq.protocol.checksum import crc32c

GROUP = "test-group"
SEGMENT_BYTES = 1 << 20
INDEX_SEGMENT_BYTES = 32 * 4096
IN_FLIGHT = 64
FILLER = b"x" * 200

reactor: Any = _reactor


class Appends:
    """One `append` command: how many of its entries are still open."""

    def __init__(self, end_index: int, term: int, count: int) -> None:
        self.end_index = end_index
        self.term = term
        self.count = count


class MemberProcess(LineReceiver):
    """Reads commands, is the Applier of its replica, prints answers."""

    delimiter = b"\n"

    def __init__(self, options: argparse.Namespace) -> None:
        directory = Path(options.directory) / f"dledger-{options.self_id}"
        directory.mkdir(parents=True, exist_ok=True)
        codec, file_system = EntryCodec(crc32c), RealFileSystem()
        self.store = DLedgerMmapFileStore(
            file_system, str(directory), SEGMENT_BYTES, INDEX_SEGMENT_BYTES, codec
        )
        self.store.open()
        self.replica = Replica(
            ReplicaConfig(
                group=GROUP,
                self_id=options.self_id,
                peers=options.peers,
                flush_disk_type=FlushDiskType(options.flush),
                founder_ids=tuple(options.founders),
                throttle_far_bytes=options.throttle_far_bytes,
                throttle_quota_bytes=options.throttle_quota_bytes,
            ),
            reactor,
            self.store,
            VoteFile(file_system, str(directory), options.self_id),
            codec,
            random.Random(),
            self,
            lambda term, last: b"term %d opens" % term,
        )
        self.waiting: deque[Appends] = deque()
        self.feeds = options.feed
        self.run_id = options.run_id
        # First index of what this leader feeds, and the number of the body there.
        self.fed: deque[tuple[int, int, int]] = deque()
        self.fed_count = 0

    def connectionMade(self) -> None:
        self.replica.start().addErrback(self._not_started)

    def _not_started(self, failure: Any) -> None:
        self._say(f"failed {failure.getErrorMessage()}")
        self._end()

    def _end(self) -> None:
        """Closes the pipes when all is written, which ends the process."""
        assert self.transport is not None
        self.transport.loseConnection()

    def lineReceived(self, line: bytes) -> None:
        command, *words = line.decode().split()
        if command == "state":
            replica, store = self.replica, self.store
            self._say(
                f"state {replica.role.name} {replica.leader_id or '-'} {replica.term}"
                f" {store.first_index} {store.last_index} {replica.commit_index}"
            )
        elif command == "counts":
            is_whole = self.replica.leader_id is not None and not self.replica.is_recovering
            self._say(f"counts {'yes' if is_whole else 'no'}")
        elif command == "birth":
            self._say(f"birth {self.replica.membership.bootstrap}")
        elif command == "append":
            self._append(int(words[0]), words[1].encode())
        elif command == "leave":
            self.replica.propose([words[1].encode() + b"%d" % i for i in range(int(words[0]))])
            self._say(f"left {words[0]}")
        elif command == "digest":
            self._tell_digest()
        elif command == "stop":
            self.replica.stop().addCallback(self._stopped)

    def _append(self, count: int, prefix: bytes) -> None:
        try:
            runs = self.replica.propose([prefix + b"%d" % i for i in range(count)])
        except LedgerError:
            self._say(f"appended 0 {count}")
        else:
            self.waiting.append(Appends(runs[-1].last_index + 1, self.replica.term, count))

    def _tell_digest(self) -> None:
        store, digest = self.store, hashlib.sha256()
        index = store.first_index
        while index <= store.last_index:
            run = store.read(index, SEGMENT_BYTES)
            for body in run.bodies():
                digest.update(body)
            index = run.last_index + 1
        count = store.last_index + 1 - store.first_index
        self._say(f"digest {count} {digest.hexdigest()}")

    def _stopped(self, _: object) -> None:
        self.store.close()
        self._say("stopped")
        self._end()

    def _say(self, text: str) -> None:
        self.sendLine(text.encode())

    def connectionLost(self, reason: Any = None) -> None:
        """All is said, or the test is gone."""
        reactor.stop()

    # The Applier.

    def committed(self, start_index: int, end_index: int) -> None:
        while self.waiting and self.waiting[0].end_index <= end_index:
            self._say(f"appended {self.waiting.popleft().count} 0")
        while self.fed and self.fed[0][0] < end_index:
            first_index, number, count = self.fed.popleft()
            done = min(count, end_index - first_index)
            self._say(f"acked {self.run_id} {number} {number + done}")
            if done < count:
                self.fed.appendleft((first_index + done, number + done, count - done))
        if self.feeds and self.replica.is_ready_leader:
            self._feed()

    def _feed(self) -> None:
        room = IN_FLIGHT - sum(count for _, _, count in self.fed)
        if room < IN_FLIGHT // 4:
            return
        number = self.fed_count
        bodies = [b"%s:%d:%s" % (self.run_id.encode(), number + i, FILLER) for i in range(room)]
        runs = self.replica.propose(bodies)
        self.fed.append((runs[0].first_index, number, room))
        self.fed_count += room

    def role_changed(self, role: Role, term: int, leader_id: str | None, is_ready: bool) -> None:
        while self.waiting and self.waiting[0].term != term:
            self._say(f"appended 0 {self.waiting.popleft().count}")
        if not is_ready:
            self.fed.clear()
        elif self.feeds:
            reactor.callLater(0, self._feed)

    def failed(self, error: BaseException) -> None:
        self.fed.clear()
        self._say(f"failed {error!r}")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--self-id", "--peers", "--directory", "--run-id"):
        parser.add_argument(name, default="")
    parser.add_argument("--flush", default="SYNC_FLUSH")
    parser.add_argument("--founders", nargs="*", default=(), help="who must be there at the birth")
    parser.add_argument("--feed", action="store_true")
    parser.add_argument("--throttle-far-bytes", type=int, default=300 * MIB)
    parser.add_argument("--throttle-quota-bytes", type=int, default=20 * MIB)
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)], redirectStandardIO=False)
    # A step of the wall clock must not stall the member.
    reactor.seconds = time.monotonic
    stdio.StandardIO(MemberProcess(parser.parse_args()))
    gc.freeze()
    reactor.run()


if __name__ == "__main__":
    main()
