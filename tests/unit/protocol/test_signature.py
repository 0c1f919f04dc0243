"""Signatures as Java's client makes them."""

from ledgermq.protocol.signature import Credentials, is_signed_by, sign


def test_signature_is_that_of_a_java_client() -> None:
    """The text was made by AclUtils and AclSigner of 4.9.3 from these fields."""
    fields = {"b": "TopicA", "AccessKey": "orders-app", "a": "group", "g": "1", "i": "K\x01v\x02é"}
    assert sign(fields, b"body", "secret-1") == "WyCBzpue5Z0CSapMyf/xASgeP5I="


def test_only_signature_and_mark_of_a_unique_key_query_do_not_count() -> None:
    fields = {"topic": "t", "AccessKey": "k"}
    text = sign(fields, b"", "secret-1")
    assert sign({**fields, "Signature": "x", "_UNIQUE_KEY_QUERY": "true"}, b"", "secret-1") == text
    assert sign({**fields, "SecurityToken": "x"}, b"", "secret-1") != text


def test_what_was_signed_is_found_signed() -> None:
    credentials = Credentials(access_key="orders-app", secret_key="secret-1")
    fields = credentials.signed({"topic": "t"}, b"body")
    assert fields["AccessKey"] == "orders-app" and fields["topic"] == "t"
    assert is_signed_by(fields, b"body", "secret-1")
    assert not is_signed_by(fields, b"Body", "secret-1")
    assert not is_signed_by(fields, b"body", "secret-2")
    assert not is_signed_by({**fields, "Signature": ""}, b"body", "secret-1")
    assert credentials.signed(None, b"")["Signature"] == sign(
        {"AccessKey": "orders-app"}, b"", "secret-1"
    )


def test_secret_is_not_shown() -> None:
    assert "secret-1" not in repr(Credentials(access_key="orders-app", secret_key="secret-1"))
