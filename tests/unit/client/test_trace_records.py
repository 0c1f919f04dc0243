"""Records of the trace topic, against texts as the stock client 4.9.3 writes them."""

from ledgermq.client.trace_records import (
    Kind,
    Outcome,
    Traced,
    begun_record,
    ended_record,
    keys_of,
    sent_record,
    transaction_record,
)

FULL = Traced("T", "ID", "tag", "k1 k2", "DefaultRegion")
BARE = Traced("T", "ID", "", "", "DefaultRegion")


def test_send() -> None:
    def record(traced: Traced) -> str:
        return sent_record(
            traced,
            time_ms=1700000000000,
            group="g",
            store_host="127.0.0.1:10911",
            body_bytes=5,
            cost_ms=3,
            kind=Kind.DELAYED,
            offset_message_id="OFFSET",
            is_success=True,
        )

    assert record(FULL) == (
        "Pub\x011700000000000\x01DefaultRegion\x01g\x01T\x01ID\x01tag\x01k1 k2\x01127.0.0.1:10911"
        "\x015\x013\x013\x01OFFSET\x01true\x02"
    )
    assert "\x01ID\x01null\x01null\x01127" in record(BARE)


def test_delivery() -> None:
    begun = begun_record(FULL, time_ms=1, group="g", request_id="R", again=2)
    assert begun == "SubBefore\x011\x01DefaultRegion\x01g\x01R\x01ID\x012\x01k1 k2\x02"
    ended = ended_record(
        BARE, time_ms=9, group="g", request_id="R", cost_ms=8, outcome=Outcome.EXCEPTION
    )
    assert ended == "SubAfter\x01R\x01ID\x018\x01false\x01null\x012\x019\x01g\x02"
    ended = ended_record(
        FULL, time_ms=9, group="g", request_id="R", cost_ms=8, outcome=Outcome.SUCCESS
    )
    assert ended == "SubAfter\x01R\x01ID\x018\x01true\x01k1 k2\x010\x019\x01g\x02"


def test_end_of_a_transaction() -> None:
    record = transaction_record(
        FULL,
        time_ms=1,
        group="g",
        store_host="h:1",
        transaction_id="X",
        state="COMMIT_MESSAGE",
        is_asked=False,
    )
    assert record == (
        "EndTransaction\x011\x01DefaultRegion\x01g\x01T\x01ID\x01tag\x01k1 k2\x01h:1\x012\x01X"
        "\x01COMMIT_MESSAGE\x01false\x02"
    )


def test_words_to_find_a_trace_by() -> None:
    assert keys_of(FULL) == ["ID", "k1", "k2"]
    assert keys_of(BARE) == ["ID"]
