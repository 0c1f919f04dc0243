"""StoreAudit: what an audit found in one store."""

from dataclasses import dataclass, field
from pathlib import Path

from ledgermq.spark.segment_audit import QueueName, QueueUnits, SegmentFindings
from ledgermq.spark.segment_files import is_in_store
from ledgermq.spark.segment_plan import SegmentRange


@dataclass(slots=True, kw_only=True)
class StoreAudit:
    """What was found in one store."""

    # The member's directory with data/, absolute, or its URL.
    directory: str
    # The broker group whose log it holds; stores of one group are replicas of each other.
    group: str = ""
    segments: list[SegmentRange] = field(default_factory=list)
    findings: list[SegmentFindings] = field(default_factory=list)
    queues: dict[QueueName, QueueUnits] = field(default_factory=dict)
    defects: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the directory."""
        return self.directory.rpartition("/")[2]

    @property
    def root(self) -> Path | None:
        """The store directory, with consumequeue/; None in an object store, where logs are copied
        without it.
        """
        return None if is_in_store(self.directory) else Path(self.directory).parent

    @property
    def first_position(self) -> int:
        """Where the checked entries begin; 0 when there are none."""
        return min((f.first_position for f in self.findings if f.first_index >= 0), default=0)

    @property
    def entry_count(self) -> int:
        """Checked entries."""
        good = [found for found in self.findings if found.first_index >= 0]
        return sum(found.last_index - found.first_index + 1 for found in good)

    @property
    def byte_count(self) -> int:
        """Of the checked entries."""
        return sum(found.byte_count for found in self.findings)

    @property
    def end_position(self) -> int:
        """Behind the last checked entry; 0 when there are none."""
        return max((f.end_position for f in self.findings), default=0)
