"""VoteFile: term, vote and birth on disk, so that no member votes twice in a term.

Two files, both replaced durably before `save` returns:

    identity   ours, with a checksum, written first:
               group=, self_id=, term=, voted_for=, has_voted=, birth=, members=,
               birth_agreed=, crc32=
    currterm   upstream's, so that Java can take over the directory: voteLeader=, currTerm=; its
               former content is kept in currterm.bak

What `load` finds, and what it says:

    identity   currterm           store       result
    readable   same or lower term any         identity's state
    readable   higher term        any         currterm's, and identity's birth: Java has run here
    readable   missing            any         identity's, unless currterm.bak or .tmp knows a higher
                                              term: VoteStateLostError
    missing    readable           any         currterm's: Java wrote this store
    missing    missing            empty       None: a member that starts for the first time
    missing    missing            not empty   VoteStateLostError
    damaged    any                any         VoteStateLostError
    any        damaged            any         VoteStateLostError; identity's state where the
                                              group has no other members, so that a vote in a
                                              higher term could be for this member only

`members` is the list of the group's member ids, agreed with the birth; a configuration with other
ids is refused. An identity that was written before lists were kept has `birth_members=` in its
place, the ids of those members that the birth had to wait for, mostly all: where they are those of
the configuration they are the list, else the list is agreed again (`census.Census`).

Lost never means term 0: the member may have voted in a term it forgot. The driver starts the core
as recovering then. Where the identity is ahead, a save was cut between the two files, and `load`
ends it: what takes over with currterm alone must not vote again in that term.
"""

import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from ledgermq.dledger.birth import Birth
from ledgermq.dledger.membership import members_text
from ledgermq.dledger.storage import HardState
from ledgermq.dledger.store.errors import DiskFullError, MembershipError, VoteStateLostError
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.dledger.store.marks import CHECKPOINT, DURABLE, START
from ledgermq.dledger.store.text_file import format_lines, parse_int, parse_lines, seal, unseal

IDENTITY = "identity"
CURRENT_TERM = "currterm"
_GROUP_ID: Final = re.compile("[0-9a-f]{32}")


