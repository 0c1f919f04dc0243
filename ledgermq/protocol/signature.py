"""The signatures of a request under access control: the stock form, and a strong one of ours.

The stock form: HMAC-SHA1 over fields and body.

    fields   the values of all ext fields in the order of their names, without separators, but not
             those of the signature itself and of the mark that turns a query into one by unique key
    signed   fields as UTF-8, then the body
    text     Base64 of the MAC, in the ext field Signature; AccessKey names the account

Neither the request code nor a time is signed, and nothing marks where a value ends: whoever reads
the wire can repeat a request. Source: `AclSigner.java`, `AclUtils.combineRequestContent`.

The strong form: HMAC-SHA256, which covers what the other one does not. Its ext fields are

    SignForm     2
    SignedAt     ms since 1970, by the wall clock of who signs
    SignNonce    a session of 32 hexadecimal digits, "-", the number of the request in it
    SignedFor    where it is sent to: "host:port" as it was named, and, where that is another one,
                 the address that was reached, with a comma between; missing where nobody told it
    Signature    Base64 of the MAC

    signed   24 "ledgermq request form 2\\n", 4 request code, 4 count of fields, then of each field
             in the order of names as UTF-8: 4 length of its name, name, 4 length of its value,
             value; 32 SHA-256 of the body. All fields but Signature count, numbers are big-endian.

So a broker that was asked cannot pass a request on to another one, which is not named in it.

Who signs decides on the form (`Credentials.form`). It does not ask the peer which forms that reads,
so nobody between the two can talk it out of the strong one: a peer that does not know it refuses.
"""

import hmac
import os
import secrets
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from struct import Struct
from typing import Final, Literal

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
# Java's client adds it after signing.
_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"

SIGNED_FORM: Final = "SignForm"
SIGNED_AT: Final = "SignedAt"
NONCE: Final = "SignNonce"
SIGNED_FOR: Final = "SignedFor"
STRONG_FORM: Final = "2"
# All that says who signed a request, and proves it.
_OF_SIGNER: Final = frozenset(
    (ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, SIGNED_FORM, SIGNED_AT, NONCE, SIGNED_FOR)
)
_STRONG_MARK: Final = b"ledgermq request form 2\n"
_CODE_AND_COUNT: Final = Struct(">iI")
_LENGTH: Final = Struct(">I")


class _Numbers:
    """The numbers of the strongly signed requests of this process; a fork has its own session."""

    def __init__(self) -> None:
        self.begin()
        # Where processes fork.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        """Draws another session."""
        self._session, self._numbers = secrets.token_hex(16), count()

    def next_nonce(self) -> str:
        """Returns a nonce that no other request has; any thread may ask."""
        return f"{self._session}-{next(self._numbers)}"


_numbers: Final = _Numbers()


@dataclass(slots=True, frozen=True, kw_only=True)
class Credentials:
    """What a client signs with."""

    access_key: str
    # Never shown.
    secret_key: str = field(repr=False)
    # "strong" covers code, names, time and a nonce, so that nobody can repeat or change a request;
    # brokers and name servers of LedgerMQ read it. Apache's read "stock" alone.
    form: Literal["stock", "strong"] = "stock"

    def __post_init__(self) -> None:
        if self.form not in ("stock", "strong"):
            raise ValueError(f"form is {self.form!r}, allowed are 'stock' and 'strong'")

    def signed(
        self,
        ext_fields: Mapping[str, str] | None,
        body: bytes,
        code: int | None = None,
        signed_for: str = "",
    ) -> dict[str, str]:
        """Returns the ext fields with account and signature added.

        Args:
            ext_fields: of the request.
            body: of the request.
            code: of the request; the strong form needs it.
            signed_for: where it is sent to, as the strong form names it; empty: it does not.
        """
        fields = {**(ext_fields or {}), ACCESS_KEY: self.access_key}
        if self.form == "strong":
            if code is None:
                raise ValueError("a strong signature covers the request code, which is not given")
            fields[SIGNED_FORM] = STRONG_FORM
            fields[SIGNED_AT] = str(time.time_ns() // 1_000_000)
            fields[NONCE] = _numbers.next_nonce()
            if signed_for:
                fields[SIGNED_FOR] = signed_for
            fields[SIGNATURE] = sign_strongly(code, fields, body, self.secret_key)
            return fields
        fields[SIGNATURE] = sign(fields, body, self.secret_key)
        return fields


def ends_of(address: str, reached: object) -> str:
    """Returns what a request is signed for.

    Args:
        address: "host:port" that was connected to.
        reached: what the socket calls the other end: host and port, and more in IPv6.
    """
    if not isinstance(reached, tuple) or len(reached) < 2:
        return address
    host = f"[{reached[0]}]" if ":" in str(reached[0]) else str(reached[0])
    found = f"{host}:{reached[1]}"
    return address if found == address else f"{address},{found}"


def unsigned(ext_fields: Mapping[str, str]) -> dict[str, str]:
    """Returns the ext fields of a request without what says who signed it: as they may be handed on
    to somebody else, who could repeat the request by its signature, or make another one of it.
    """
    return {name: value for name, value in ext_fields.items() if name not in _OF_SIGNER}


def sign(ext_fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """Returns the signature of a request; a signature among the fields does not count."""
    values = [
        ext_fields[name]
        for name in sorted(ext_fields)
        if name != SIGNATURE and name != _UNIQUE_KEY_QUERY
    ]
    content = "".join(values).encode("utf-8", "surrogatepass") + body
    mac = hmac.digest(secret_key.encode("utf-8", "surrogatepass"), content, "sha1")
    return b64encode(mac).decode("ascii")


def is_signed_by(ext_fields: Mapping[str, str], body: bytes, secret_key: str) -> bool:
    """Tells whether the signature among the fields is the right one, in constant time."""
    given = ext_fields.get(SIGNATURE, "").encode("utf-8", "surrogatepass")
    return hmac.compare_digest(given, sign(ext_fields, body, secret_key).encode("ascii"))


def sign_strongly(code: int, ext_fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """Returns the strong signature of a request; a signature among the fields does not count."""
    named = sorted(
        (name.encode("utf-8", "surrogatepass"), value.encode("utf-8", "surrogatepass"))
        for name, value in ext_fields.items()
        if name != SIGNATURE
    )
    parts = [_STRONG_MARK, _CODE_AND_COUNT.pack(code, len(named))]
    for name, value in named:
        parts += (_LENGTH.pack(len(name)), name, _LENGTH.pack(len(value)), value)
    parts.append(sha256(body).digest())
    mac = hmac.digest(secret_key.encode("utf-8", "surrogatepass"), b"".join(parts), "sha256")
    return b64encode(mac).decode("ascii")


def is_strongly_signed_by(
    code: int, ext_fields: Mapping[str, str], body: bytes, secret_key: str
) -> bool:
    """Tells whether the strong signature among the fields is the right one, in constant time."""
    given = ext_fields.get(SIGNATURE, "").encode("utf-8", "surrogatepass")
    made = sign_strongly(code, ext_fields, body, secret_key)
    return hmac.compare_digest(given, made.encode("ascii"))
