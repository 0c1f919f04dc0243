"""LogCoverage: how much of the state the log tells, should the state's files be lost. Pure."""

from ledgermq.state.machine import StateMachine


class LogCoverage:
    """What is known of one member's log and state."""

    def __init__(self, machine: StateMachine) -> None:
        """The log tells everything from its first entry on."""
        self._machine = machine
        # A sweep that begins here or later tells the whole state. 0: a log that begins at its first
        # entry needs no sweep.
        self.logged_from = 0
        # Copies of a leader that writes no commands, since the start.
        self.copies_count = 0

    @property
    def sweep_index(self) -> int:
        """Where the last whole sweep begins that is committed, -1 while none was seen."""
        return self._machine.sweep_index

    def restore_sweep_index(self, index: int) -> None:
        """Takes over what was known when the state's files were written; what was applied since
        tells more.
        """
        self._machine.sweep_index = max(self._machine.sweep_index, index)

    def is_whole(self, first_index: int) -> bool:
        """Tells whether a log that begins at this index has told the whole state."""
        if self.logged_from == 0 and first_index == 0:
            return True
        return self.sweep_index >= max(self.logged_from, first_index)

    def note_unlogged(self, end_index: int) -> None:
        """Takes that the state as of an index holds what no record below it says."""
        self.logged_from = max(end_index, 1)

    def copied(self) -> None:
        """Takes that all tables were copied from a leader that writes no commands."""
        self.copies_count += 1
        self.note_unlogged(self._machine.progress.end_index)
