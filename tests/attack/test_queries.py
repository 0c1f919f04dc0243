"""A query by key finds messages of the topic that it names, whatever else has the same hash."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.properties import format_properties
from tests.attack.closed_broker import SHOP, THIEF, ask, closed_broker
from tests.e2e.wire_client import WireClient, send_fields
from tests.processes import LiveProgram


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    with closed_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running.wait_until_serving()


def java_hash(text: str) -> int:
    value = 0
    for character in text:
        value = (value * 31 + ord(character)) & 0xFFFFFFFF
    return value


def key_with_hash(prefix: str, wanted: int) -> str:
    """Returns a text such that prefix and text together have a hash."""
    letters = [chr(code) for code in range(33, 127)]
    # By what the last three characters add to a hash.
    tails = {java_hash("".join(tail)): "".join(tail) for tail in product(letters, repeat=3)}
    for head in map("".join, product(letters, repeat=4)):
        rest = (wanted - java_hash(prefix + head) * 31**3) & 0xFFFFFFFF
        if rest in tails:
            return head + tails[rest]
    raise AssertionError("no such key")


def test_key_with_the_hash_of_a_foreign_one_finds_nothing(program: LiveProgram) -> None:
    secret_key = "customer-4711"
    twin = key_with_hash("bait#", java_hash(f"orders#{secret_key}"))
    assert java_hash(f"bait#{twin}") == java_hash(f"orders#{secret_key}")
    with WireClient(program.address) as client:
        properties = format_properties({"KEYS": secret_key})
        fields = send_fields("orders", 0, properties=properties)
        assert ask(client, SHOP, RequestCode.SEND_MESSAGE, fields, b"of the shop").code == 0
        query = {
            "topic": "orders", "key": secret_key, "maxNum": "32",
            "beginTimestamp": "0", "endTimestamp": str(2**62),
        }  # fmt: skip
        found = ask(client, SHOP, RequestCode.QUERY_MESSAGE, query)
        assert found.code == 0 and b"of the shop" in found.body
        refused = ask(client, THIEF, RequestCode.QUERY_MESSAGE, query)
        assert refused.code != 0 and "topic:orders" in str(refused.remark)
        stolen = ask(
            client, THIEF, RequestCode.QUERY_MESSAGE, {**query, "topic": "bait", "key": twin}
        )
        assert stolen.code == ResponseCode.QUERY_NOT_FOUND
        assert b"of the shop" not in stolen.body
