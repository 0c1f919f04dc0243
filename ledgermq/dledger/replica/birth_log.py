"""BirthLog: what a person is told of the birth of a group, in the log and as a status.

A group that waits for its birth has no leader, so its members say for whom they wait: after three
seconds, when that changes, and each minute. Two births in one group are an error, told once for
each peer.
"""

from typing import Final

from twisted.logger import Logger

from ledgermq.dledger.birth import Birth, is_agreed
from ledgermq.dledger.raft import Raft

# A group whose members are all started at once is born before that.
_PATIENCE_MS: Final = 3_000
# Least time between two lines about a group that waits, and the time after which one is repeated.
_PAUSE_MS: Final = 5_000
_REPEAT_MS: Final = 60_000

_log = Logger()


class BirthLog:
    """Tells of one member."""

    def __init__(self, raft: Raft, now_ms: float) -> None:
        """The member starts; nothing was told yet."""
        self._raft = raft
        self._self_id = raft.config.self_id
        # When the member started, and when the last line about waiting was written.
        self._since_ms = now_ms
        self._told_ms = float("-inf")
        self._told = ""
        # Whether this process has begun without an agreed birth and not told of one since.
        self._is_unborn = not is_agreed(raft.birth)
        self._named: dict[str, Birth] = {}

    def look(self, now_ms: float) -> None:
        """Looks at the core, now and then, and logs what is new."""
        raft = self._raft
        for peer_id, birth in raft.census.strangers.items():
            if self._named.get(peer_id) != birth:
                self._named[peer_id] = birth
                self._complain(peer_id, birth)
        if not self._is_unborn:
            return
        if is_agreed(raft.birth):
            self._is_unborn = False
            _log.info("{self_id}: {text}", self_id=self._self_id, text=birth_text(raft))
        elif raft.census.waits_for() and now_ms - self._since_ms >= _PATIENCE_MS:
            self._tell(birth_text(raft), now_ms)

    def _tell(self, text: str, now_ms: float) -> None:
        pause_ms = _REPEAT_MS if text == self._told else _PAUSE_MS
        if now_ms - self._told_ms >= pause_ms:
            self._told, self._told_ms = text, now_ms
            _log.warn("{self_id}: {text}", self_id=self._self_id, text=text)

    def _complain(self, peer_id: str, birth: Birth) -> None:
        own = self._raft.birth
        assert own is not None
        _log.error(
            "{self_id}: {peer_id} holds the birth of another group and counts for nothing here:"
            " {their_id}, here it is {own_id}; one of the two has the wrong directory",
            self_id=self._self_id,
            peer_id=peer_id,
            their_id=birth.group_id,
            own_id=own.group_id,
        )


def birth_text(raft: Raft) -> str:
    """Returns in a line whether the group is born, and for whom it waits if not."""
    birth, waits_for = raft.birth, raft.census.waits_for()
    others = "".join(
        f"; {peer_id} holds birth {other.group_id} of another group"
        for peer_id, other in sorted(raft.census.strangers.items())
    )
    if birth is not None and birth.is_agreed:
        text = f"the group is born: {birth.group_id}, by {', '.join(birth.members)}"
    elif raft.is_mixed:
        text = "the group has no birth, for a Java member is in it"
    elif waits_for:
        reasons = ", ".join(f"{peer_id} ({why})" for peer_id, why in sorted(waits_for.items()))
        is_new = raft.census.is_new
        text = "the group is not born yet and has no leader" if is_new else "no birth yet"
        text += f", it waits for {reasons}"
    elif raft.recovering:
        text = "no birth yet: this member recovers, and its leader brings it"
    else:
        text = "the group is being born"
    return text + others
