"""StateRepair: what becomes of the broker's state when some of its files are not believed.

    the log tells the whole state    it is replayed at the opening, from the last whole sweep on
    the log does not                 the state is in doubt: this member does not serve, whatever the
                                     ledger says, until a leader's sweep has sent all of it

A log lacks part of the state as long as that part came from files or a leader of Java and no leader
of ours has swept since; where the checkpoint is lost, too, only a sweep proves the contrary. The
doubt is kept in the checkpoint, so that files written later do not hide it.

An operator may have a start take the files as they are: see `acceptance.py`.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from twisted.logger import Logger

from ledgermq.broker.storage.state_loading import FoundFile, LoadRule, owner_text
from ledgermq.commitlog.checkpoint import DispatchMark, StateMark
from ledgermq.state.log_coverage import LogCoverage

_ID_BYTES: Final = 4
_NEVER: Final = 1 << 63

_log = Logger()


class StateRepair:
    """The doubt of one member about its state.

    Invariant: while `doubt` is not empty this member neither serves nor sweeps.
    """

    def __init__(self, coverage: LogCoverage, owner: str, root: str) -> None:
        """Knows of no doubt.

        Args:
            coverage: how much of the state the log tells.
            owner: name of this store.
            root: its directory, for people.
        """
        self._coverage = coverage
        self._owner, self._root = owner, root
        self._store_id = secrets.token_hex(_ID_BYTES)
        self._doubt = ""
        self._found: Sequence[FoundFile] = ()
        # Whether files were believed because an operator said so.
        self._is_accepted = False
        # A sweep that begins behind this entry tells the whole state once more; before the end of
        # the opening there is none.
        self._opened_index = _NEVER
        # Whether the files are to be written at this opening although nothing was replayed.
        self.must_save = False

    def owner_text(self) -> str:
        """Returns how the seals of this store's files name it."""
        return owner_text(self._owner, self._store_id)

    # The opening, in order.

    def load(self, mark: DispatchMark | None, rule: LoadRule, found: Sequence[FoundFile]) -> bool:
        """Takes what a start found of the state's files; tells whether the log is to be replayed.

        Args:
            mark: the checkpoint, None when there is none that can be read.
            rule: by which the files were judged.
            found: one for each file.
        """
        self._found = found
        self._is_accepted = any(one.is_accepted for one in found)
        has_foreign = any(one.content and not one.is_sealed for one in found)
        is_swept = mark is not None and mark.state_index >= 0
        if mark is not None and mark.state is not None:
            self._store_id, self._coverage.logged_from = mark.state.store_id, mark.state.logged_from
            self._doubt = "" if self._is_accepted else mark.state.doubt
        is_unlogged = has_foreign and (not is_swept or rule.is_after_java) or rule.owner is None
        if rule.is_mark_lost or self._is_accepted or is_unlogged:
            self._coverage.note_unlogged(0 if mark is None else mark.index + 1)
        has_problem = any(one.problem is not None for one in found)
        self.must_save = has_problem or is_unlogged or has_foreign
        self.must_save |= rule.is_mark_lost or self._is_accepted
        return self._is_lost or bool(self._doubt)

    @property
    def _is_lost(self) -> bool:
        return any(one.is_lost for one in self._found)

    def replayed(self, first_index: int) -> None:
        """Judges the state: what the log tells is replayed, and nothing is saved yet.

        Args:
            first_index: where the log begins.
        """
        problems = [one.problem for one in self._found if one.problem is not None]
        if self._is_lost or self._doubt:
            reason = "; ".join(problems) or self._doubt
            self._doubt = "" if self._coverage.is_whole(first_index) else reason
        if self._doubt:
            _log.error(
                "the state of this broker is in doubt, it does not serve until another member"
                " leads and has sent all of it: {reason}; {cure}",
                reason=self._doubt,
                cure=self._cure,
            )
            return
        for problem in problems:
            _log.warn(
                "a state file is not used, what it lacks is taken from the log: {problem} (kept as"
                " *.refused; {cure})",
                problem=problem,
                cure=self._cure,
            )

    def opened(self, dispatched_index: int) -> None:
        """Takes up to where the log is applied now, and that the checkpoint tells of this start."""
        self._opened_index = dispatched_index
        if self._is_accepted:
            _log.warn("the state files are taken as they are, as an operator decided")

    # While the broker runs.

    @property
    def _cure(self) -> str:
        return f"to have the files taken as they are: ledgermq store accept-state {self._root}"

    @property
    def doubt(self) -> str:
        """Why the state is not complete; empty when it is."""
        if self._doubt and (self._is_swept or self._coverage.copies_count):
            _log.info("the state of this broker is complete again, another member has sent it")
            self._doubt = ""
        return self._doubt

    @property
    def wants_sweep(self) -> bool:
        """Whether this member needs all of the state from its leader."""
        return bool(self.doubt) or (self._is_accepted and not self._is_swept)

    @property
    def _is_swept(self) -> bool:
        return self._coverage.sweep_index > self._opened_index

    @property
    def alarm(self) -> str | None:
        """What operators have to know; None while all is well."""
        if not self.doubt:
            return None
        return f"the state of this broker is in doubt: {self._doubt}; {self._cure}"

    def mark(self, indexes: Mapping[str, int]) -> StateMark:
        """Returns what the next checkpoint says.

        Args:
            indexes: that each file stands for at least, by name.
        """
        return StateMark(
            store_id=self._store_id,
            files=indexes,
            logged_from=self._coverage.logged_from,
            doubt=self.doubt,
        )
