"""The body of a batch send."""

import pytest

from ledgermq.protocol.batch import BatchMessage, decode_batch, encode_batch
from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError

MESSAGES = [BatchMessage(7, b"one", b"TAGS\x01A"), BatchMessage(0, b"", b"")]
BODY = bytes.fromhex(
    "0000001f 00000000 00000000 00000007 00000003 6f6e65 0006 544147530141"
    "00000016 00000000 00000000 00000000 00000000 0000"
)


def test_batch_has_the_bytes_that_clients_write():
    assert encode_batch(MESSAGES) == BODY
    assert decode_batch(BODY) == MESSAGES


def test_empty_batch_has_no_messages():
    assert decode_batch(b"") == []


def test_magic_and_crc_inside_are_ignored():
    noisy = BODY[:4] + b"\xda\xa3\x20\xa7\x12\x34\x56\x78" + BODY[12:]
    assert decode_batch(noisy) == MESSAGES


def test_cut_batch_is_refused_unless_it_ends_between_elements():
    for size in range(len(BODY)):
        if size in (0, 31):
            continue
        with pytest.raises(RemoteProtocolError):
            decode_batch(BODY[:size])


@pytest.mark.parametrize("offset", [0, 16, 23])
@pytest.mark.parametrize("value", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4)])
def test_lying_length_in_a_batch_is_refused(offset, value):
    with pytest.raises(RemoteProtocolError):
        decode_batch(BODY[:offset] + value + BODY[offset + 4 :])


def test_properties_over_the_limit_are_not_encoded():
    with pytest.raises(LocalProtocolError):
        encode_batch([BatchMessage(0, b"", b"p" * 32768)])
