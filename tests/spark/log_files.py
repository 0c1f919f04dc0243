"""Commit logs written by hand: a ledger as LedgerMQ or Java writes it, and one without a ledger."""

from collections.abc import Sequence
from pathlib import Path
from struct import pack

from ledgermq.dledger.entry import BLANK, EntryCodec, place
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.record import PHYSICAL_OFFSET_OFFSET, encode_record

SEGMENT_BYTES = 4096
HOST = (b"\x7f\0\0\1", 10911)
# Of an internal record: no consumer sees it.
PREPARED = 4


def make_record(
    topic: str, number: int, *, sys_flag: int = 0, body_bytes: int = 50, properties: str = ""
) -> bytes:
    """A message; its queue offset is its number divided by four."""
    body = f"{number}:".encode().ljust(body_bytes, b".")
    text = properties or f"TAGS\x01{'AB'[number % 2]}\x02KEYS\x01key-{number}\x02"
    return encode_record(
        topic.encode(), number % 4, 0, number // 4, 0, sys_flag, 1_700_000_000_000 + number, HOST,
        1_700_000_000_100 + number, HOST, 0, 0, body, text.encode(),
    )  # fmt: skip


def write_ledger(
    directory: Path,
    records: Sequence[bytes],
    *,
    committed_index: int,
    is_java: bool = False,
    segment_bytes: int = SEGMENT_BYTES,
) -> list[Path]:
    """Writes a ledger directory and returns its segment files.

    Args:
        directory: gets data/ and checkpoint.
        records: one entry each.
        committed_index: what the checkpoint says.
        is_java: leaves the checksums of the entries empty.
        segment_bytes: of each file.
    """
    codec = EntryCodec(crc32c, PHYSICAL_OFFSET_OFFSET)
    log = bytearray()
    chain_crc = 0
    for index, record in enumerate(records):
        position = place(len(log), 48 + len(record), segment_bytes)
        if position > len(log):
            log += BLANK.pack(-1, position - len(log)).ljust(position - len(log), b"\0")
        run = codec.encode(
            [record], first_index=index, term=3, position=position, previous_chain_crc=chain_crc
        )
        data = bytearray(run.data)
        chain_crc = run.last_chain_crc
        if is_java:
            data[36:44] = bytes(8)
        log += data
    directory.mkdir(parents=True)
    (directory / "checkpoint").write_text(f"committedIndex={committed_index}\nendIndex=0\n")
    return _write_segments(directory / "data", log, segment_bytes)


def write_plain(directory: Path, records: Sequence[bytes]) -> list[Path]:
    """Writes the commit log of a broker without a ledger and returns its files."""
    log = bytearray()
    for record in records:
        rest = SEGMENT_BYTES - len(log) % SEGMENT_BYTES
        if len(record) + 8 > rest:
            log += pack(">II", rest, 0xCBD43194).ljust(rest, b"\0")
        data = bytearray(record)
        data[28:36] = len(log).to_bytes(8, "big")
        log += data
    return _write_segments(directory / "commitlog", log, SEGMENT_BYTES)


def _write_segments(directory: Path, log: bytearray, segment_bytes: int) -> list[Path]:
    directory.mkdir(parents=True)
    log += bytes(-len(log) % segment_bytes)
    paths = []
    for start in range(0, len(log), segment_bytes):
        path = directory / f"{start:020d}"
        path.write_bytes(log[start : start + segment_bytes])
        paths.append(path)
    return paths


def flip(path: Path, offset: int) -> None:
    """Changes one bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
