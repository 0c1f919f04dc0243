"""The secret that the members of one group share, and the keys that are made from it.

A file of its own, the same on each member, readable by its owner only. What is in it is never sent
and never used as it is: each use has a key of its own, made with HMAC-SHA256 from the secret and
the name of the use, so that what is seen of one use says nothing about another.
"""

import hmac
from pathlib import Path
from typing import Final

from ledgermq.protocol.private_file import PrivateFileError, read_private_file

# Shorter ones are guessed; longer ones are no secrets but other files.
SECRET_BYTES_MIN: Final = 32
SECRET_BYTES_MAX: Final = 4096


class GroupSecretError(ValueError):
    """A file that cannot be the secret of a group; names the file and what is wrong with it."""


class GroupSecret:
    """What all members of a group know and nobody else."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        """
        Args:
            secret: SECRET_BYTES_MIN to SECRET_BYTES_MAX bytes.

        Raises:
            GroupSecretError: It is shorter or longer.
        """
        if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
            raise GroupSecretError(
                f"a group's secret of {len(secret)} bytes: it has"
                f" {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}"
            )
        self._secret = secret

    def __repr__(self) -> str:
        """Says nothing of the secret, since it ends in logs."""
        return "GroupSecret(...)"

    def key(self, use: str) -> bytes:
        """
        Args:
            use: What the key is for, e.g. "members"; another use, another key.

        Returns:
            32 bytes, the same on each member and after each start.
        """
        return hmac.digest(self._secret, use.encode(), "sha256")


def read_group_secret(path: Path) -> GroupSecret:
    """
    White space around the secret does not count, so that a file may be written by an editor.

    Raises:
        GroupSecretError: No such file, one that others may read, or no secret in it.
    """
    try:
        secret = read_private_file(path, "the group's secret", 4 * SECRET_BYTES_MAX).strip()
    except PrivateFileError as error:
        raise GroupSecretError(str(error)) from error
    try:
        return GroupSecret(secret)
    except GroupSecretError as error:
        raise GroupSecretError(f"{path}: {error}") from None
