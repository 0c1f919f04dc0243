"""Bits that flip in any file of a store: found, never served, and repaired without a person.

A group of three is filled once; each test goes on from a copy of it. For each class of damage one
member is stopped, a file of it is damaged, and it is started. Before the repair a consumer that
reads from it gets what was sent, or an error. After it the member has all messages, the same
entries in its log as the others, and it votes and counts.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from ledgermq.commitlog import DamagedFileError
from ledgermq.dledger.store.errors import CorruptStoreError
from tests.fault.bit_flips import SEGMENT_BYTES, StoreGroup, StoreMember, flip
from tests.free_ports import free_ports
from tests.unit.commitlog.single_member import START_MS, clean

VICTIM = 1
COUNT = 500
BODIES = {
    queue_id: [b"%d-%d " % (queue_id, i) + b"x" * (i % 300) for i in range(COUNT)]
    for queue_id in (0, 1)
}
Damage = Callable[[Path], None]


def file_of(root: Path, pattern: str, number: int = 0) -> Path:
    return sorted(root.glob(pattern))[number]


def flipped(pattern: str, offset: int, number: int = 0, mask: int = 0x10) -> Damage:
    return lambda root: flip(file_of(root, pattern, number), offset, mask)


def zeroed(pattern: str, offset: int, size: int, number: int = 0) -> Damage:
    def damage(root: Path) -> None:
        with file_of(root, pattern, number).open("r+b") as file:
            file.seek(offset)
            file.write(bytes(size))

    return damage


def misplaced(pattern: str, source: int, target: int, size: int = 4096) -> Damage:
    def damage(root: Path) -> None:
        with file_of(root, pattern).open("r+b") as file:
            file.seek(source)
            page = file.read(size)
            file.seek(target)
            file.write(page)

    return damage


def shortened(pattern: str, size: int, number: int = 0) -> Damage:
    return lambda root: _truncate(file_of(root, pattern, number), size)


def _truncate(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def removed(pattern: str) -> Damage:
    return lambda root: file_of(root, pattern).unlink()


def emptied(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()


DATA, INDEX = "dledger-*/data/*", "dledger-*/index/*"
QUEUE, KEYS = "consumequeue/T/1/*", "index/*"
CLASSES: dict[str, Damage] = {
    **{
        f"data, first entry, {field}": flipped(DATA, offset)
        for field, offset in {
            "magic": 3, "size": 7, "index": 15, "term": 23, "position": 31, "channel": 35,
            "chain crc": 36, "body crc": 41, "body size": 47, "body": 60,
        }.items()
    },
    "data, middle of the first segment": flipped(DATA, 30_000),
    "data, second segment": flipped(DATA, 30_000, 1),
    "data, last segment": flipped(DATA, 500, -2),
    "data, a sector of zeros": zeroed(DATA, 20_480, 512),
    "data, a page of zeros": zeroed(DATA, 40_960, 4096, 1),
    "data, a page of the last segment is zeros": zeroed(DATA, 0, 4096, -2),
    "data, a page in a wrong place": misplaced(DATA, 8192, 16_384),
    "data, blank at the end of a segment": flipped(DATA, SEGMENT_BYTES - 3),
    "data, a file in the middle gone": removed("dledger-*/data/*131072"),
    "data, last file gone": removed("dledger-*/data/*262144"),
    "data, a short file": shortened(DATA, 5000, 1),
    "index, position": flipped(INDEX, 32 * 300 + 11),
    "index, term": flipped(INDEX, 32 * 300 + 31),
    "index, a page of zeros": zeroed(INDEX, 0, 4096),
    "index, a page in a wrong place": misplaced(INDEX, 4096, 8192),
    "index, short file": shortened(INDEX, 5000),
    "index, first file gone": removed(INDEX),
    "queue, physical offset": flipped(QUEUE, 20 * 30 + 6),
    "queue, size": flipped(QUEUE, 20 * 30 + 11),
    "queue, tags code": flipped(QUEUE, 20 * 30 + 19),
    "queue, zeros": zeroed(QUEUE, 512, 512),
    "queue, misplaced": misplaced(QUEUE, 0, 1000, 500),
    "queue, short file": shortened(QUEUE, 700),
    "queue, a file gone": removed(QUEUE),
    "key index, header": flipped(KEYS, 39),
    "key index, slot": flipped(KEYS, 40 + 4 * 17 + 3),
    "key index, entry": flipped(KEYS, 40 + 400 + 20 * 100 + 2),
    "key index, place in an entry": flipped(KEYS, 40 + 400 + 20 * 100 + 10),
    "key index, short file": shortened(KEYS, 1000),
    "mark, checkpoint of the ledger": flipped("dledger-*/checkpoint", 16, mask=1),
    "mark, checkpoint of the ledger, gone": removed("dledger-*/checkpoint"),
    "mark, durable": flipped("dledger-*/durable", 15),
    "mark, start": flipped("dledger-*/start", 3),
    "vote, identity": flipped("dledger-*/identity", 8),
    "vote, identity, gone": removed("dledger-*/identity"),
    "vote, currterm": flipped("dledger-*/currterm", 1),
    "vote, currterm, gone": removed("dledger-*/currterm"),
    "mark, checkpoint of dispatch": flipped("dispatch.checkpoint", 60),
    "mark, checkpoint of the store": flipped("checkpoint", 3),
    "everything": emptied,
}  # fmt: skip


class BitFlipTest(TestCase):
    timeout = 200
    filled: ClassVar[Path | None] = None

    async def _group(self) -> StoreGroup:
        """Directories of a filled group, as they are after an orderly stop."""
        folder = Path(tempfile.mkdtemp(prefix="bit-flips-"))
        self.addCleanup(shutil.rmtree, folder)
        cls = type(self)
        if cls.filled is None:
            cls.filled = Path(tempfile.mkdtemp(prefix="bit-flips-filled-"))
            group = StoreGroup(reactor, cls.filled, free_ports(3))
            await group.start()
            for queue_id, bodies in BODIES.items():
                await group.send(bodies, queue_id)
            await group.wait_until_equal()
            await group.stop()
        shutil.copytree(cls.filled, folder, dirs_exist_ok=True)
        group = StoreGroup(reactor, folder, free_ports(3))
        self.addCleanup(group.stop)
        return group

    @classmethod
    def tearDownClass(cls) -> None:
        if cls.filled is not None:
            shutil.rmtree(cls.filled)

    def _pull_what_is_served(self, member: StoreMember) -> None:
        """Every message that a read gives is the one that was sent."""
        for queue_id, bodies in BODIES.items():
            try:
                found = member.bodies(queue_id)
            except (DamagedFileError, CorruptStoreError):
                continue
            self.assertEqual(found, bodies[: len(found)])

    async def _damage_each(self, prefix: str) -> None:
        """One class of damage after the other, on one running group."""
        group = await self._group()
        await group.start()
        await group.wait_until_equal()
        victim = group.members[VICTIM]
        classes = {name: damage for name, damage in CLASSES.items() if name.startswith(prefix)}
        self.assertTrue(classes)
        for number, (name, damage) in enumerate(classes.items()):
            try:
                await victim.stop()
                damage(victim.root)
                await victim.start()
                self._pull_what_is_served(victim)
                await victim.repair()
                await group.send([b"%d" % number], 2)
                await group.wait_until_equal()
                await victim.repair()
                self._check(group, number + 1)
            except Exception as error:
                error.add_note(name)
                raise

    def _check(self, group: StoreGroup, sent_count: int) -> None:
        """All members have all messages, and equal logs."""
        entries = group.members[0].entries()
        for member in group.members:
            self.assertEqual(member.entries(), entries)
            for queue_id, bodies in BODIES.items():
                self.assertEqual(member.bodies(queue_id), bodies)
            self.assertEqual(member.bodies(2), [b"%d" % i for i in range(sent_count)])
            self.assertIsNone(member.mark.read())
            found = member.messages.query("T", "1-7", 9, 0, 1 << 60)
            self.assertEqual(len(found.parts), 1)

    async def test_log(self) -> None:
        await self._damage_each("data")

    async def test_index_of_the_log(self) -> None:
        await self._damage_each("index")

    async def test_consume_queue(self) -> None:
        await self._damage_each("queue")

    async def test_key_index(self) -> None:
        await self._damage_each("key index")

    async def test_checkpoints_and_marks(self) -> None:
        await self._damage_each("mark")

    async def test_term_and_vote(self) -> None:
        await self._damage_each("vote")

    async def test_a_wiped_member(self) -> None:
        await self._damage_each("everything")

    async def test_a_wiped_member_of_a_group_whose_log_begins_later(self) -> None:
        group = await self._group()
        await group.start()
        await group.send([b"first"], 2)
        await group.wait_until_equal()
        victim, *others = group.members[VICTIM], group.members[0], group.members[2]
        await victim.stop()
        emptied(victim.root)
        for member in others:
            member.store.sync()
            member.messages.flush()
            clean(member.messages, START_MS + 1_000_000_000, 0, 99)
            self.assertGreater(member.store.first_index, 0)
        await victim.start()
        await group.send([b"later"], 2)
        await group.wait_until_equal()
        leader = await group.leader()
        self.assertEqual(victim.store.first_index, leader.store.first_index)
        self.assertEqual(victim.entries(), leader.entries())
        for queue_id in (0, 1, 2):
            self.assertEqual(victim.bodies(queue_id), leader.bodies(queue_id))
        self.assertEqual(victim.bodies(2), [b"first", b"later"])
        self.assertIsNone(victim.mark.read())
