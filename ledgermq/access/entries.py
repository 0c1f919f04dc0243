"""Entries of files of accounts: texts, lists and patterns are read strictly, by broker and name
server alike. What is not understood is an error, never left out.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ledgermq.access.addresses import AddressPattern

ACCOUNTS_MAX: Final = 10_000
ADDRESSES_MAX: Final = 1000
# Upstream's least length of both keys, and a bound of ours.
_KEY_CHARS_MIN: Final = 7
_KEY_CHARS_MAX: Final = 256


class EntryReader:
    """Reads entries for one program, which has an error of its own for them.

    `where` names the place for whoever reads the error.
    """

    def __init__(self, error: type[Exception]) -> None:
        """`error` is raised, with a text, for what cannot be read; by all that stands here."""
        self._error = error

    def document(self, document: object) -> Mapping[Any, Any]:
        """Returns a whole file."""
        if not isinstance(document, Mapping):
            raise self._error("the file is no mapping with globalWhiteRemoteAddresses or accounts")
        return document

    def account(self, entry: object, known: Iterable[str]) -> tuple[Mapping[Any, Any], str, str]:
        """Returns the members of an account, its access key, and what errors call it.

        Args:
            entry: of the file.
            known: names of the members that an account may have.
        """
        if not isinstance(entry, Mapping):
            raise self._error("an account is no mapping")
        access_key = self.key(entry, "accessKey", "an account")
        where = f"account {access_key!r}"
        unknown = sorted(str(name) for name in entry if name not in known)
        if unknown:
            raise self._error(f"{where}: unknown member {unknown[0][:64]!r}")
        return entry, access_key, where

    def key(self, entry: Mapping[Any, Any], name: str, where: str) -> str:
        """Returns an access key or a secret key, which must be there."""
        text = self.find_key(entry, name, where)
        if text is None:
            raise self._error(f"{where}: {name} is missing")
        return text

    def find_key(self, entry: Mapping[Any, Any], name: str, where: str) -> str | None:
        """Returns an access key or a secret key; a number in YAML is a text to Java, too."""
        value = entry.get(name)
        if value is None:
            return None
        if isinstance(value, Mapping | list):
            raise self._error(f"{where}: {name} is no text")
        text = str(value)
        if not _KEY_CHARS_MIN <= len(text) <= _KEY_CHARS_MAX:
            raise self._error(
                f"{where}: {name} has {len(text)} characters,"
                f" allowed are {_KEY_CHARS_MIN} to {_KEY_CHARS_MAX}"
            )
        return text

    def is_admin(self, entry: Mapping[Any, Any], where: str) -> bool:
        """Tells whether an account may do everything."""
        value = entry.get("admin")
        if value is not None and not isinstance(value, bool):
            raise self._error(f"{where}: admin is {value!r}, allowed are true and false")
        return bool(value)

    def white_address(self, entry: Mapping[Any, Any], where: str) -> AddressPattern:
        """Returns from where an account needs no signature; nowhere when nothing is said."""
        value = entry.get("whiteRemoteAddress")
        return self.pattern(where, "" if value is None else str(value))

    def white_addresses(self, texts: object) -> tuple[AddressPattern, ...]:
        """Returns from where everything may be done."""
        where = "globalWhiteRemoteAddresses"
        return tuple(self.pattern(where, text) for text in self.texts(where, texts, ADDRESSES_MAX))

    def pattern(self, where: str, text: str) -> AddressPattern:
        """Returns a pattern of addresses."""
        try:
            return AddressPattern(text)
        except ValueError as error:
            raise self._error(f"{where}: {error}") from error

    def texts(self, where: str, value: object, count_max: int) -> list[str]:
        """Returns a list of texts; entries that are empty are left out."""
        return [str(text) for text in self.items(where, value, count_max) if text is not None]

    def items(self, where: str, value: object, count_max: int) -> list[object]:
        """Returns a list; what is not there is an empty one."""
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._error(f"{where} is no list")
        self.check_count(where, len(value), count_max)
        return value

    def check_count(self, where: str, count: int, count_max: int) -> None:
        """Refuses what is too much."""
        if count > count_max:
            raise self._error(f"{where}: {count} entries, allowed are {count_max}")
