"""Three replicas in one process, on loopback sockets, with real files and in memory."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from ledgermq.dledger.errors import NotLeaderError, ProposalDroppedError
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import PeerDialect
from ledgermq.dledger.replica import FlushDiskType
from tests.e2e.replica_group import Group, Member, opening_body
from tests.free_ports import free_ports


class GroupTestCase(TestCase):
    """What the tests of all stores share."""

    timeout = 60
    is_in_memory = False

    def group(self, **changes: Any) -> Group:
        directory = Path(tempfile.mkdtemp(prefix="replica-group-"))
        self.addCleanup(shutil.rmtree, directory)
        group = Group(reactor, directory, free_ports(3), is_in_memory=self.is_in_memory, **changes)
        self.addCleanup(self._stop, group)
        return group

    async def _stop(self, group: Group) -> None:
        await group.stop()

    async def _propose_all(self, group: Group, leader: Member, bodies: list[bytes]) -> None:
        """Proposes in batches as a broker does, and waits until all is committed and applied."""
        replica = leader.running
        for start in range(0, len(bodies), 50):
            last_index = replica.propose(bodies[start : start + 50])[-1].last_index
            if start % 500 == 0:
                await group.wait_for_commit(replica, last_index)
        await group.wait_for_commit(replica, last_index)
        await group.wait_until_equal()

    def _assert_identical(self, group: Group) -> None:
        """The data of all members is the same, byte for byte, and so are the applied ranges."""
        first, *others = group.up
        end = first.running.store.end_position
        for member in others:
            self.assertEqual(member.running.store.end_position, end)
            self.assertEqual(_data_of(member)[:end], _data_of(first)[:end])
        for member in group.up:
            covered = member.applier.ranges
            for before, after in zip(covered, covered[1:], strict=False):
                self.assertEqual(before[1], after[0])


class AnyStore:
    """The tests that every store passes."""

    async def test_group_elects_replicates_and_applies(self) -> None:
        group = self.group()
        await group.start()
        leader = await group.wait_for_leader()
        bodies = [b"message %d" % i for i in range(3000)]
        await self._propose_all(group, leader, bodies)
        opened = opening_body(leader.running.term)
        for member in group.up:
            self.assertEqual(member.bodies(), [opened, *bodies])
            self.assertEqual(member.applier.ranges[-1][1], 3001)
        self._assert_identical(group)
        self.assertEqual(
            leader.applier.roles[-1],
            (Role.LEADER, leader.running.term, leader.config.self_id, True),
        )
        for peer_id in leader.running.peer_ids:
            self.assertIs(leader.running.dialect_of(peer_id), PeerDialect.LEDGERMQ)

    async def test_follower_refuses_proposals_and_names_the_leader(self) -> None:
        group = self.group()
        await group.start()
        leader = await group.wait_for_leader()
        follower = next(member for member in group.up if member is not leader)
        # It may have heard nothing of the one that it voted for yet.
        await group.wait(lambda: follower.running.leader_id is not None, "news of the leader")
        with self.assertRaises(NotLeaderError) as refused:
            follower.running.propose([b"x"])
        self.assertEqual(refused.exception.leader_id, leader.config.self_id)

    async def test_another_member_leads_when_the_leader_stops_and_it_returns_as_follower(
        self,
    ) -> None:
        group = self.group()
        await group.start()
        old = await group.wait_for_leader()
        await self._propose_all(group, old, [b"before %d" % i for i in range(200)])
        old_term = old.running.term
        await old.stop()
        new = await group.wait_for_leader()
        self.assertGreater(new.running.term, old_term)
        await self._propose_all(group, new, [b"between %d" % i for i in range(200)])
        await old.start()
        await group.wait_until_equal()
        await self._propose_all(group, new, [b"after %d" % i for i in range(200)])
        self.assertIs(group.find_leader(), new)
        self.assertEqual(old.bodies()[-1], b"after 199")
        self._assert_identical(group)

    async def test_leadership_is_handed_on_without_loss_or_silence(self) -> None:
        group = self.group()
        await group.start()
        leader = await group.wait_for_leader()
        await self._propose_all(group, leader, [b"before %d" % i for i in range(200)])
        term = leader.running.term
        for _ in range(3):
            targets = [member for member in group.up if member is not leader]
            target = targets[0]
            leader.running.propose([b"under way"] * 20)
            leader.running.transfer(target.running.self_id)
            with self.assertRaises(ProposalDroppedError):
                leader.running.propose([b"refused"])
            await group.wait(lambda to=target: to.running.is_ready_leader, "the transferee to lead")
            term += 1
            self.assertEqual(target.running.term, term)
            leader = target
            await self._propose_all(group, leader, [b"after %d" % i for i in range(50)])
        bodies = leader.bodies()
        self.assertEqual(bodies.count(b"under way"), 60)
        self.assertNotIn(b"refused", bodies)
        self._assert_identical(group)

    async def test_member_without_a_store_is_given_the_whole_log(self) -> None:
        group = self.group(push_bytes_max=8192, founder_ids=("n0", "n1"))
        first, second, third = group.members.values()
        await first.start()
        await second.start()
        leader = await group.wait_for_leader()
        await self._propose_all(group, leader, [b"%d" % i * 200 for i in range(2000)])
        await third.start()
        await group.wait_until_equal()
        self._assert_identical(group)


class FileGroupTest(AnyStore, GroupTestCase):
    """Members with files."""

    async def test_async_flush_replicates_too(self) -> None:
        group = self.group(flush_disk_type=FlushDiskType.ASYNC_FLUSH)
        await group.start()
        leader = await group.wait_for_leader()
        await self._propose_all(group, leader, [b"%d" % i for i in range(500)])
        self._assert_identical(group)

    async def test_preferred_member_gets_the_leadership_and_keeps_it(self) -> None:
        group = self.group(preferred_leader_ids=("n2",))
        await group.start()
        preferred = group.members["n2"]
        await group.wait(lambda: preferred.running.is_ready_leader, "n2 to lead")
        await self._propose_all(group, preferred, [b"a", b"b"])
        self.assertIs(await group.wait_for_leader(), preferred)

    async def test_all_members_restart_with_all_that_was_committed(self) -> None:
        group = self.group()
        await group.start()
        leader = await group.wait_for_leader()
        await self._propose_all(group, leader, [b"%d" % i * 100 for i in range(1000)])
        before = leader.bodies()
        applied_index = leader.running.applied_index
        for member in group.up:
            await member.stop()
        for member in group.members.values():
            await member.start(applied_index)
        leader = await group.wait_for_leader()
        self.assertEqual(leader.bodies(len(before)), before)
        await self._propose_all(group, leader, [b"again"])
        for member in group.up:
            self.assertEqual(member.applier.ranges[0][0], applied_index + 1)
        self._assert_identical(group)

    async def test_leader_that_cannot_do_its_work_hands_over_to_the_one_that_can(self) -> None:
        group = self.group()
        await group.start()
        leader = await group.wait_for_leader()
        await self._propose_all(group, leader, [b"before %d" % i for i in range(100)])
        full, fit = (member for member in group.up if member is not leader)
        full.running.decline_leadership(True)
        leader.running.decline_leadership(True)
        await group.wait(lambda: fit.running.is_ready_leader, "the only one that can lead")
        await self._propose_all(group, fit, [b"after %d" % i for i in range(100)])
        self.assertTrue(fit.running.is_ready_leader)

    async def test_disk_error_stops_a_member_and_the_others_go_on(self) -> None:
        group = self.group()
        await group.start()
        leader = await group.wait_for_leader()
        broken = leader.running
        error = OSError(5, "Input/output error")

        def failing_append(entries: object) -> None:
            raise error

        broken.store.append = failing_append  # type: ignore[method-assign]
        broken.propose([b"lost"])
        await group.wait(lambda: broken.failure, "the failure")
        self.assertIs(leader.applier.failure, error)
        self.assertIs(broken.role, Role.CANDIDATE)
        self.flushLoggedErrors(OSError)
        with self.assertRaises(NotLeaderError):
            broken.propose([b"x"])
        others = [member for member in group.up if member is not leader]

        def find_other() -> Member | None:
            return next((m for m in others if m.running.is_ready_leader), None)

        await group.wait(find_other, "another leader")


class MemoryGroupTest(AnyStore, GroupTestCase):
    """Members without files but for their votes."""

    is_in_memory = True

    async def test_member_that_restarts_forgot_all_and_is_given_it_again(self) -> None:
        group = self.group()
        await group.start()
        leader = await group.wait_for_leader()
        await self._propose_all(group, leader, [b"before %d" % i for i in range(200)])
        member = next(member for member in group.up if member is not leader)
        await member.stop()
        before = leader.running.commit_index
        await member.start()
        self.assertEqual(member.running.store.last_index, -1)
        await group.wait(lambda: member.running.applied_index >= before, "the lost entries")
        await group.wait_until_equal()
        self._assert_identical(group)


def _data_of(member: Member) -> bytes:
    """All entries with their heads, each at its position."""
    store, parts = member.running.store, bytearray(member.running.store.end_position)
    index = store.first_index
    while index <= store.last_index:
        run = store.read(index, 1 << 20)
        parts[run.position : run.end_position] = run.data
        index = run.last_index + 1
    return bytes(parts)
