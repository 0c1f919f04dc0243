"""FlushModes: the flush modes of the members (flushDiskType), as HELLO and its answer carry them.

The mode of the leader holds for what the group acknowledges, so a group whose members differ
promises after an election something else than before. That is reported; nothing is refused, for a
mode is changed member by member.
"""

from collections.abc import Iterable

from twisted.logger import Logger

from ledgermq.dledger.replica.config import FlushDiskType

_log = Logger()


class FlushModes:
    """What one process knows of the flush modes of its group."""

    def __init__(self, self_id: str, peer_ids: Iterable[str], own: FlushDiskType) -> None:
        """No peer is known yet; a Java member never is.

        Args:
            self_id: of this member.
            peer_ids: all others of the group.
            own: of this member.
        """
        self._self_id = self_id
        self._own = own
        # Last known mode of each peer, None before its first greeting.
        self._modes: dict[str, FlushDiskType | None] = dict.fromkeys(peer_ids)

    def greeted(self, peer_id: str, mode: FlushDiskType) -> None:
        """Takes the mode that a peer names; logs a difference once, and its end."""
        before = self._modes[peer_id] or self._own
        self._modes[peer_id] = mode
        if mode == before:
            return
        if mode == self._own:
            agree = "{self_id}: flushDiskType of {peer_id} is {mode}, as here"
            _log.info(agree, self_id=self._self_id, peer_id=peer_id, mode=mode.value)
        else:
            _log.warn(
                "{self_id}: flushDiskType differs: {self_id} has {own}, {peer_id} has {mode};"
                " the leader's holds for the group",
                self_id=self._self_id,
                own=self._own.value,
                peer_id=peer_id,
                mode=mode.value,
            )

    @property
    def difference(self) -> str:
        """Which modes differ, for operators; empty while all known ones are equal."""
        known = {peer_id: mode for peer_id, mode in self._modes.items() if mode is not None}
        if all(mode == self._own for mode in known.values()):
            return ""
        modes = sorted({**known, self._self_id: self._own}.items())
        return "flushDiskType differs: " + ", ".join(f"{id_} {mode.value}" for id_, mode in modes)
