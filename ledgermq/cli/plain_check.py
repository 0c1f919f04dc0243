"""Plain commit logs from outside: where they are, and the check of one against its consume queues.

What stands there and what is torn off is told by `convert_source.py`, which reads each record with
its CRC and its own word about its place. A plain log has no checkpoint: every whole record counts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ledgermq.cli.convert_source import ConvertError, StoreSource
from ledgermq.cli.queue_check import QueueCheck
from ledgermq.cli.segment_files import segment_paths
from ledgermq.cli.store_check import StoreReport
from ledgermq.protocol.record import decode_record_head


def find_plain_logs(path: Path) -> list[StoreSource]:
    """Returns the stores at or below a path that have a plain log; a log's own folder will do."""
    roots = [path.parent] if path.name == "commitlog" else [path, *sorted(path.glob("*/"))]
    found = [root for root in roots if segment_paths(root / "commitlog")]
    return [StoreSource(root) for root in found]


def check_plain_log(
    source: StoreSource, tell: Callable[[int, int], object] = lambda count, size: None
) -> StoreReport:
    """Walks one plain log and compares its consume queues with it.

    Args:
        source: may be in use.
        tell: told of records that are checked, and their bytes.

    Raises:
        OSError: a file cannot be read.
    """
    report = StoreReport(source.root / "commitlog", is_plain=True)
    queues = QueueCheck(report.add_defect, report.notes.append)
    try:
        for record in source.plain_records():
            if report.entries == 0:
                report.first_position = record.physical_offset
            report.entries += 1
            report.data_bytes += len(record.data)
            report.committed_position = record.physical_offset + len(record.data)
            queues.add(decode_record_head(record.data))
            tell(1, len(record.data))
    except ConvertError as error:
        report.add_defect(str(error))
    report.notes += source.notes
    report.queues, report.queue_units = queues.queue_count, queues.unit_count
    queues.check_files(source.root, report.committed_position)
    return report
