"""Units, index entries and checkpoints against bytes written by hand."""

from ledgermq.commitlog.layout import (
    INDEX_HEADER,
    PRE_BLANK,
    QUEUE_UNIT,
    STORE_CHECKPOINT,
    index_file_bytes,
)


def test_unit_has_the_bytes_of_java():
    assert QUEUE_UNIT.pack(1048, 149, 2598919).hex() == ("000000000000041800000095000000000027a807")
    assert PRE_BLANK.hex() == "00000000000000007fffffff0000000000000000"


def test_index_header_is_drawn_as_in_java():
    data = INDEX_HEADER.pack(1, 2, 3, 4, 5, 6)
    assert data.hex() == (
        "00000000000000010000000000000002000000000000000300000000000000040000000500000006"
    )
    assert index_file_bytes(100, 1000) == 40 + 400 + 20000


def test_store_checkpoint_begins_with_three_times():
    assert STORE_CHECKPOINT.pack(1, 2, 3).hex() == "0" * 15 + "1" + "0" * 15 + "2" + "0" * 15 + "3"
