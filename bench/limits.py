"""What this machine can do at best for the bytes of a message: copy, send over loopback, write.

The limit of a replicated send is what no broker can avoid: each replica writes the bytes once into
its page cache, and they cross a loopback socket once to the leader and once to each follower.
"""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
import threading
import time

CHUNK_BYTES = 256 * 1024
TOTAL_BYTES = 512 * 1024 * 1024


def copy_mb_per_second() -> float:
    """Slices of 256 KiB copied into an anonymous mapping."""
    target = mmap.mmap(-1, 64 * 1024 * 1024)
    chunk = os.urandom(CHUNK_BYTES)
    rounds = TOTAL_BYTES // CHUNK_BYTES
    slots = len(target) // CHUNK_BYTES
    for slot in range(slots):
        target[slot * CHUNK_BYTES : (slot + 1) * CHUNK_BYTES] = chunk
    start = time.perf_counter()
    for i in range(rounds):
        offset = (i % slots) * CHUNK_BYTES
        target[offset : offset + CHUNK_BYTES] = chunk
    elapsed = time.perf_counter() - start
    target.close()
    return TOTAL_BYTES / elapsed / 1e6


def loopback_mb_per_second() -> float:
    """One thread sends 256 KiB chunks, another reads them."""
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    receiver, _ = listener.accept()

    def send() -> None:
        chunk = bytes(CHUNK_BYTES)
        for _ in range(TOTAL_BYTES // CHUNK_BYTES):
            sender.sendall(chunk)
        sender.close()

    thread = threading.Thread(target=send)
    start = time.perf_counter()
    thread.start()
    received = 0
    buffer = bytearray(CHUNK_BYTES)
    while count := receiver.recv_into(buffer):
        received += count
    elapsed = time.perf_counter() - start
    thread.join()
    receiver.close()
    listener.close()
    return received / elapsed / 1e6


def write_mb_per_second(*, sync_each: bool) -> float:
    """Writes 256 KiB chunks to a file, with fdatasync after each or not at all."""
    total = 32 * 1024 * 1024 if sync_each else TOTAL_BYTES
    with tempfile.NamedTemporaryFile() as file:
        descriptor = file.fileno()
        os.posix_fallocate(descriptor, 0, total)
        chunk = os.urandom(CHUNK_BYTES)
        start = time.perf_counter()
        for i in range(total // CHUNK_BYTES):
            os.pwrite(descriptor, chunk, i * CHUNK_BYTES)
            if sync_each:
                os.fdatasync(descriptor)
        return total / (time.perf_counter() - start) / 1e6


def replicated_limit_mb_per_second(replicas: int) -> float:
    """MB/s of messages when one core did only the unavoidable copies, one after another."""
    copy_s = 1 / copy_mb_per_second()
    loopback_s = 1 / loopback_mb_per_second()
    # Once over the wire to the leader, once to each follower, one write into each page cache.
    return 1 / (replicas * loopback_s + replicas * copy_s)


def main() -> None:
    """Prints one line."""
    print(
        f"copy {copy_mb_per_second():.0f} MB/s, loopback {loopback_mb_per_second():.0f} MB/s, "
        f"write {write_mb_per_second(sync_each=False):.0f} MB/s, "
        f"write with fdatasync {write_mb_per_second(sync_each=True):.0f} MB/s"
    )


if __name__ == "__main__":
    main()
