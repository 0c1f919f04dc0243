"""I27: what is made again from the log has the bytes of what was there.

A copy of a member's disk keeps the data log and its marks alone; a store is opened on it, so that
index, consume queues and key index are made again. The member goes on untouched.
"""

import random
from collections.abc import Iterator

from ledgermq.commitlog import MessageStore
from ledgermq.testing.simulation.disk import SimDisk, SimFile
from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.member import SimMember


def check_rebuild(member: SimMember) -> None:
    """Compares what a member has with what its log gives."""
    store, broker = member.store, member.broker
    assert store is not None and broker is not None
    messages = broker.messages
    disk = _copy_of_log(member)
    again = member.make_store(disk)
    again.open()
    ends = (again.first_index, again.last_index)
    demand(ends == (store.first_index, store.last_index), "I27 log differs", member.id, ends)
    for index in range(store.first_index, store.last_index + 1):
        live, made = store._index.find(index), again._index.find(index)
        demand(live == made, "I27 index unit differs", member.id, index, live, made)
    remade = member.make_messages(disk, again)
    remade.open()
    if remade.dispatched_index < messages.dispatched_index:
        remade.committed(remade.dispatched_index + 1, messages.dispatched_index + 1)
    _compare_queues(member.id, messages, remade)
    if store.first_index == 0:
        # With retention the first index file may still hold keys of what the log has dropped.
        _compare_keys(member.id, messages, remade)


def _copy_of_log(member: SimMember) -> SimDisk:
    disk = SimDisk(random.Random(0), _ignore)
    disk.wall_ms = member.wall_ms()
    for path, file in member.disk.files.items():
        if path.startswith(f"{member.directory}/data/"):
            disk.files[path] = SimFile(disk, path, bytes(file.content))
    for path, text in member.disk.texts.items():
        if path.startswith(f"{member.directory}/"):
            disk.texts[path] = text
    return disk


def _compare_queues(member_id: str, live: MessageStore, made: MessageStore) -> None:
    for queue in made._queues:
        topic, queue_id = queue.topic, queue.queue_id
        low, high = live.min_offset(topic, queue_id), live.max_offset(topic, queue_id)
        facts = (member_id, topic, queue_id, low, high, queue.min_offset, queue.max_offset)
        demand(queue.max_offset == high, "I27 queue ends elsewhere", *facts)
        found = live._queues.get(topic, queue_id).units(low, high - low)
        again = queue.units(low, high - low)
        demand(found == again, "I27 queue differs", *facts)


def _compare_keys(member_id: str, live: MessageStore, made: MessageStore) -> None:
    pairs = zip(_used_bytes(live), _used_bytes(made), strict=True)
    for number, (found, again) in enumerate(pairs):
        demand(found == again, "I27 key index differs", member_id, number)


def _used_bytes(messages: MessageStore) -> Iterator[bytes]:
    key_index = messages._key_index
    for file in key_index._index_files:
        yield file.used_bytes()


def _ignore(name: str) -> None:
    """Nothing here is counted."""
