"""The seal of a state file: which store wrote it, what index of the log it stands for, a checksum.

It is the last member of the file's JSON object, a text:

    "ledgermqSeal":"v=1 owner=broker-a%2Fn0 index=1234 crc32c=0a1b2c3d"

Apache's readers (fastjson) skip members that they do not know, so the form of the file stays
upstream's. The checksum is over all bytes before it, those of the seal included. A file holds every
change of the log up to its index, and perhaps later ones.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from ledgermq.protocol.checksum import crc32c

_BEGIN: Final = b'"ledgermqSeal":"'
_SEAL: Final = re.compile(
    _BEGIN + rb'(v=1 owner=([!-~]*) index=(-?[0-9]{1,19}) crc32c=)([0-9a-f]{8})"\s*\}\s*'
)


class Seal(NamedTuple):
    """What a seal says."""

    owner: str
    log_index: int


class BrokenSealError(ValueError):
    """A file has a seal, and the seal does not fit the file."""


def sealed(slices: list[bytes], owner: str, index: int) -> bytes:
    """Returns the content of a file with its seal.

    Args:
        slices: of the content, a JSON object in fastjson's form.
        owner: names the store.
        index: the content holds every change up to here.
    """
    *first, last = slices
    body = last.rstrip()
    assert body.endswith(b"}"), body[-20:]
    body = body[:-1].rstrip()
    # An object without members ends as it begins.
    comma = b"" if not first and body == b"{" else b","
    text = f"v=1 owner={quote(owner, safe='')} index={index} crc32c=".encode("ascii")
    parts = [*first, body, comma + b"\n\t" + _BEGIN + text]
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
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
    if int(found[4], 16) != crc32c(memoryview(content)[: found.end(1)]):
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
