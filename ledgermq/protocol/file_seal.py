"""The seal of a JSON file: whose it is, which version of its content it holds, and a checksum.

It is the last member of the file's object, a text:

    "ledgermqSeal":"v=1 owner=broker-a%2Fn0 index=1234 crc32=0a1b2c3d"

Apache's readers (fastjson) skip members that they do not know, so the form of the file stays
upstream's. The checksum is over all bytes before it, those of the seal included. Versions are
numbers that grow: of a broker's state file the index of the log up to which it holds every change.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from ledgermq.protocol.checksum import crc32

# Name of the member.
SEAL: Final = "ledgermqSeal"
_BEGIN: Final = f'"{SEAL}":"'.encode()
# Of a seal in a file, with what stands around it.
SEAL_BYTES_MAX: Final = 1024
_SEAL: Final = re.compile(
    _BEGIN + rb'(v=1 owner=([!-~]*) index=(-?[0-9]{1,19}) crc32=)([0-9a-f]{8})"\s*\}\s*'
)


class Seal(NamedTuple):
    """What a seal says."""

    owner: str
    version: int


class BrokenSealError(ValueError):
    """A file has a seal, and the seal does not fit the file."""


def sealed(slices: list[bytes], owner: str, index: int) -> bytes:
    """Returns the content of a file with its seal.

    Args:
        slices: of the content, a JSON object in fastjson's form.
        owner: whose file it is.
        index: version of the content.
    """
    *first, last = slices
    body = last.rstrip()
    assert body.endswith(b"}"), body[-20:]
    body = body[:-1].rstrip()
    # An object without members ends as it begins.
    comma = b"" if not first and body == b"{" else b","
    text = f"v=1 owner={quote(owner, safe='')} index={index} crc32=".encode("ascii")
    parts = [*first, body, comma + b"\n\t" + _BEGIN + text]
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    return b"".join([*parts, b'%08x"\n}' % crc])


def read_seal(content: bytes) -> Seal | None:
    """Returns the seal of a file, None when it has none.

    Raises:
        BrokenSealError: the checksum does not fit, or the seal is not at the end.
    """
    at = content.rfind(_BEGIN)
    if at < 0:
        return None
    found = _SEAL.fullmatch(content, at)
    if found is None:
        raise BrokenSealError("its seal is damaged")
    if int(found[4], 16) != crc32(memoryview(content)[: found.end(1)]):
        raise BrokenSealError(
            "its checksum does not fit: it is damaged, or was changed by another program"
        )
    return Seal(unquote(found[2].decode("ascii")), int(found[3]))


def without_seal(content: bytes) -> bytes:
    """Returns the content of a file as it was before it was sealed.

    Raises:
        BrokenSealError: as `read_seal`.
    """
    if read_seal(content) is None:
        return content
    body = content[: content.rfind(_BEGIN)].rstrip()
    return body.removesuffix(b",") + b"\n}"
