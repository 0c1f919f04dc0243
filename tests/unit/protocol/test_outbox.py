"""Outbox: every byte once and in order, in few calls, whatever the socket takes."""

import random

import pytest

from ledgermq.protocol.transport.outbox import Outbox
from tests.unit.protocol.wires import MemorySocket


def test_small_pieces_go_out_in_one_send() -> None:
    outbox, sock = Outbox(), MemorySocket()
    for piece in (b"ab", b"c", b"def"):
        outbox.append(piece)
    assert outbox.send_to(sock)
    assert (bytes(sock.sent), sock.calls, outbox.size_bytes) == (b"abcdef", [("send", 6)], 0)


def test_large_pieces_are_gathered_without_joining() -> None:
    outbox, sock = Outbox(), MemorySocket()
    for _ in range(3):
        outbox.append(bytes(50_000))
    assert outbox.send_to(sock)
    assert sock.calls == [("sendmsg", 150_000)]


def test_empty_outbox_sends_nothing() -> None:
    sock = MemorySocket(0)
    assert Outbox().send_to(sock)
    assert sock.calls == []


def test_full_socket_leaves_the_rest() -> None:
    outbox, sock = Outbox(), MemorySocket(4)
    outbox.append(b"abcdef")
    assert not outbox.send_to(sock)
    assert outbox.size_bytes == 2
    sock.room = 10
    assert outbox.send_to(sock)
    assert bytes(sock.sent) == b"abcdef"


def test_broken_socket_is_reported() -> None:
    outbox, sock = Outbox(), MemorySocket()
    sock.failure = BrokenPipeError(32, "Broken pipe")
    outbox.append(b"a")
    with pytest.raises(BrokenPipeError):
        outbox.send_to(sock)


def test_owned_pieces_outlive_their_buffer() -> None:
    outbox, sock = Outbox(), MemorySocket(0)
    buffer = bytearray(b"abcdef")
    view = memoryview(buffer)
    outbox.append(view)
    assert not outbox.send_to(sock)
    outbox.own()
    view.release()
    buffer.clear()
    sock.room = 10
    assert outbox.send_to(sock)
    assert bytes(sock.sent) == b"abcdef"


def test_any_sizes_and_rooms_keep_the_stream() -> None:
    rng = random.Random(5)
    outbox, sock = Outbox(), MemorySocket(0)
    expected = bytearray()
    for _ in range(2_000):
        action = rng.randrange(4)
        if action < 2:
            piece = rng.randbytes(rng.choice([0, 1, 100, 40_000]))
            part = piece if rng.random() < 0.5 else memoryview(piece)
            if action:
                outbox.append(part)
                expected += piece
            else:
                outbox.extend([part, b"", part])
                expected += piece * 2
        elif action == 2:
            sock.room = rng.choice([0, 1, 77, 50_000, 200_000])
            assert outbox.send_to(sock) is (outbox.size_bytes == 0)
        else:
            sock.sent += outbox.take(rng.choice([0, 1, 65_536]))
        assert outbox.size_bytes == len(expected) - len(sock.sent)
    sock.room = 1 << 40
    assert outbox.send_to(sock)
    assert sock.sent == expected


def test_more_pieces_than_one_call_takes_all_go_out() -> None:
    outbox, sock = Outbox(), MemorySocket()
    for _ in range(1_500):
        outbox.append(bytes(100))
    assert outbox.send_to(sock)
    assert len(sock.sent) == 150_000
