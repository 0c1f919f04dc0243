"""Send requests: frames from a template, read back by the classes that brokers use."""

import pytest

from ledgermq.client.config import Compression, ProducerConfig
from ledgermq.client.errors import ConfigError, MessageError
from ledgermq.client.messages import Message
from ledgermq.client.send_frame import FrameTemplate, batch_body, properties_text, single_body
from ledgermq.protocol import decode
from ledgermq.protocol.batch import decode_batch
from ledgermq.protocol.codes import LanguageCode, RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.compression import decompress
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.headers import SendMessageRequestHeaderV2
from ledgermq.protocol.properties import parse_properties
from ledgermq.protocol.signature import Credentials, is_signed_by

MIB = 1024 * 1024


def read(frame: bytes) -> RemotingCommand:
    (inner,) = FrameDecoder().feed(frame)
    return decode(inner)


def sent(message: Message, group: str = "g", compress_from_bytes: int = 4096) -> RemotingCommand:
    body = single_body(message, properties_text(message, "ID"), 1234, compress_from_bytes, 4 * MIB)
    return read(FrameTemplate(group, message.topic, 4).frame(body, 3, 77))


def test_frame_says_what_the_message_says() -> None:
    message = Message(
        "Tópico%s", b"body", keys="k1 k2", tags="A", properties={"naïve": 'ключ=%d"\\\n'}, flag=5
    )
    command = sent(message, 'g"%d\\')
    header = command.header(SendMessageRequestHeaderV2)
    assert (command.code, command.opaque, command.flag) == (RequestCode.SEND_MESSAGE_V2, 77, 0)
    assert command.language == LanguageCode.PYTHON
    assert (header.producer_group, header.topic) == ('g"%d\\', "Tópico%s")
    assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
    assert (header.queue_id, header.born_timestamp, header.flag) == (3, 1234, 5)
    assert (header.sys_flag, header.batch) == (0, False)
    assert command.body == b"body"
    assert parse_properties(header.properties or "") == {
        "UNIQ_KEY": "ID", "WAIT": "true", "KEYS": "k1 k2", "TAGS": "A", "naïve": 'ключ=%d"\\\n',
    }  # fmt: skip


def test_delay_level_is_a_property() -> None:
    assert parse_properties(properties_text(Message("T", b"", delay_level=3), "ID"))["DELAY"] == "3"


def test_one_way_frame_has_the_bit() -> None:
    message = Message("T", b"x")
    body = single_body(message, properties_text(message, "ID"), 1, 0, MIB)
    assert read(FrameTemplate("g", "T", 4).frame(body, 0, 0, one_way=True)).is_one_way


def test_large_body_is_compressed_as_4_9_3_does() -> None:
    body = b"all work and no play " * 400
    command = sent(Message("T", body))
    header = command.header(SendMessageRequestHeaderV2)
    assert header.sys_flag == 1
    assert len(command.body) < len(body)
    assert decompress(command.body, header.sys_flag, MIB) == body


def test_body_that_compression_does_not_make_smaller_stays() -> None:
    noise = bytes((i * i * 31 + (i >> 3) * 17) & 0xFF for i in range(64)) * 2
    assert sent(Message("T", noise[:20]), compress_from_bytes=1).body == noise[:20]
    assert sent(Message("T", b"x" * 5000), compress_from_bytes=0).body == b"x" * 5000


def test_batch_is_read_back_by_the_codec_of_brokers() -> None:
    messages = [Message("T", b"one", keys="k"), Message("T", b"two", flag=9)]
    body = batch_body(
        messages, [properties_text(m, f"I{i}") for i, m in enumerate(messages)], 5, MIB
    )
    command = read(FrameTemplate("g", "T", 4).frame(body, 1, 2))
    assert command.code == RequestCode.SEND_BATCH_MESSAGE
    assert command.header(SendMessageRequestHeaderV2).batch is True
    elements = decode_batch(command.body)
    assert [(e.flag, e.body) for e in elements] == [(0, b"one"), (9, b"two")]
    assert b"KEYS\x01k" in elements[0].properties


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"", properties={"a": ""}),
        Message("T", b"", properties={"": "a"}),
        Message("T", b"", properties={"a": "x\x02y"}),
        Message("T", b"", properties={"a\x01b": "x"}),
        Message("T", b"", properties={"a": "x" * 32_768}),
        Message("T", b"", properties={"a": "ж" * 16_384}),
        Message("T", b"", properties={"KEYS": "k"}),
        Message("T", b"", properties={"UNIQ_KEY": "k"}),
        Message("T", b"", keys="\ud800"),
        Message("T", b"x" * (4 * MIB + 1)),
        Message("", b"x"),
        Message("T" * 128, b"x"),
    ],
)
def test_message_that_cannot_be_carried_is_refused_before_it_is_sent(message: Message) -> None:
    with pytest.raises(MessageError) as caught:
        sent(message)
    assert not caught.value.retriable


def test_batch_of_two_topics_or_with_a_delay_is_refused() -> None:
    for second in (Message("U", b""), Message("T", b"", delay_level=1)):
        with pytest.raises(MessageError):
            batch_body([Message("T", b""), second], ["", ""], 1, MIB)


@pytest.mark.parametrize("one_way", [False, True])
def test_signed_frame_says_the_same_and_who_sends_it(one_way: bool) -> None:
    credentials = Credentials(access_key="orders-app", secret_key="secret-1")
    message = Message("Tópico%s", b"body", keys="k", properties={"naïve": 'ключ=%d"\\\n'})
    text = properties_text(message, "ID")
    plain, signed = (
        read(
            FrameTemplate('g"%', message.topic, 4, who).frame(
                single_body(message, text, 1234, 0, MIB), 3, 77, one_way=one_way
            )
        )
        for who in (None, credentials)
    )
    fields = dict(signed.ext_fields or {})
    assert is_signed_by(fields, b"body", "secret-1")
    assert fields.pop("AccessKey") == "orders-app" and fields.pop("Signature")
    signed.ext_fields = fields
    assert signed == plain


@pytest.mark.parametrize(
    ("compression", "sys_flag"), [("zlib", 0x1), ("lz4", 0x101), ("zstd", 0x201)]
)
def test_codec_is_told_but_for_zlib_which_the_oldest_clients_take_for_granted(
    compression: Compression, sys_flag: int
) -> None:
    body = b"x" * 10_000
    packed = single_body(Message("T", body), "", 1, 4096, MIB, compression)
    assert packed.sys_flag == sys_flag and len(packed.body) < 1000
    assert decompress(packed.body, packed.sys_flag, MIB) == body
    small = single_body(Message("T", b"x" * 4095), "", 1, 4096, MIB, compression)
    assert small.sys_flag == 0


def test_unknown_compression_is_refused() -> None:
    with pytest.raises(ConfigError, match="compression is 'snappy'; allowed: zlib, lz4, zstd"):
        ProducerConfig(compression="snappy")  # type: ignore[arg-type]
