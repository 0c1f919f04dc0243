"""Bodies of messages as people and programs see them: nothing in them acts on a terminal."""

from __future__ import annotations

import base64
from typing import Final

from ledgermq.protocol.plain_text import escaped, escaped_lines

# Of a body, in a table and by itself.
CELL_CHARS_MAX: Final = 60
BODY_BYTES_SHOWN_MAX: Final = 4096
# More than so many of a hundred characters that act: it is no text.
_ACTING_PERCENT_MAX: Final = 10


def text_of(body: bytes) -> str | None:
    """Returns a body as a text; None when it is none."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return None
    acting = sum(len(escaped(char)) > 1 for char in text[:1024] if char not in "\t\n\r")
    return None if acting * 100 > _ACTING_PERCENT_MAX * len(text[:1024]) else text


def cell_of(body: bytes) -> str:
    """Returns a body for a cell of a table: the begin of the text, or of its bytes."""
    # A character takes four bytes at most; one that is cut in two is no reason to call it binary.
    text = text_of(_whole_characters(body[: 4 * CELL_CHARS_MAX + 4]))
    if text is None:
        shown = body[: CELL_CHARS_MAX // 3].hex()
        return f"{len(body)} bytes: {shown}{'...' if len(body) > CELL_CHARS_MAX // 3 else ''}"
    shown = escaped(text[:CELL_CHARS_MAX])
    return shown if len(text) <= CELL_CHARS_MAX else f"{shown}..."


def shown(body: bytes) -> str:
    """Returns a body for a terminal: a text in lines, or bytes in rows of sixteen."""
    head = body[:BODY_BYTES_SHOWN_MAX]
    rest = len(body) - len(head)
    text = text_of(_whole_characters(head) if rest else head)
    if text is None:
        shown_text = "\n".join(_hex_row(head, at) for at in range(0, len(head), 16))
    else:
        shown_text = escaped_lines(text.replace("\t", "    ").replace("\r\n", "\n"))
    return f"{shown_text}\n({rest} bytes more)" if rest else shown_text


def fields_of(body: bytes) -> dict[str, str]:
    """Returns a body for JSON: "body", or "body_base64" of what is no UTF-8."""
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def _whole_characters(head: bytes) -> bytes:
    """Takes off a character of UTF-8 that is cut at the end."""
    for back in range(1, min(4, len(head)) + 1):
        lead = head[-back]
        if lead & 0xC0 == 0x80:
            continue
        needed = 2 if lead >> 5 == 6 else 3 if lead >> 4 == 14 else 4 if lead >> 3 == 30 else 1
        return head[:-back] if needed > back else head
    return head


def _hex_row(head: bytes, at: int) -> str:
    row = head[at : at + 16]
    text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
    return f"{at:08x}  {row.hex(' '):<47}  {text}"
