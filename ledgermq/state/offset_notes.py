"""OffsetNotes: offsets that a leader was told and that stand in no command yet.

Pure. Hundreds of thousands may be told within a second: a command takes some of them, and none of
this costs what all have, but for those that are joined.
"""

from collections.abc import Mapping, Sequence

from ledgermq.state.consumer_offsets import NO_ROOM, OffsetsByKey, Room

_NOTHING: Mapping[int, int] = {}


class OffsetNotes:
    """Some offsets, the last word about each.

    Attributes:
        told: by pair and queue.
        room: what the table needs for those that it has not, and no command before them.

    Invariant: `room` is the sum of `_rooms`, which has no pair that is not in `told`.
    """

    __slots__ = ("_rooms", "room", "told")

    def __init__(self) -> None:
        self.told: OffsetsByKey = {}
        self.room = NO_ROOM
        self._rooms: dict[str, Room] = {}

    def of_key(self, key: str) -> Mapping[int, int]:
        """Returns what was told of one pair; empty when nothing was."""
        return self.told.get(key, _NOTHING)

    def put(self, key: str, queue_id: int, offset: int, room: Room = NO_ROOM) -> None:
        """Notes an offset, and what more it takes in the table."""
        queues = self.told.get(key)
        if queues is None:
            queues = self.told[key] = {}
        queues[queue_id] = offset
        if room is not NO_ROOM:
            self._add_room(key, room)

    def take(self, count_max: int) -> "OffsetNotes":
        """Takes some offsets out, those of the newest pairs, which costs nothing for the others;
        what a pair needs goes with the last of it.
        """
        taken, left = OffsetNotes(), count_max
        while self.told and left:
            key, queues = self.told.popitem()
            if len(queues) > left:
                taken.told[key] = dict(queues.popitem() for _ in range(left))
                self.told[key] = queues
                break
            taken.told[key] = queues
            left -= len(queues)
            room = self._rooms.pop(key, NO_ROOM)
            if room is not NO_ROOM:
                self.room = self.room.minus(room)
                taken._add_room(key, room)
        return taken

    def joined(self, newer: "OffsetNotes") -> "OffsetNotes":
        """Returns all of this and of what was told later, in one of the two: nobody may use them
        any more. It costs what the smaller one has.
        """
        if len(newer.told) > len(self.told):
            newer.put_back(self)
            return newer
        for key, queues in newer.told.items():
            known = self.told.get(key)
            if known is None:
                self.told[key] = queues
            else:
                known.update(queues)
        for key, room in newer._rooms.items():
            self._add_room(key, room)
        return self

    def put_back(self, former: "OffsetNotes", newer: Sequence["OffsetNotes"] = ()) -> None:
        """Takes over what was told before all that is noted here, but for what is in `newer`."""
        for key, queues in former.told.items():
            known = {n for notes in newer for n in notes.of_key(key)}
            kept = {n: offset for n, offset in queues.items() if n not in known}
            if kept:
                self.told[key] = {**kept, **self.of_key(key)}
        for key, room in former._rooms.items():
            # What is told anew elsewhere counts as soon as the table has it.
            if key in self.told:
                self._add_room(key, room)

    def _add_room(self, key: str, room: Room) -> None:
        self.room = self.room.plus(room)
        self._rooms[key] = self._rooms.get(key, NO_ROOM).plus(room)
