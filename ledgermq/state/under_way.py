"""UnderWay: whoever asks when all is done that was proposed so far is told when the last of it is.

Pure.
"""

from collections import deque
from collections.abc import Callable

from ledgermq.state.errors import BrokerError

# Told when a change is committed and applied, or why that is not known.
OnCommitted = Callable[[BrokerError | None], None]


class UnderWay:
    """The proposals that have not ended yet.

    Invariant: they end in the order in which they began, but for those that the log refuses, which
    end at once.
    """

    def __init__(self) -> None:
        # Of each, in their order: who waits for it.
        self._proposals: deque[list[OnCommitted]] = deque()

    def __len__(self) -> int:
        return len(self._proposals)

    def begin(self, done: OnCommitted | None) -> OnCommitted:
        """Notes a proposal, for which `done` waits; returns what is to be told of its end."""
        waiting = [] if done is None else [done]
        self._proposals.append(waiting)

        def ended(error: BrokerError | None) -> None:
            if self._proposals[0] is waiting:
                self._proposals.popleft()
            else:
                # It was refused. Equal lists are not the same proposal.
                self._proposals = deque(one for one in self._proposals if one is not waiting)
            for tell in waiting:
                tell(error)

        return ended

    def join(self, done: OnCommitted) -> None:
        """Has `done` told what became of the last proposal: at once when nothing is under way."""
        if self._proposals:
            self._proposals[-1].append(done)
        else:
            done(None)
