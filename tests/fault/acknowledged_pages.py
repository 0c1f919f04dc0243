"""Sends in overlapping turns, and the kernel asked after each answer whether its pages are clean.

    python -m tests.fault.acknowledged_pages --sends 20000

A page that lies wholly inside one record is written once. When that record was acknowledged under
SYNC_FLUSH, its pages are on the disk: neither dirty nor being written.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, decode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.message_id import decode_offset_id
from tests.e2e.wire_client import request, send_fields
from tests.fault.page_cache import PAGE_BYTES, page_counts, why_silent
from tests.processes import LiveProgram, broker

TOPIC = "Pages"
SEGMENT_BYTES = 16 << 20
# Bodies of three pages and more have two whole pages wherever they stand.
_BODY_BYTES = 3 * PAGE_BYTES
# What stands before the body in a record.
_HEAD_BYTES = 128
_CONNECTIONS = 6
# Sends of a connection that wait for their answers: many connections make turns overlap syncs.
_WINDOW = 8
_ANSWER_S = 60.0


class _Sender:
    """One connection with a window of sends."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=_ANSWER_S)
        self._decoder = FrameDecoder()
        self.waiting = 0

    def send(self, count: int, numbers: Iterator[int]) -> None:
        """Sends so many messages in one write, as far as there are numbers left."""
        frames = []
        for number in islice(numbers, count):
            body = number.to_bytes(8, "big") * (_BODY_BYTES // 8)
            code = RequestCode.SEND_MESSAGE.value
            frames.append(request(code, send_fields(TOPIC), body, opaque=number))
        self.waiting += len(frames)
        self.socket.sendall(b"".join(frames))

    def read(self) -> list[RemotingCommand]:
        """Returns the answers that have come."""
        data = self.socket.recv(1 << 16)
        assert data, "the broker closed a connection"
        answers = [decode(frame) for frame in self._decoder.feed(data)]
        self.waiting -= len(answers)
        return answers


class _Files:
    """The segments of a broker's log, opened when they are first asked about."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers: dict[int, int] = {}

    def find_unclean(self, physical_offset: int) -> str | None:
        """Tells what of an acknowledged record is not on the disk; None: all of it is."""
        begin = physical_offset % SEGMENT_BYTES + _HEAD_BYTES
        end = begin - _HEAD_BYTES + _BODY_BYTES
        first = -(-begin // PAGE_BYTES) * PAGE_BYTES
        size_bytes = end // PAGE_BYTES * PAGE_BYTES - first
        start = physical_offset - physical_offset % SEGMENT_BYTES
        number = self._numbers.get(start)
        if number is None:
            number = os.open(self._folder / f"{start:020d}", os.O_RDONLY)
            self._numbers[start] = number
        counts = page_counts(number, first, size_bytes)
        if counts.dirty or counts.written_back:
            return f"{physical_offset}: {counts}"
        return None

    def close(self) -> None:
        for number in self._numbers.values():
            os.close(number)


def unclean_sends(program: LiveProgram, log_folder: Path, send_count: int) -> list[str]:
    """Sends messages and returns what was acknowledged and not on the disk."""
    numbers = iter(range(send_count))
    files, unclean, answered = _Files(log_folder), list[str](), 0
    senders = [_Sender(program.address) for _ in range(_CONNECTIONS)]
    with selectors.DefaultSelector() as selector:
        for sender in senders:
            selector.register(sender.socket, selectors.EVENT_READ, sender)
            sender.send(_WINDOW, numbers)
        while answered < send_count:
            ready = selector.select(_ANSWER_S)
            assert ready, f"no answer within {_ANSWER_S} s after {answered} of {send_count}"
            for key, _ in ready:
                sender = key.data
                for answer in sender.read():
                    assert answer.code == 0, (answer.code, answer.remark)
                    fields = answer.ext_fields
                    found = files.find_unclean(decode_offset_id(fields["msgId"]).physical_offset)
                    if found is not None:
                        unclean.append(found)
                    answered += 1
                sender.send(_WINDOW - sender.waiting, numbers)
    for sender in senders:
        sender.socket.close()
    files.close()
    return unclean


def measure(folder: Path, send_count: int, *, is_plain: bool) -> list[str]:
    """Starts a broker in a folder and returns what it acknowledged before it was on the disk.

    Args:
        send_count: how many messages.
        is_plain: whether the broker works without a ledger.
    """
    settings = ["flushDiskType=SYNC_FLUSH", f"mappedFileSizeCommitLog={SEGMENT_BYTES}"]
    log_folder = folder / "broker-a" / "dledger-n0" / "data"
    if is_plain:
        settings.append("enableDLegerCommitLog=false")
        log_folder = folder / "broker-a" / "commitlog"
    with broker(folder, *settings) as program:
        program.wait_until_serving()
        return unclean_sends(program, log_folder, send_count)


def main() -> int:
    """Prints how many sends were acknowledged before they were on the disk."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sends", type=int, default=20_000)
    options = parser.parse_args()
    status = 0
    for is_plain in (False, True):
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
            reason = why_silent(Path(name))
            if reason is not None:
                sys.stdout.write(f"not asked: {reason}\n")
                return 2
            unclean = measure(Path(name), options.sends, is_plain=is_plain)
            kind = "plain log" if is_plain else "ledger"
            sys.stdout.write(
                f"{kind}: {len(unclean)} of {options.sends} acknowledged before they were on disk\n"
            )
            sys.stdout.writelines(f"   {line}\n" for line in unclean[:5])
            status = status or int(bool(unclean))
    return status


if __name__ == "__main__":
    sys.exit(main())
