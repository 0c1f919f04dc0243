"""Mistakes in the broker's replicated state, planted into the product's own classes."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

from ledgermq.broker.storage.flushes import Flushes
from ledgermq.broker.storage.state_tables import Encoding
from ledgermq.commitlog import UnreadRecordError
from ledgermq.dledger.formats import GroupFormats
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.commands import SweepPart
from ledgermq.state.formats import StateFormats
from ledgermq.state.machine import StateMachine
from ledgermq.state.offset_commits import OffsetCommits
from ledgermq.state.offset_expiry import OffsetExpiry
from ledgermq.state.proposals import StateProposals
from ledgermq.state.sweep import StateSweep
from tests.simulation.broken_twins import Patch


def offsets_answered_at_once() -> list[Patch]:
    def commit(self: Any, group: str, topic: str, queue_id: int, offset: int, done: Any) -> None:
        self.tell(group, topic, queue_id, offset)
        done(None)

    return [(OffsetCommits, "commit", commit)]


def offsets_under_way_count_as_stored() -> list[Patch]:
    """A commit that is made again while the first waits for a majority is answered at once."""
    original = OffsetCommits._changes_of

    def changes_of(self: Any, piece: Any) -> Any:
        changes = original(self, piece)
        if any(changes == one.notes.told for one in self._proposed):
            self._proposed, changes = [], {}
        return changes

    return [(OffsetCommits, "_changes_of", changes_of)]


def topics_visible_when_proposed() -> list[Patch]:
    """The leader edits its table first, as if nothing could come between."""
    original = BrokerState.put_topic

    def put_topic(self: Any, topic: Any, done: Any = None) -> None:
        original(self, topic, done)
        self.topics.follow([topic], [], self._versions.get(self.topics, self.topics.version))

    return [(BrokerState, "put_topic", put_topic)]


def commands_applied_twice() -> list[Patch]:
    """Each command is applied once more behind the next one."""
    original = StateMachine.apply

    def apply(self: Any, command: Any, index: int) -> Any:
        events = original(self, command, index)
        before = getattr(self, "planted_before", None)
        if before is not None and not isinstance(before, SweepPart):
            original(self, before, index)
        self.planted_before = command
        return events

    return [(StateMachine, "apply", apply)]


def sweeps_that_skip_an_entry() -> list[Patch]:
    original = StateSweep._range_behind

    def range_behind(self: Any, table: str, after: str) -> Any:
        [text], upto = original(self, table, after)
        entries = json.loads(f"{{{text}}}")
        if entries:
            entries.popitem()
        return [json.dumps(entries)[1:-1]], upto

    return [(StateSweep, "_range_behind", range_behind)]


def sweeps_that_lack_a_part() -> list[Patch]:
    """The first part that is there says where a whole sweep begins."""

    def note_part(self: Any, part: Any, index: int) -> None:
        if part.part == 0:
            self.sweep_index = index

    return [(StateMachine, "_note_part", note_part)]


def parts_that_wait_for_nothing() -> list[Patch]:
    """A part says what the tables held before commands that stand before it in the log."""

    def when_applied(self: Any, function: Any) -> None:
        function()

    return [(StateProposals, "when_applied", when_applied)]


def next_format_as_soon_as_the_leader_has_it() -> list[Patch]:
    return [(StateFormats, "written", property(lambda self: self._formats[-1]))]


def unread_records_passed_over() -> list[Patch]:
    """A record that the program does not read is left out, like one that makes no sense."""
    original = StateFormats.read

    def read(self: Any, body: bytes, index: int) -> Any:
        try:
            return original(self, body, index)
        except UnreadRecordError:
            return None

    return [(StateFormats, "read", read)]


def format_forgotten_by_a_restart() -> list[Patch]:
    def load_json(self: Any, value: Any) -> None:
        """The log will tell."""

    return [(StateFormats, "load_json", load_json)]


def members_that_went_back_count_as_before() -> list[Patch]:
    """What a member has told once is believed for as long as the leader runs."""
    original = GroupFormats.greeted

    def greeted(self: Any, peer_id: str, formats: Any) -> Any:
        known = self._reads[peer_id]
        mismatch = original(self, peer_id, formats)
        if known is not None and formats is not None:
            self._reads[peer_id] = max(known, formats.reads)
        return mismatch

    return [(GroupFormats, "greeted", greeted)]


def marks_as_of_the_end_of_an_encoding() -> list[Patch]:
    """The message store is flushed as it is when the tables are encoded."""
    original = Flushes._flush

    def begin_if_due(self: Any, failed: Any) -> None:
        is_due = self._messages.is_flush_due(self._now_ms())
        if self.is_idle and not self.is_encoding and is_due:
            self._encode(self._tables.begin_flush(), partial(self._flush, failed))

    def flush(self: Any, failed: Any, encoding: Any) -> None:
        self._job = self._messages.begin_flush(self._now_ms())
        original(self, failed, encoding)

    return [(Flushes, "begin_if_due", begin_if_due), (Flushes, "_flush", flush)]


def tables_saved_when_they_are_encoded() -> list[Patch]:
    """What changes while a table is encoded does not count as a change."""
    original = Encoding.step

    def step(self: Any) -> None:
        original(self)
        if self.is_done:
            self._unsaved -= self.names

    return [(Encoding, "step", step)]


def expiry_that_overlooks_clients() -> list[Patch]:
    """Only commits count: a client that has nothing to consume commits nothing new."""
    original = OffsetExpiry.step

    def step(self: Any, is_live: Any, retention_ms: float, on_expired: Any = None) -> None:
        original(self, lambda group: False, retention_ms, on_expired)

    return [(OffsetExpiry, "step", step)]


def expiry_that_overlooks_commits() -> list[Patch]:
    """Only clients count: tools and jobs have none."""

    def note(self: Any, keys: Any) -> None:
        pass

    return [(OffsetExpiry, "note", note)]


def expiry_by_former_times() -> list[Patch]:
    """A leader goes on with what it knew when it led before."""

    def lead(self: Any) -> None:
        self._place = ""
        self._is_waiting = False
        self._count += 1

    return [(OffsetExpiry, "lead", lead)]


def removals_that_are_forgotten() -> list[Patch]:
    """No member removes a topic; the version says that it is gone."""
    original = StateMachine._change_topics

    def change_topics(self: Any, command: Any) -> Any:
        return original(self, replace(command, removed=()))

    return [(StateMachine, "_change_topics", change_topics)]
