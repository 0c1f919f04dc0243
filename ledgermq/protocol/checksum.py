"""The two checksums of the product, and the one file that chooses who computes them.

- CRC-32 (the polynomial of zlib), masked to 31 bits: the bodyCRC of a record.
- CRC-32C (Castagnoli): bodyCrc and chainCrc of a ledger entry, filled by LedgerMQ leaders only.

The package `crc32c` uses the processor's instruction; where it is not installed, crcmod computes
the same values some ten times slower. All take bytes, bytearray or a contiguous memoryview. A
client sums records alone, so it needs neither of the two.
"""

import functools
import importlib
import zlib
from collections.abc import Callable
from typing import Final

try:
    import crc32c as _package
except ImportError:
    _package = None  # type: ignore[assignment]

# A buffer whose bytes are summed; it is read, never kept.
Buffer = bytes | bytearray | memoryview

# Java stores the CRC in an i32 and clears the sign.
CRC32_MASK: Final = 0x7FFFFFFF

# CRC-32 of data, all 32 bits.
crc32: Callable[..., int] = zlib.crc32


def crc32_masked(data: Buffer) -> int:
    """Return the CRC-32 of `data` without its highest bit, 0 for an empty body.

    Source: UtilAll.crc32 of 4.9.3.
    """
    return crc32(data) & CRC32_MASK


@functools.cache
def _crcmod_crc32c() -> Callable[..., int]:
    try:
        # Installed only where it is asked for: it has to be compiled.
        predefined = importlib.import_module("crcmod.predefined")
    except ImportError as error:
        raise ImportError("CRC-32C needs the package crc32c, or crcmod in its place") from error
    made: Callable[..., int] = predefined.mkPredefinedCrcFun("crc-32c")
    return made


def crc32c_by_crcmod(data: Buffer, value: int = 0) -> int:
    """Return the CRC-32C of `data`, continued from `value`: fallback and oracle of `crc32c`.

    Raises:
        ImportError: crcmod is not installed, either.
    """
    return _crcmod_crc32c()(bytes(data) if isinstance(data, memoryview) else data, value)


# CRC-32C of data, continued from a previous value: crc32c(b, crc32c(a)) == crc32c(a + b).
crc32c: Callable[..., int] = _package.crc32c if _package is not None else crc32c_by_crcmod
