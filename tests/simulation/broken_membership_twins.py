"""Mistakes with member lists, bounds and damage, planted into the product."""

from dataclasses import replace
from typing import Any

from ledgermq.broker.storage.state_loading import LoadRule
from ledgermq.dledger import election, raft, strangers
from ledgermq.dledger.membership import NO_DIGEST
from ledgermq.dledger.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    VoteRequest,
    VoteResponse,
)
from ledgermq.dledger.replica.inbox import Inbox, memory_bytes
from ledgermq.dledger.store.vote_file import VoteFile
from ledgermq.testing.simulation import network
from ledgermq.testing.simulation.disk import SimDisk
from tests.simulation.broken_twins import Patch


def any_list_runs() -> list[Patch]:
    """A start does not compare the configured list with the stored one."""
    original = VoteFile._read_members

    def read_members(self: Any, values: Any) -> Any:
        configured, self._members = self._members, frozenset()
        try:
            return original(self, values)
        finally:
            self._members = configured

    return [(VoteFile, "_read_members", read_members)]


def lists_ignored_in_hello() -> list[Patch]:
    return [(network, "find_mismatch", lambda peer_id, peer, own: None)]


def _digests_ignored_in(*kinds: type) -> list[Patch]:
    original = strangers.is_stranger

    def is_stranger(message: Any, state: Any) -> bool:
        if isinstance(message, kinds):
            message = replace(message, members_digest=NO_DIGEST)
        return original(message, state)

    return [(module, "is_stranger", is_stranger) for module in (strangers, election, raft)]


def lists_ignored_in_votes() -> list[Patch]:
    return _digests_ignored_in(VoteRequest, VoteResponse)


def lists_ignored_in_heart_beats() -> list[Patch]:
    return _digests_ignored_in(HeartBeatRequest, HeartBeatResponse)


def inbox_without_bound() -> list[Patch]:
    """Each message waits, whatever it makes obsolete."""

    def add(self: Any, message: Any, *, replaces: bool) -> None:
        self.planted_count = getattr(self, "planted_count", 0) + 1
        self._messages[self.planted_count] = message
        self.size_bytes += memory_bytes(message)

    return [(Inbox, "add", add)]


def failing_reads_are_missing_files() -> list[Patch]:
    """A small file that cannot be read counts as one that is not there."""
    original = SimDisk.read

    def read(self: Any, path: str) -> bytes | None:
        return None if path in self.unreadable_texts else original(self, path)

    return [(SimDisk, "read", read)]


def older_files_believed() -> list[Patch]:
    """A state file counts however old it is."""
    original = LoadRule._judge

    def judge(self: Any, name: str, raw: Any) -> Any:
        return original(replace(self, indexes={}, other_index=-1), name, raw)

    return [(LoadRule, "_judge", judge)]
