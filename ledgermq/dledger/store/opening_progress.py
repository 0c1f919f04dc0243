"""OpeningProgress: how far the opening of files is, for whoever waits for it or gives it up.

The thread that opens the files tells it; any other thread may look, and may ask for the end.
"""

from typing import Final, NamedTuple

# Bytes of a log between two words: a disk of 100 MB/s reads them in a twentieth of a second.
TOLD_BYTES: Final = 4 << 20


class OpeningStoppedError(Exception):
    """The opening was given up, as a kill would have ended it: the next one begins again."""

    def __init__(self) -> None:
        super().__init__("was told to stop before its files were open")


class OpeningStep(NamedTuple):
    """What is being done.

    Attributes:
        name: for people; empty before the first step.
        done, total: how far it is, in `unit`; a total of 0: not known.
    """

    name: str
    done: int
    total: int
    unit: str

    def __str__(self) -> str:
        far = f", {self.done} of {self.total} {self.unit}" if self.total else ""
        return f"{self.name}{far}"


class OpeningProgress:
    """One opening.

    Attributes:
        now: replaced as a whole by the thread that opens, so that others see one moment.
    """

    def __init__(self) -> None:
        self.now = OpeningStep("", 0, 0, "")
        # Set by the thread that gives it up, read by the one that opens.
        self._is_given_up = False

    def begin(self, name: str, total: int = 0, unit: str = "") -> None:
        """Tells that a step begins.

        Raises:
            OpeningStoppedError: nobody wants the files any more.
        """
        self._tell(OpeningStep(name, 0, total, unit))

    def reach(self, done: int) -> None:
        """Tells how far the step is, in its unit; raises as `begin` does."""
        self._tell(self.now._replace(done=done))

    def _tell(self, step: OpeningStep) -> None:
        self.now = step
        if self._is_given_up:
            raise OpeningStoppedError

    def give_up(self) -> None:
        """Has the opening end at its next word."""
        self._is_given_up = True
