"""Whose producers may be asked about a half message."""

from pathlib import Path

import pytest

from ledgermq.broker.access.questions import may_be_asked
from ledgermq.broker.access.rules import parse_rules
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.records.half_messages import HalfMessage, account_mark, half_from
from tests.unit.broker.access.test_guard import RULES, record


def half(topic: str, account: str | None) -> HalfMessage:
    text = f"REAL_TOPIC\x01{topic}\x02REAL_QID\x010"
    if account is not None:
        text += f"\x02LEDGERMQ_ACCOUNT\x01{account_mark(account)}"
    found = half_from(record("RMQ_SYS_TRANS_HALF_TOPIC", text))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("sender", "asked", "expected"),
    [
        ("orders-app", "orders-app", True),
        ("orders-app", "greedy-app", False),
        ("orders-app", "operator", False),
        ("orders-app", "nobody-there", False),
        ("operator", "orders-app", False),
        # Sent from an address that may do everything: by the right to the topic.
        (None, "orders-app", True),
        (None, "greedy-app", True),
        (None, "operator", True),
        (None, "idle-app", False),
        (None, "shut-out", False),
    ],
)
def test_account_that_sent_it_is_asked(
    tmp_path: Path, sender: str | None, asked: str, expected: bool
) -> None:
    table = RulesTable(tmp_path / "plain_acl.yml", lambda: 0)
    table.rules = parse_rules(RULES)
    assert may_be_asked(table)(half("orders", sender), asked) is expected


def test_without_access_control_the_group_decides() -> None:
    assert may_be_asked(None)(half("orders", "orders-app"), "anybody") is True
