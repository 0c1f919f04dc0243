"""A proof serves one side of one connection, and nothing else."""

import hashlib
import hmac

import pytest

from ledgermq.protocol.member_proof import Challenge, Side, draw_nonce, is_nonce

KEY = b"k" * 32
CHALLENGE = Challenge("ledger 3", "g", "n1", "n0", "a" * 64, "b" * 64)


def test_a_proof_is_a_keyed_digest_of_all_that_was_agreed() -> None:
    """Each field with its length before it, so that no two lists of fields have the same bytes."""
    fields = (b"LedgerMQ", b"ledger 3", b"g", b"n1", b"n0", b"a" * 64, b"b" * 64, b"opener")
    data = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
    assert CHALLENGE.proof(KEY, Side.OPENER) == hmac.new(KEY, data, hashlib.sha256).hexdigest()
    assert CHALLENGE.is_proven(KEY, Side.OPENER, CHALLENGE.proof(KEY, Side.OPENER))


@pytest.mark.parametrize(
    "other",
    [
        {"protocol": "ledger 4"},
        {"group": "h"},
        {"opener": "n2"},
        {"answerer": "n2"},
        {"opener": "n0", "answerer": "n1"},
        {"opener_nonce": "c" * 64},
        {"answerer_nonce": "c" * 64},
        {"opener_nonce": "b" * 64, "answerer_nonce": "a" * 64},
    ],
)
def test_a_proof_serves_no_other_connection(other: dict[str, str]) -> None:
    proof = CHALLENGE._replace(**other).proof(KEY, Side.OPENER)
    assert not CHALLENGE.is_proven(KEY, Side.OPENER, proof)


def test_a_proof_that_is_sent_back_proves_nothing() -> None:
    proof = CHALLENGE.proof(KEY, Side.ANSWERER)
    assert not CHALLENGE.is_proven(KEY, Side.OPENER, proof)


@pytest.mark.parametrize("proof", ["", "0" * 64, "ä" * 64, "\ud7ff", "x" * 10_000])
def test_what_is_no_proof_proves_nothing(proof: str) -> None:
    assert not CHALLENGE.is_proven(KEY, Side.OPENER, proof)
    assert not CHALLENGE.is_proven(KEY, Side.OPENER, CHALLENGE.proof(b"x" * 32, Side.OPENER))


def test_nonces_differ_and_are_known_by_their_form() -> None:
    nonces = {draw_nonce() for _ in range(100)}
    assert len(nonces) == 100 and all(map(is_nonce, nonces))
    assert not any(map(is_nonce, ("", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 64 + "\n")))