class VoteFile:
    """Keeps the hard state of one member in its store directory."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        self_id: str,
        *,
        group: str = "",
        members: Collection[str] = (),
    ) -> None:
        """Binds the files; nothing is read or written yet.

        Args:
            file_system: the disk.
            directory: of this member's store (`.../dledger-n0`).
            self_id: a directory that belongs to another member is refused.
            group: a directory of another group is refused; empty accepts any.
            members: ids of all members as configured; a directory of a group with other members is
                refused. Empty accepts any.
        """
        self._file_system = file_system
        self._directory = directory
        self._self_id = self_id
        self._group = group
        self._members = frozenset(members)
        # `birth_members` of an identity without a list: kept until the list is agreed.
        self._birth_members = ""

    def load(self) -> HardState | None:
        """Returns the state, or None in a directory that was never used.

        Raises:
            VoteStateLostError: there was a state, and it is missing or unreadable.
            MembershipError: the directory belongs to another member or group, or to a group of
                other members.
        """
        state = self._load()
        self._check_vote(state)
        return state

    def check_membership(self) -> None:
        """Compares the files with member, group and member list, and writes nothing; files that
        are lost or damaged pass.

        Raises:
            MembershipError: as of `load`.
        """
        with suppress(VoteStateLostError):
            self._check_vote(self._load_identity())
            self._check_vote(self._load_current(CURRENT_TERM))

    def _check_vote(self, state: HardState | None) -> None:
        voted_for = None if state is None else state.voted_for
        if voted_for is not None and self._members and voted_for not in self._members:
            # A store that has no list, such as one of Java: it shows one member at least.
            stored = members_text({self._self_id, voted_for}) + " and perhaps others"
            raise self._membership_error("dLegerPeers", stored, members_text(self._members))

    def _load(self) -> HardState | None:
        identity = self._load_identity()
        is_alone = self._members == {self._self_id}
        try:
            current = self._load_current(CURRENT_TERM)
        except VoteStateLostError:
            if identity is None or not is_alone:
                raise
            current = None
        if identity is None and current is None:
            former = self._load_former()
            if former is not None or self._is_used():
                raise self._lost(CURRENT_TERM, "missing in a store that is not empty")
            return None
        if identity is None:
            return current
        if current is None:
            former = None if is_alone else self._load_former()
            if former is not None and former.term > identity.term:
                raise self._lost(CURRENT_TERM, f"missing, its copy knows term {former.term}")
            self._end_save(identity)
            return identity
        # Java writes the one and not the other.
        current = replace(current, birth=identity.birth, has_voted=identity.has_voted)
        if current.term > identity.term:
            return current
        if current.term == identity.term and current.voted_for not in (None, identity.voted_for):
            if identity.voted_for is not None:
                raise self._lost(CURRENT_TERM, f"two votes in term {identity.term}")
            return current
        if (current.term, current.voted_for) != (identity.term, identity.voted_for):
            self._end_save(identity)
        return identity

    def save(self, state: HardState) -> None:
        """Replaces the state; it is durable on return.

        Raises:
            OSError, DiskFullError: the state must not be spoken of.
        """
        self._file_system.make_directory(self._directory)
        birth = state.birth
        self._replace(
            IDENTITY,
            seal(
                {
                    "group": self._group,
                    "self_id": self._self_id,
                    "term": str(state.term),
                    "voted_for": state.voted_for or "",
                    "has_voted": str(int(state.has_voted)),
                    "birth": birth.group_id if birth is not None else "",
                    **self._member_keys(birth),
                    "birth_agreed": str(int(birth is not None and birth.is_agreed)),
                }
            ),
        )
        self._replace_current(state)

    def _end_save(self, state: HardState) -> None:
        # This member knows all from the identity, so a full disk does not keep it from a start.
        with suppress(OSError, DiskFullError):
            self._replace_current(state)

    def _replace_current(self, state: HardState) -> None:
        former = self._read(CURRENT_TERM)
        if former is not None:
            self._replace(CURRENT_TERM + ".bak", former)
        lines = format_lines({"voteLeader": state.voted_for or "", "currTerm": str(state.term)})
        self._replace(CURRENT_TERM, lines)

    def _load_identity(self) -> HardState | None:
        data = self._read(IDENTITY)
        if data is None:
            return None
        values = unseal(data)
        term = parse_int(values, "term") if values is not None else None
        if values is None or term is None:
            raise self._lost(IDENTITY, "its checksum does not fit")
        for name, key, configured in (
            ("self_id", "dLegerSelfId", self._self_id),
            ("group", "dLegerGroup", self._group),
        ):
            stored = values.get(name, "")
            if configured and stored and stored != configured:
                raise self._membership_error(key, stored, configured)
        vote = values.get("voted_for") or None
        birth = None
        if group_id := values.get("birth"):
            members = self._read_members(values)
            if _GROUP_ID.fullmatch(group_id) is None:
                raise self._lost(IDENTITY, f"birth is {group_id!r}, allowed: 32 hex digits")
            birth = Birth(group_id, members, values.get("birth_agreed") == "1")
        return HardState(term, vote, birth, values.get("has_voted") == "1")

    def _read_members(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Returns the member list, empty where it has to be agreed again."""
        is_list = "members" in values
        text = values.get("members" if is_list else "birth_members", "")
        stored = tuple(filter(None, text.split(";")))
        configured = self._members
        if not configured or configured == set(stored):
            return stored
        if stored and (is_list or not configured.issuperset(stored)):
            raise self._membership_error(
                "dLegerPeers", members_text(stored), members_text(configured)
            )
        self._birth_members = text
        return ()

    def _member_keys(self, birth: Birth | None) -> dict[str, str]:
        if birth is not None and not birth.members:
            return {"birth_members": self._birth_members}
        return {"members": ";".join(birth.members) if birth is not None else ""}

    def _membership_error(self, key: str, stored: str, configured: str) -> MembershipError:
        return MembershipError(self._path(IDENTITY), key, stored, configured)

    def _load_current(self, name: str) -> HardState | None:
        data = self._read(name)
        if data is None:
            return None
        values = parse_lines(data)
        term = parse_int(values, "currTerm")
        if term is None or term < 0:
            raise self._lost(name, "no currTerm in it")
        return HardState(term, values.get("voteLeader") or None)

    def _load_former(self) -> HardState | None:
        """Returns the highest state in what a stop of Java may have left behind."""
        states = []
        for suffix in (".bak", ".tmp"):
            try:
                state = self._load_current(CURRENT_TERM + suffix)
            except VoteStateLostError:
                continue
            if state is not None:
                states.append(state)
        return max(states, key=lambda state: state.term, default=None)

    def _is_used(self) -> bool:
        names = self._file_system.names
        used = {CHECKPOINT, CHECKPOINT + ".bak", START, DURABLE}
        return bool(names(os.path.join(self._directory, "data"))) or not used.isdisjoint(
            names(self._directory)
        )

    def _lost(self, name: str, reason: str) -> VoteStateLostError:
        return VoteStateLostError(self._path(name), reason)

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _read(self, name: str) -> bytes | None:
        return self._file_system.read(self._path(name))

    def _replace(self, name: str, data: bytes) -> None:
        self._file_system.replace(self._path(name), data)
