"""The table of processors of a broker that leads, behind its guard, without disk and network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import MagicMock

from twisted.internet.defer import succeed

from ledgermq.audit.audit_log import AuditLog
from ledgermq.broker.access.rules import parse_rules
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.audit.changes import Tables
from ledgermq.broker.audit.watch import Watch
from ledgermq.broker.dispatch import Processor
from ledgermq.broker.service.parts import Parts as ServiceParts
from ledgermq.broker.service.processor_table import bind_processors
from ledgermq.protocol.headers import Header
from ledgermq.protocol.headers.header import numbers_of
from ledgermq.protocol.record import encode_record
from tests.unit.broker.parts import HOST, Parts


class Log:
    """A store with some records; of all else it knows nothing."""

    def __init__(self, records: Mapping[int, bytes]) -> None:
        self._records = records

    def record_at(self, physical_offset: int) -> bytes | None:
        return self._records.get(physical_offset)

    def __getattr__(self, name: str) -> Any:
        return MagicMock(return_value=0)


def record_of(topic: str, properties: bytes, body: bytes = b"body") -> bytes:
    return encode_record(topic.encode(), 0, 0, 0, 0, 0, 0, HOST, 0, HOST, 0, 0, body, properties)


def fields_of_all_headers(text: str, number: int) -> dict[str, str]:
    """A value that can be read for every field of every header: one for texts, one for numbers."""
    fields: dict[str, str] = {}
    numbers: set[str] = set()
    waiting: list[type[Header]] = [Header]
    while waiting:
        header_class = waiting.pop()
        waiting += header_class.__subclasses__()
        if header_class is not Header:
            numbers.update(key for key, _ in numbers_of(header_class))
            fields.update(dict.fromkeys(header_class.__struct_encode_fields__, text))
    return fields | dict.fromkeys(sorted(numbers), str(number))


class GuardedTable(NamedTuple):
    """The table, the parts behind it, and the rules before it."""

    table: dict[int, Processor]
    parts: Parts
    rules: RulesTable


def guarded_table(
    folder: Path, rules: Mapping[str, Any], log: Any = None, audit: AuditLog | None = None
) -> GuardedTable:
    """Binds all processors.

    Args:
        folder: where the files of the rules would lie.
        rules: content of plain_acl.yml.
        log: the store; None: an empty one.
        audit: takes lines about changes and refusals; None: nobody does.
    """
    parts = Parts().lead()
    table = parts.state.access = RulesTable(folder / "plain_acl.yml", lambda: 0)
    table.rules = parse_rules(rules)
    messages: Any = Log({}) if log is None else log
    nothing: Any = MagicMock()
    bound = bind_processors(
        ServiceParts(
            config=parts.config, leadership=parts.leadership, state=parts.state,
            clients=parts.clients, parked=parts.parked,
            proposals=parts.proposals, messages=messages, rates=nothing, rules=table,
            store_host=HOST, machine_memory_bytes=1 << 30, clean_soon=nothing,
            topics_told=lambda: succeed(None), relay_offset=nothing,
            now_ms=lambda: parts.now_ms, expiry_ms=lambda: parts.now_ms,
            clock_ms=lambda: 0.0,
            soon=nothing, rng=Random(1),
            audit=None if audit is None else Watch(audit, Tables(parts.state, parts.config, table)),
        )
    )  # fmt: skip
    return GuardedTable(bound.table, parts, table)
