"""The strong form of signatures: what it covers, for how long, and that it counts once."""

import os
from collections.abc import Callable

import pytest

from ledgermq.protocol.replays import Replays
from ledgermq.protocol.signature import Credentials, sign_strongly
from ledgermq.protocol.signature_check import WINDOW_MS, SignatureCheck

STOCK = Credentials(access_key="me-myself", secret_key="secret-1")
STRONG = Credentials(access_key="me-myself", secret_key="secret-1", form="strong")
BODY = b"body"


class Bench:
    """A check whose clocks are set."""

    def __init__(self, wanted: str = "any", *, behind_ms: int = 0) -> None:
        fields = STRONG.signed({}, b"", 1)
        self.now_ms, self.clock_ms = int(fields["SignedAt"]) + behind_ms, 0.0
        self._check = SignatureCheck(wanted, lambda: self.now_ms, lambda: self.clock_ms)

    def ask(
        self, fields: dict[str, str], body: bytes = BODY, code: int = 10, secret: str = "secret-1"
    ) -> str | None:
        return self._check.find_refusal(code, fields, body, "me-myself", secret)


def test_request_as_it_was_signed_counts_once() -> None:
    bench = Bench("strong")
    first, second = (STRONG.signed({"topic": "t"}, BODY, 10) for _ in range(2))
    assert bench.ask(second) is None and bench.ask(first) is None
    for again in (first, second):
        assert "it came before" in str(bench.ask(again))


CHANGES: dict[str, Callable[[dict[str, str]], dict[str, str]]] = {
    "value": lambda fields: {**fields, "topic": "u"},
    "name": lambda fields: {("tag" if k == "topic" else k): v for k, v in fields.items()},
    "field more": lambda fields: {**fields, "z": ""},
    "field less": lambda fields: {k: v for k, v in fields.items() if k != "topic"},
    "border of values": lambda fields: {**fields, "topic": "tq", "queue": ""},
    "time": lambda fields: {**fields, "SignedAt": str(int(fields["SignedAt"]) + 1)},
    "nonce": lambda fields: {**fields, "SignNonce": "0" * 32 + "-1"},
    "unique key mark": lambda fields: {**fields, "_UNIQUE_KEY_QUERY": "true"},
    "no signature": lambda fields: {k: v for k, v in fields.items() if k != "Signature"},
    "stock form": lambda fields: {k: v for k, v in fields.items() if k != "SignForm"},
    "unknown form": lambda fields: {**fields, "SignForm": "3"},
    "time of another script": lambda fields: {**fields, "SignedAt": "\u0661"},
    "nonce without a number": lambda fields: {**fields, "SignNonce": "0" * 32},
}


@pytest.mark.parametrize("change", CHANGES)
def test_request_that_was_changed_does_not_count(change: str) -> None:
    bench = Bench()
    fields = STRONG.signed({"topic": "t", "queue": "q"}, BODY, 10)
    assert "Check signature failed" in str(bench.ask(CHANGES[change](fields)))
    assert bench.ask(fields) is None


def test_code_body_and_secret_are_covered() -> None:
    bench = Bench()
    fields = STRONG.signed({"topic": "t"}, BODY, 10)
    assert bench.ask(fields, code=17) and bench.ask(fields, b"Body")
    assert bench.ask(fields, secret="secret-2")
    assert bench.ask(fields) is None


@pytest.mark.parametrize("away_ms", [WINDOW_MS + 1000, -WINDOW_MS - 1000])
def test_request_counts_for_a_time(away_ms: int) -> None:
    bench = Bench(behind_ms=away_ms)
    assert "by the clocks of both machines" in str(bench.ask(STRONG.signed({}, BODY, 10)))
    bench.now_ms -= away_ms
    assert bench.ask(STRONG.signed({}, BODY, 10)) is None


def test_forms_that_a_key_allows() -> None:
    stock = STOCK.signed({"topic": "t"}, BODY, 10)
    assert Bench().ask(stock) is None
    assert "allowed is strong (key aclSignature)" in str(Bench("strong").ask(stock))
    with pytest.raises(ValueError, match="request code"):
        STRONG.signed({}, b"")
    with pytest.raises(ValueError, match="form is 'weak'"):
        Credentials(access_key="a", secret_key="b", form="weak")  # type: ignore[arg-type]


def test_form_is_as_it_is_written_down() -> None:
    """A peer of another release reads the same bytes."""
    fields = {"a": "1", "b": "\u00e4", "SignForm": "2"}
    assert sign_strongly(10, fields, b"x", "k") == sign_strongly(
        10, dict(reversed(fields.items())), b"x", "k"
    )
    assert sign_strongly(10, fields, b"x", "k") == EXPECTED


EXPECTED = "fuaTWPODTb/JTPD7yw8Zwh4YAZ6SAk/lGBVibOduKy0="


def test_child_of_a_fork_has_a_session_of_its_own() -> None:
    own = STRONG.signed({}, b"", 1)["SignNonce"].partition("-")[0]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, STRONG.signed({}, b"", 1)["SignNonce"].encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100).decode().partition("-")[0] != own
    os.close(reading)
    os.close(writing)


def test_requests_may_overtake_each_other_within_bounds() -> None:
    replays = Replays(1000)
    for number in (5, 3, 16_000, 4):
        assert replays.find_refusal("a", "s", number, 0.0) is None
    for number in (5, 3, 16_000, 4):
        assert replays.find_refusal("a", "s", number, 0.0) == "it came before"
    assert replays.find_refusal("a", "s", 10**15 - 1, 0.0) is None
    assert "too far behind" in str(replays.find_refusal("a", "s", 16_001, 0.0))
    # Others are not concerned.
    assert replays.find_refusal("b", "s", 5, 0.0) is None


def test_sessions_are_bounded_and_forgotten() -> None:
    replays = Replays(1000)
    for number in range(1024):
        assert replays.find_refusal("a", f"s{number}", 0, 0.0) is None
    assert "allowed are 1024 and 16384" in str(replays.find_refusal("a", "more", 0, 1000.0))
    assert replays.find_refusal("a", "s0", 1, 1000.0) is None
    assert replays.find_refusal("a", "more", 0, 1001.0) is None
    # The one that was used stays.
    assert replays.find_refusal("a", "s0", 1, 1001.0) == "it came before"
    for account in range(16):
        for number in range(1024):
            replays.find_refusal(f"b{account}", f"s{number}", 0, 1001.0)
    assert "allowed are" in str(replays.find_refusal("c", "s", 0, 1001.0))
    assert "c" not in replays._accounts
    assert replays.find_refusal("c", "s", 0, 5000.0) is None
    assert list(replays._accounts) == ["c"]
