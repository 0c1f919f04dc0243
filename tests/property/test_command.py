"""Commands both ways, and bytes that are none: a value or RemoteProtocolError, nothing else."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.protocol.command import RemotingCommand, decode, encode, encode_parts
from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.protocol.framing import FRAME_BYTES_MAX
from ledgermq.protocol.header_codec import decode_binary_header, decode_json_header
from ledgermq.protocol.headers import (
    PullMessageResponseHeader,
    SendMessageResponseHeader,
    decode_pull_header,
    decode_send_header,
    encode_found_head,
    encode_send_response,
)

int16 = st.integers(-(2**15), 2**15 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
fields = st.one_of(st.none(), st.dictionaries(texts, texts, max_size=8))


@given(int32, int32, int32, int32, st.integers(0, 13), st.none() | texts, fields, st.binary())
def test_json_command_comes_back(
    code: int,
    version: int,
    opaque: int,
    flag: int,
    language: int,
    remark: str | None,
    ext_fields: dict[str, str] | None,
    body: bytes,
) -> None:
    command = RemotingCommand(
        code=code,
        version=version,
        opaque=opaque,
        flag=flag,
        language=language,
        remark=remark,
        ext_fields=ext_fields,
        body=body,
    )
    assert decode(encode(command)[4:]) == command


@given(int16, int16, int32, int32, st.integers(-128, 127), texts, fields, st.binary())
def test_binary_command_comes_back(
    code: int,
    version: int,
    opaque: int,
    flag: int,
    language: int,
    remark: str,
    ext_fields: dict[str, str] | None,
    body: bytes,
) -> None:
    command = RemotingCommand(
        code=code,
        version=version,
        opaque=opaque,
        flag=flag,
        language=language,
        # The form has no difference between empty and absent.
        remark=remark or None,
        ext_fields=ext_fields or None,
        body=body,
        serialize_type=1,
    )
    assert decode(encode(command)[4:]) == command


@given(int32, st.integers(0, 1), texts, int32, int64, texts)
def test_send_answer_equals_the_general_encoder(
    opaque: int, serialize_type: int, msg_id: str, queue_id: int, queue_offset: int, region: str
) -> None:
    # Ids are hexadecimal digits and commas; other characters would need quoting.
    msg_id = msg_id.encode().hex()
    header = SendMessageResponseHeader(msg_id=msg_id, queue_id=queue_id, queue_offset=queue_offset)
    command = RemotingCommand(code=0, opaque=opaque, flag=1, serialize_type=serialize_type)
    command.ext_fields = {**header.to_ext_fields(), "MSG_REGION": region, "TRACE_ON": "true"}
    frame = encode_send_response(opaque, serialize_type, msg_id, queue_id, queue_offset, region)
    assert decode(frame[4:]) == command


@given(int32, st.tuples(int64, int64, int64, int64), st.integers(0, FRAME_BYTES_MAX - 512))
def test_head_of_found_messages_equals_the_general_encoder(
    opaque: int, numbers: tuple[int, int, int, int], body_bytes: int
) -> None:
    names = ("suggest_which_broker_id", "next_begin_offset", "min_offset", "max_offset")
    header = PullMessageResponseHeader(**dict(zip(names, numbers, strict=True)))
    answer = RemotingCommand(code=0, opaque=opaque).response(0, "FOUND", header)
    body = [memoryview(bytes(body_bytes))]
    assert encode_found_head(opaque, *numbers, body_bytes) == encode_parts(answer, body)[0]


def test_found_messages_beyond_a_frame_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="frame length"):
        encode_found_head(1, 0, 1, 0, 1, FRAME_BYTES_MAX - 100)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_command_or_a_protocol_error(data: bytes) -> None:
    for read in (decode, decode_json_header, decode_binary_header):
        try:
            read(data)
        except RemoteProtocolError as error:
            assert len(str(error)) <= 1024


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("code", "language", "version", "opaque", "flag", "remark", "extFields"), json_values
        ),
    )
)
def test_any_json_object_is_a_header_or_a_protocol_error(header: dict[str, object]) -> None:
    try:
        decode_json_header(json.dumps(header).encode())
    except RemoteProtocolError:
        pass


@given(st.dictionaries(st.sampled_from("abcdefghijklm"), texts), st.sampled_from([10, 310, 320]))
def test_any_ext_fields_are_a_send_header_or_a_protocol_error(
    ext_fields: dict[str, str], code: int
) -> None:
    command = RemotingCommand(code=code, ext_fields=ext_fields)
    for read in (decode_send_header, decode_pull_header):
        try:
            read(command)
        except RemoteProtocolError as error:
            assert error.field


FRAMES = sorted((Path(__file__).parents[1] / "interop" / "frames").rglob("*.bin"))


@pytest.mark.parametrize("kind", ["cut", "flipped", "mixed"])
def test_damaged_real_frames_are_commands_or_protocol_errors(kind: str) -> None:
    rng = random.Random(f"frames {kind}")
    for path in FRAMES:
        frame = path.read_bytes()[4:2_000]
        for _ in range(15):
            damaged = bytearray(frame)
            if kind == "cut":
                del damaged[rng.randrange(len(damaged)) :]
            elif kind == "flipped":
                for _ in range(rng.randrange(1, 4)):
                    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            else:
                start = rng.randrange(len(damaged))
                damaged[start : start + rng.randrange(8)] = rng.randbytes(rng.randrange(8))
            try:
                command = decode(bytes(damaged))
                decode_send_header(command)
            except RemoteProtocolError:
                pass
