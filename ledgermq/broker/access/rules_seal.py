"""RulesSeal: the rules of access control as they stand in the ledger, where many can read them.

Whoever reads the log, a copy of a disk or a backup reads every record of the ledger. So the rules
stand there as one piece of text that only the members of the group can open, and only they can
make: accounts and their secrets, rights and addresses alike. A record that somebody else wrote, or
that was changed on its way, does not open.

    {"kind": "access", "changed": MS, "sealed": TEXT}

    TEXT is base64 of   nonce, 12 bytes | sealed rules | tag, 16 bytes

AES-256-GCM; the key is made from the secret of the group for this use alone, the nonce is drawn by
who proposes the record, and the time of the change stands outside, bound to what is inside. Nothing
is drawn or sealed where a record is applied, so all members have the same bytes.

A broker without a group secret never loads this file (`sharing.py`), nor the package that it needs.
A group changes its secret with the former one in a second file: that one opens, and seals nothing.
"""

import base64
import binascii
import json
import os
from collections.abc import Mapping
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ledgermq.protocol.group_secret import GroupSecret
from ledgermq.state.errors import AccessRulesError

_USE: Final = "rules"
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
# Of the text; a record of the ledger has not more, either.
_TEXT_CHARS_MAX: Final = 4 << 20


class RulesSeal:
    """Seals what goes into the ledger, and opens what comes out of it."""

    __slots__ = ("_keys",)

    def __init__(self, secret: GroupSecret, former: GroupSecret | None = None) -> None:
        """
        Args:
            secret: of the group.
            former: one that some members, or records of theirs, still have.
        """
        # The first one seals.
        self._keys = [one.key(_USE) for one in (secret, former) if one is not None]

    def seal(self, rules: Mapping[str, Any], changed_ms: int) -> dict[str, Any]:
        """Returns the record for rules; each call draws another nonce.

        Args:
            rules: what JSON can say.
            changed_ms: when they were changed, ms since 1970.
        """
        nonce = os.urandom(_NONCE_BYTES)
        clear = json.dumps(rules, separators=(",", ":")).encode("ascii")
        sealed = AESGCM(self._keys[0]).encrypt(nonce, clear, _bound(changed_ms))
        text = base64.b64encode(nonce + sealed).decode("ascii")
        return {"kind": "access", "changed": changed_ms, "sealed": text}

    def open(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """
        Returns:
            The rules of a record, and whether it is sealed with the group's present secret.

        Raises:
            AccessRulesError: it holds nothing that a member of this group has sealed.
        """
        text, changed_ms = record.get("sealed"), record.get("changed")
        if not isinstance(text, str) or type(changed_ms) is not int:
            raise AccessRulesError("the record has no sealed rules")
        try:
            if len(text) > _TEXT_CHARS_MAX:
                raise ValueError
            data = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            raise AccessRulesError("the sealed rules are no base64") from None
        if len(data) < _NONCE_BYTES + _TAG_BYTES:
            raise AccessRulesError(f"the sealed rules have {len(data)} bytes, too few")
        nonce, sealed = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
        for number, key in enumerate(self._keys):
            try:
                clear = AESGCM(key).decrypt(nonce, sealed, _bound(changed_ms))
            except InvalidTag:
                continue
            return _document(clear), number == 0
        raise AccessRulesError(
            "the rules are sealed with another secret than that of this member"
            " (key dLegerGroupSecretFile)"
        )


def _document(clear: bytes) -> dict[str, Any]:
    try:
        rules = json.loads(clear)
    except (ValueError, RecursionError) as error:
        raise AccessRulesError(f"the sealed rules are no JSON: {error}") from error
    if not isinstance(rules, dict):
        raise AccessRulesError("the sealed rules are no object")
    return rules


def _bound(changed_ms: int) -> bytes:
    """What stands in the clear and must not be changed either."""
    return b"rules 1 %d" % changed_ms
