"""Bits that flip in any file of a store: found, never served, and repaired without a person.

One group of three is filled once. For each class of damage its directories are copied, a file of
one member is damaged, and all three are started. Before the repair a consumer that reads from the
damaged member gets what was sent, or an error. After it the member has all messages, the same bytes
in its log as the others, and it votes and counts.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from ledgermq.commitlog import DamagedFileError
from ledgermq.dledger.store.errors import CorruptStoreError
from tests.fault.bit_flips import SEGMENT_BYTES, StoreGroup, StoreMember, flip
from tests.free_ports import free_ports

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
    "checkpoint of the ledger": flipped("dledger-*/checkpoint", 16, mask=1),
    "checkpoint of the ledger, gone": removed("dledger-*/checkpoint"),
    "durable mark": flipped("dledger-*/durable", 15),
    "start mark": flipped("dledger-*/start", 3),
    "identity": flipped("dledger-*/identity", 8),
    "identity, gone": removed("dledger-*/identity"),
    "currterm": flipped("dledger-*/currterm", 1),
    "currterm, gone": removed("dledger-*/currterm"),
    "checkpoint of dispatch": flipped("dispatch.checkpoint", 60),
    "checkpoint of the store": flipped("checkpoint", 3),
    "everything": emptied,
}  # fmt: skip


class BitFlipTest(TestCase):
    timeout = 120
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

    async def _damage_and_repair(self, damage: Damage) -> None:
        group = await self._group()
        victim = group.members[VICTIM]
        damage(victim.root)
        await group.start()
        self._pull_what_is_served(victim)
        await victim.repair()
        await group.wait_until_equal()
        await group.send([b"after"], 2)
        await group.wait_until_equal()
        await victim.repair()
        end = group.members[0].store.end_position
        for member in group.members:
            self.assertEqual(member.store.end_position, end)
            self.assertEqual(member.entries(), group.members[0].entries())
            for queue_id, bodies in BODIES.items():
                self.assertEqual(member.bodies(queue_id), bodies)
            self.assertEqual(member.bodies(2), [b"after"])
            self.assertIsNone(member.mark.read())
            found = member.messages.query("T", "1-7", 9, 0, 1 << 60)
            self.assertEqual(len(found.parts), 1)


def _add_tests(classes: dict[str, Any]) -> None:
    for name, damage in classes.items():

        async def test(self: BitFlipTest, damage: Damage = damage) -> None:
            await self._damage_and_repair(damage)

        test.__name__ = "test_" + "_".join(name.replace(",", "").split())
        test.__doc__ = None
        setattr(BitFlipTest, test.__name__, test)


_add_tests(CLASSES)
