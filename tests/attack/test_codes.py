"""Every request code of a broker has a row that says what it takes; nothing passes without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledgermq.broker.access.codes import CODES, describe
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.signature import Credentials
from ledgermq.state.errors import AccessDeniedError
from tests.unit.broker.guarded import GuardedTable, guarded_table
from tests.unit.broker.parts import ListConnection

SMALL = Credentials(access_key="orders-app", secret_key="secret-1")
IDLE = Credentials(access_key="idle-app", secret_key="secret-2")
OPERATOR = Credentials(access_key="operator", secret_key="secret-3")
RULES: dict[str, Any] = {
    "accounts": [
        {
            "accessKey": SMALL.access_key, "secretKey": SMALL.secret_key,
            "topicPerms": ["orders=PUB|SUB"], "groupPerms": ["readers=SUB"],
        },
        {"accessKey": IDLE.access_key, "secretKey": IDLE.secret_key},
        {"accessKey": OPERATOR.access_key, "secretKey": OPERATOR.secret_key, "admin": True},
    ]
}  # fmt: skip
PAGE = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> GuardedTable:
    return guarded_table(tmp_path_factory.mktemp("rules"), RULES)


def test_every_processor_has_a_row_and_every_row_a_processor(broker: GuardedTable) -> None:
    """Whoever adds a processor says in `codes.py` what it takes, or nobody reaches it."""
    assert {RequestCode(code).name for code in broker.table} == {
        RequestCode(code).name for code in CODES
    }
    assert all(row.wants for row in CODES.values())
    # An admin's row says so, and no other one.
    assert all((row.touches is None) == (row.wants == "admin") for row in CODES.values())


def test_page_has_the_table_as_it_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    start = text.index("<!-- codes:begin")
    shown = text[text.index("\n", start) + 1 : text.index("<!-- codes:end -->")]
    # What `describe` returns belongs between the marks.
    assert shown == describe()


def test_no_code_passes_without_an_account_or_without_a_right(broker: GuardedTable) -> None:
    """Whatever a request names; none reaches a processor."""
    stranger = Credentials(access_key="stranger", secret_key="secret-1")
    forged = Credentials(access_key="operator", secret_key="secret-1")
    named = {"topic": "orders", "b": "orders", "group": "readers", "consumerGroup": "readers"}
    for code, processor in broker.table.items():
        for who in (None, stranger, forged, IDLE):
            for fields in ({}, named):
                signed = fields if who is None else who.signed(fields, b"{}")
                connection: Any = ListConnection()
                request = RemotingCommand(code=code, ext_fields=signed, body=b"{}")
                # With a good signature the header may be what is wrong.
                causes = (
                    (AccessDeniedError, RemoteProtocolError) if who is IDLE else AccessDeniedError
                )
                with pytest.raises(causes):
                    processor(connection, request)
                assert connection.commands == [] and connection.account is None
