"""The signature of a request under access control, version 1: HMAC-SHA1 over fields and body.

    fields   the values of all ext fields in the order of their names, without separators, but not
             those of the signature itself and of the mark that turns a query into one by unique key
    signed   fields as UTF-8, then the body
    text     Base64 of the MAC, in the ext field Signature; AccessKey names the account

Neither the request code nor a time is signed, and nothing marks where a value ends: whoever reads
the wire can repeat a request. Source: `AclSigner.java`, `AclUtils.combineRequestContent`.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
# Java's client adds it after signing.
_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"


@dataclass(slots=True, frozen=True, kw_only=True)
class Credentials:
    """What a client signs with."""

    access_key: str
    # Never shown.
    secret_key: str = field(repr=False)

    def signed(self, ext_fields: Mapping[str, str] | None, body: bytes) -> dict[str, str]:
        """Returns the ext fields with account and signature added."""
        fields = {**(ext_fields or {}), ACCESS_KEY: self.access_key}
        fields[SIGNATURE] = sign(fields, body, self.secret_key)
        return fields


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
