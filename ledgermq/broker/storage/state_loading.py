"""Which state files a start believes. Pure but for the reading.

A file is believed when its seal fits, names this store, and stands for an index that is not older
than the one that the checkpoint names for the file; from the checkpoint on the log is replayed. The
copy `.bak` has to pass the same. All else is made again from the log, or by a leader's sweep
(`state_repair.py`).

A file without a seal is believed in a store whose checkpoint names no sealed files: one that a Java
broker or an older program wrote, or a new one. There `.bak` serves only where the file itself is
missing, which is how Java leaves it when it stops between two steps of a replacement. In a store
with seals it is believed only where upstream's own checkpoint shows that Java has run there since.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ledgermq.broker.storage.state_files import ContentFile, parse_object
from ledgermq.commitlog.checkpoint import DispatchMark
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.file_seal import BrokenSealError, read_seal

# In place of a checksum: the file is not there.
MISSING: Final = "missing"


class FoundFile(NamedTuple):
    """What a start makes of one state file."""

    # None: there is nothing, or nothing that can be believed.
    content: Mapping[str, Any] | None
    is_sealed: bool = True
    # Whether an operator has accepted it as it is.
    is_accepted: bool = False
    # Why the file, or that it is missing, is not believed; None when it is. With a content: that is
    # of its copy.
    problem: str | None = None

    @property
    def is_lost(self) -> bool:
        """Whether what the file held has to come from elsewhere."""
        return self.content is None and self.problem is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRule:
    """What a start demands of state files; by default nothing but that they can be read."""

    # Name of this store; None: the files come from a log of another kind in this directory, so that
    # seals have another name, and indexes of that log.
    owner: str | None = ""
    # Drawn for this store; empty where that is not known: then seals are compared by the name.
    store_id: str = ""
    # Whether files need a seal.
    needs_seals: bool = False
    # Whether a Java broker has run here since the checkpoint: it writes files without seals.
    is_after_java: bool = False
    # Lowest index of each file that the checkpoint names; those of all others follow.
    indexes: Mapping[str, int] = field(default_factory=dict)
    other_index: int = -1
    # Checksums of files that an operator has accepted as they are; MISSING for one that is not
    # there.
    accepted: Mapping[str, str] = field(default_factory=dict)
    # The checkpoint is there and cannot be read: what it named is not known.
    is_mark_lost: bool = False

    def find(self, file: ContentFile) -> FoundFile:
        """Reads a file, or its copy, and judges it."""
        name, problems = file.name, list[str]()
        main = file.read()
        if self.accepted.get(name) == checksum_of(main):
            content = None if main is None else _parsed(main)
            return FoundFile(content, is_sealed=False, is_accepted=True)
        if main is not None:
            try:
                return self._judge(name, main)
            except ValueError as error:
                problems.append(f"{file}: {error}")
        copy = file.read(copy=True) if main is None or self.needs_seals else None
        is_expected = name in self.indexes or self.is_mark_lost
        if main is None and (copy is not None or is_expected):
            problems.append(f"{file}: it is missing")
        if copy is not None:
            try:
                return self._judge(name, copy)._replace(problem="; ".join(problems))
            except ValueError as error:
                problems.append(f"{file}.bak: {error}")
        return FoundFile(None, problem="; ".join(problems) or None)

    def _judge(self, name: str, raw: bytes | OSError) -> FoundFile:
        """Returns the content that is believed.

        Raises:
            ValueError: it is not believed.
        """
        seal = None if isinstance(raw, OSError) else read_seal(raw)
        is_needed = self.needs_seals and not self.is_after_java
        if seal is None and is_needed and isinstance(raw, bytes):
            raise BrokenSealError("it has no seal: it is damaged, or another program wrote it")
        if seal is not None and self.owner is not None:
            owner = seal.owner if self.store_id else seal.owner.rpartition("/")[0]
            own = owner_text(self.owner, self.store_id)
            if owner != own:
                raise ValueError(f"it belongs to the store {owner!r}, and this one is {own!r}")
            needed = self.indexes.get(name, self.other_index)
            if seal.version < needed:
                raise ValueError(
                    f"it is an older copy: it stands for entry {seal.version}, and the checkpoint"
                    f" needs {needed}"
                )
        return FoundFile(_parsed(raw), is_sealed=seal is not None)


def _parsed(raw: bytes | OSError) -> Mapping[str, Any]:
    """
    Raises:
        ValueError: it is no JSON object.
    """
    if isinstance(raw, OSError):
        raise ValueError(raw.strerror)
    return parse_object(raw)


def checksum_of(content: bytes | OSError | None) -> str:
    """Returns the checksum of a file's content, as `accepted` names it."""
    return f"{crc32c(content):08x}" if isinstance(content, bytes) else MISSING


def owner_text(owner: str, store_id: str) -> str:
    """Returns how seals name a store."""
    return f"{owner}/{store_id}" if store_id else owner


def rule_of(
    owner: str | None,
    mark: DispatchMark | None,
    *,
    has_mark_file: bool,
    is_after_java: bool = False,
    accepted: Mapping[str, str],
) -> LoadRule:
    """Returns what a start demands.

    Args:
        owner: name of this store; None: see LoadRule.
        mark: the checkpoint, None when it is missing or cannot be read.
        has_mark_file: whether it is there.
        is_after_java: whether upstream's checkpoint is not the one that was written with it.
        accepted: files that an operator has accepted as they are.
    """
    is_lost = mark is None and has_mark_file
    state = None if mark is None else mark.state
    return LoadRule(
        owner=owner,
        store_id="" if state is None else state.store_id,
        needs_seals=is_lost or state is not None,
        is_after_java=is_after_java,
        indexes={} if state is None else state.files,
        other_index=-1 if mark is None or state is None else mark.index,
        accepted=accepted,
        is_mark_lost=is_lost,
    )
