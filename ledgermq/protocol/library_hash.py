"""SHA-1 of the library that hashlib uses, for loops that call it without objects in between.

A signature costs two hashes begun before, two ends and a few bytes: half of the time hashlib needs
goes into making and dropping objects of the library. Its functions `SHA1_Update` and `SHA1_Final`
take a hash as plain bytes, which are copied instead. Where the library has no such functions, or
they do not do what hashlib does, there are none here, and hashlib is asked.
"""

import ctypes
import hashlib
from importlib.util import find_spec
from typing import Final, NamedTuple

# Room for a hash that is begun: five words, a count, a block and how much is in it.
STATE_BYTES: Final = 128
DIGEST_BYTES: Final = 20
# More than one block, and no whole number of them.
_PROBE: Final = bytes(range(150))


class LibrarySha1(NamedTuple):
    """Where the functions are.

    Attributes:
        init, update, final: addresses of C functions.
    """

    init: int
    update: int
    final: int

    def begin(self, data: bytes) -> bytes:
        """Returns the state of a hash that has taken some bytes."""
        state = ctypes.create_string_buffer(STATE_BYTES)
        _INIT(self.init)(state)
        _UPDATE(self.update)(state, data, len(data))
        return state.raw


_INIT: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
_UPDATE: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
_FINAL: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)


def find_library_sha1() -> LibrarySha1 | None:
    """Returns the functions where they are and give what hashlib gives; None elsewhere."""
    extension = find_spec("_hashlib")
    if extension is None or not extension.origin:
        return None
    try:
        # The libraries that it needs are looked through as well.
        library = ctypes.CDLL(extension.origin)
        functions = library.SHA1_Init, library.SHA1_Update, library.SHA1_Final
    except (OSError, AttributeError):
        return None
    addresses = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
    found = LibrarySha1(*addresses)
    return found if _is_right(found) else None


def _is_right(found: LibrarySha1) -> bool:
    """Tells whether a hash is right, of bytes that come in two parts, and keeps to its room."""
    room = ctypes.create_string_buffer(b"\xaa" * (2 * STATE_BYTES), 2 * STATE_BYTES)
    digest = ctypes.create_string_buffer(DIGEST_BYTES)
    _INIT(found.init)(room)
    for part in (_PROBE, _PROBE[:7]):
        _UPDATE(found.update)(room, part, len(part))
    if room.raw[STATE_BYTES:] != b"\xaa" * STATE_BYTES:
        return False
    copy = ctypes.create_string_buffer(room.raw[:STATE_BYTES], STATE_BYTES)
    _FINAL(found.final)(digest, copy)
    return digest.raw == hashlib.sha1(_PROBE + _PROBE[:7]).digest()
