"""Options of every command that talks to a cluster: who asks, and whether by TLS.

    --acl-config FILE   accessKey and secretKey, as upstream's tools.yml has them
    --tls-config FILE   TLS, with the keys tls.client.* of upstream's tls.properties

What is not given is read from the environment: LEDGERMQ_ACCESS_KEY and LEDGERMQ_SECRET_KEY,
LEDGERMQ_TLS_CONFIG. A secret is no word of a command line, which other users of a machine see.
"""

from __future__ import annotations

import argparse
import getpass
import os
import ssl
import sys
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from ledgermq.cli.failure import tell
from ledgermq.client import ClientConfig
from ledgermq.protocol.private_file import (
    PrivateFileError,
    find_wide_mode,
    read_private_file,
)
from ledgermq.protocol.regular_file import read_regular_file
from ledgermq.protocol.signature import Credentials
from ledgermq.protocol.tls.contexts import TlsSettingsError, load_client_tls

_FILE_BYTES_MAX: Final = 65_536
_SECRET_BYTES_MAX: Final = 4096


class SecurityError(Exception):
    """The options cannot be used; the text says why."""


class Security(NamedTuple):
    """What a command was told."""

    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None

    def client_config(self) -> ClientConfig:
        """Returns the settings of a producer or consumer."""
        return ClientConfig(credentials=self.credentials, tls=self.tls)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument(
        "--acl-config", type=Path, metavar="FILE", help="YAML file with accessKey and secretKey"
    )
    parser.add_argument(
        "--tls-config", type=Path, metavar="FILE", help="use TLS, as this tls.properties says"
    )


def read_security(options: argparse.Namespace) -> Security:
    """Reads files and environment.

    Raises:
        SecurityError: a file cannot be used.
    """
    tls_path = options.tls_config or os.environ.get("LEDGERMQ_TLS_CONFIG")
    try:
        tls = load_client_tls(str(tls_path)) if tls_path else None
    except TlsSettingsError as error:
        raise SecurityError(str(error)) from error
    return Security(_credentials(options.acl_config), tls)


def _credentials(path: Path | None) -> Credentials | None:
    if path is None:
        keys: object = {
            "accessKey": os.environ.get("LEDGERMQ_ACCESS_KEY"),
            "secretKey": os.environ.get("LEDGERMQ_SECRET_KEY"),
            "signature": os.environ.get("LEDGERMQ_SIGNATURE"),
        }
        if not {"LEDGERMQ_ACCESS_KEY", "LEDGERMQ_SECRET_KEY"} & os.environ.keys():
            return None
        source = "LEDGERMQ_ACCESS_KEY and LEDGERMQ_SECRET_KEY"
    else:
        source = str(path)
        try:
            data, status = read_regular_file(path, _FILE_BYTES_MAX)
            keys = yaml.safe_load(data.decode("utf-8"))
        except OSError as error:
            raise SecurityError(f"{path}: {error.strerror}") from error
        except (yaml.YAMLError, ValueError, RecursionError):
            # What the parser shows may be the secret.
            raise SecurityError(f"{path} is no YAML file") from None
        # Taken all the same: mqadmin's own tools.yml is open to all.
        if wide := find_wide_mode(path, status):
            tell(wide)
    if not isinstance(keys, dict) or not (keys.get("accessKey") and keys.get("secretKey")):
        raise SecurityError(f"{source}: accessKey and secretKey must both be there")
    form = keys.get("signature") or "stock"
    if form not in ("stock", "strong"):
        raise SecurityError(f"{source}: signature is {form!r}, allowed are stock and strong")
    return Credentials(
        access_key=str(keys["accessKey"]),
        secret_key=str(keys["secretKey"]),
        form="strong" if form == "strong" else "stock",
    )


def read_secret(source: str, whose: str) -> str:
    """Reads a secret that is no word of the command line.

    Args:
        source: a file that others may not read, or "-" for standard input; on a terminal it is
            asked for, and not shown.
        whose: names its account to people.

    Raises:
        SecurityError: there is none, or others may read it.
    """
    if source != "-":
        try:
            data = read_private_file(Path(source).expanduser(), "the file", _SECRET_BYTES_MAX)
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise SecurityError(f"{source} is no text in UTF-8") from None
        except PrivateFileError as error:
            raise SecurityError(str(error)) from error
    elif sys.stdin.isatty():
        text = getpass.getpass(f"secret key of {whose}: ")
    else:
        text = sys.stdin.read(_SECRET_BYTES_MAX + 1)
    if len(text) > _SECRET_BYTES_MAX:
        raise SecurityError(f"the secret has more than {_SECRET_BYTES_MAX} characters")
    if not text.strip():
        raise SecurityError(f"{'standard input' if source == '-' else source} holds no secret")
    return text.strip()
