"""LinkWatch: when is a link to a peer dead? No I/O and no clock: somebody asks at each heart beat.

A link is dead when something was asked on it and nothing at all has come back for some heart beats.
Heart beats are counted, not time: a member that was held up itself looks once, reads what has come
meanwhile, and blames nobody.

A peer may just be slow: then the link that replaces this one is as silent, and closing it so soon
again would keep the two apart for good. So each link that is given up makes the next one wait twice
as long, up to a limit, until a link has been answered in time for a while. A network that is cut
does not count as that: no new link is made while it lasts.
"""

from typing import Final

# Longest silence that is borne, and answered looks that end the doubling.
_LOOKS_MAX: Final = 20
_PROMPT_LOOKS: Final = 10


class LinkWatch:
    """Looks at one link, and at the ones that replace it."""

    __slots__ = ("_is_owed", "_least", "_limit", "_prompt_count", "_seen_count", "_silent_count")

    def __init__(self, silent_looks_max: int) -> None:
        """Begins without a link.

        Args:
            silent_looks_max: looks in a row that find nothing new, of which the last one ends the
                link.
        """
        assert silent_looks_max > 0
        self._least = self._limit = silent_looks_max
        self._is_owed = False
        self._silent_count = 0
        self._prompt_count = 0
        # What had come when it was looked at last.
        self._seen_count = 0

    def opened(self) -> None:
        """A new link; nothing is owed on it yet."""
        self._is_owed = False
        self._silent_count = self._prompt_count = self._seen_count = 0

    def bear(self, silent_looks_max: int) -> None:
        """Changes how much silence is borne, unless the doubling has raised it above that."""
        self._least = silent_looks_max
        self._limit = max(self._limit, silent_looks_max)

    def asked(self) -> None:
        """Something was sent that the peer answers."""
        self._is_owed = True

    def is_dead(self, received_count: int) -> bool:
        """Looks at the link.

        Args:
            received_count: how often something has come on it so far.
        """
        if received_count != self._seen_count:
            self._seen_count = received_count
            self._is_owed = False
            self._silent_count = 0
            self._prompt_count += 1
            if self._prompt_count >= _PROMPT_LOOKS:
                self._limit = self._least
        elif self._is_owed:
            self._silent_count += 1
            self._prompt_count = 0
        if self._silent_count < self._limit:
            return False
        self._limit = max(self._least, min(2 * self._limit, _LOOKS_MAX))
        return True
