"""A member whose log contradicts committed entries and is of a later term than all others."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.dledger.store.vote_file import VoteFile
from ledgermq.protocol.checksum import crc32c
from tests.e2e.replica_group import INDEX_SEGMENT_BYTES, SEGMENT_BYTES, Group, Member
from tests.free_ports import free_ports

# Two elections, and the first time for which a contradicting peer is ignored, on a busy machine.
DEADLINE_S = 60.0


def replace_last_entry(member: Member, term: int, body: bytes) -> None:
    """Puts another entry of a later term in the place of the last one, as another group would."""
    codec = EntryCodec(crc32c)
    store = DLedgerMmapFileStore(
        RealFileSystem(), str(member.directory), SEGMENT_BYTES, INDEX_SEGMENT_BYTES, codec
    )
    store.open()
    index = store.last_index
    store.truncate(index)
    store.append(
        codec.encode(
            [body],
            first_index=index,
            term=term,
            position=store.end_position,
            previous_chain_crc=store.last_chain_crc,
        )
    )
    store.close()
    votes = VoteFile(RealFileSystem(), str(member.directory), member.config.self_id)
    state = votes.load()
    assert state is not None and state.birth is not None
    votes.save(replace(state, term=term, voted_for=None))


class ContradictingMember(TestCase):
    timeout = 180

    def setUp(self) -> None:
        directory = Path(tempfile.mkdtemp(prefix="contradicting-"))
        self.addCleanup(shutil.rmtree, directory)
        self.group = Group(reactor, directory, free_ports(3))
        self.addCleanup(self.group.stop)

    async def test_the_majority_goes_on_without_it(self) -> None:
        group = self.group
        await group.start()
        leader = await group.wait_for_leader()
        index = leader.running.propose([b"first", b"last"])[-1].last_index
        await group.wait_for_commit(leader.running, index)
        await group.wait_until_equal()
        term = leader.running.term
        await group.stop()
        wrong = group.members["n0"]
        replace_last_entry(wrong, term + 5, b"other")
        await group.start()

        def committing_leader() -> Member | None:
            found = group.find_leader()
            return found if found is not wrong else None

        leader = await group.wait(committing_leader, "a leader of the majority", DEADLINE_S)
        index = leader.running.propose([b"afterwards"])[-1].last_index
        both = [member for member in group.members.values() if member is not wrong]
        await group.wait(
            lambda: all(one.running.commit_index >= index for one in both), "a commit", DEADLINE_S
        )
        for member in both:
            assert member.bodies()[:3][-2:] == [b"first", b"last"]
            assert b"other" not in member.bodies()
        # Either it led and was rejected, or it was led and rejects the leader.
        alarms = [one.running.membership.alarm for one in group.up]
        assert any(alarm is not None for alarm in alarms), alarms
        # Its operator removes the directory: it is filled by the leader and counts again.
        await wrong.stop()
        shutil.rmtree(wrong.directory)
        await wrong.start()
        await group.wait(
            lambda: wrong.running.commit_index >= index, "the log of the others", DEADLINE_S
        )
        assert wrong.bodies() == leader.bodies()
        await group.wait(
            lambda: all(one.running.membership.alarm is None for one in group.up), "no alarm"
        )
