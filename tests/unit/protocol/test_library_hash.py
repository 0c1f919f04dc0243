"""SHA-1 of the library: found where hashlib has one, and never used where it is not the same."""

from __future__ import annotations

import ctypes
import hashlib

import pytest

from ledgermq.protocol import library_hash, signed_frames
from ledgermq.protocol.library_hash import find_library_sha1


def test_what_is_found_is_what_hashlib_gives() -> None:
    found = find_library_sha1()
    if found is None:
        pytest.skip("hashlib's library shows no functions of SHA-1: it is linked into Python")
    assert len(found.begin(b"a" * 64)) == library_hash.STATE_BYTES
    # Begun once, it goes on from there each time.
    assert found.begin(b"a" * 64) == found.begin(b"a" * 64) != found.begin(b"b" * 64)


def test_library_without_the_functions_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    libc = ctypes.CDLL(None)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    if hasattr(libc, "SHA1_Update"):
        pytest.skip("this Python contains the library")
    assert find_library_sha1() is None


def test_library_that_gives_something_else_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        """As if hashlib's SHA-1 were another one."""

        def digest(self) -> bytes:
            return bytes(20)

    monkeypatch.setattr(hashlib, "sha1", lambda data: Other())
    assert find_library_sha1() is None


def test_without_the_library_hashlib_is_asked() -> None:
    inner, outer, update, final = signed_frames.begin_hmac(b"secret", None)
    assert (update, final) == (0, 0)
    inner.update(b"text")
    outer.update(inner.digest())
    assert (
        outer.digest()
        == hashlib.sha1(
            bytes(byte ^ 0x5C for byte in b"secret".ljust(64, b"\0"))
            + hashlib.sha1(
                bytes(byte ^ 0x36 for byte in b"secret".ljust(64, b"\0")) + b"text"
            ).digest()
        ).digest()
    )
