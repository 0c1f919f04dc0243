"""Access: with which account and over which connections a source speaks to its cluster.

A value that travels with a read or write to where Spark runs its tasks; what cannot travel (an SSL
context) is made there. The names of its options are those by which Spark keeps secrets out of its
plans and logs.
"""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ledgermq.client import ClientConfig, Credentials
from ledgermq.protocol.tls.contexts import TlsSettingsError, client_context, read_tls_file
from ledgermq.spark.errors import OptionError
from ledgermq.spark.option_table import Option, truth, word
from ledgermq.spark.paths import local_path


def signature_form(text: str) -> Literal["stock", "strong"]:
    """Reads in which form requests are signed.

    Raises:
        ValueError: it is none of them.
    """
    if text == "strong":
        return "strong"
    if text != "stock":
        raise ValueError(text)
    return "stock"


ACCESS_OPTIONS: Final[Mapping[str, Option]] = {
    "accessKey": Option(word, "the name of an account"),
    "secretKey": Option(word, "its secret"),
    "signature": Option(signature_form, "stock or strong", "stock"),
    "tls": Option(truth, "true or false", False),
    "tlsConfigFile": Option(word, "path of a tls.properties, on every worker"),
}
# Ends the keys of a tls.properties that name files.
_NAMES_A_FILE: Final = "Path"


@dataclass(slots=True, frozen=True, kw_only=True)
class Access:
    """An account, or none, and TLS, or none."""

    access_key: str = ""
    # Never shown.
    secret_key: str = field(default="", repr=False)
    form: Literal["stock", "strong"] = "stock"
    uses_tls: bool = False
    # Absolute; "" takes the certificates of the system.
    tls_file: str = ""
    # Of the driver: relative paths in the file are meant from there.
    directory: str = ""

    def credentials(self) -> Credentials | None:
        """Returns what requests are signed with; None without an account."""
        if not self.access_key:
            return None
        return Credentials(access_key=self.access_key, secret_key=self.secret_key, form=self.form)

    def tls_context(self) -> ssl.SSLContext | None:
        """Returns what connections need; None for plain ones.

        Raises:
            OptionError: the file cannot be used.
        """
        if not self.uses_tls:
            return None
        try:
            settings = read_tls_file(self.tls_file) if self.tls_file else {}
            for name, path in settings.items():
                if name.endswith(_NAMES_A_FILE) and path:
                    settings[name] = os.path.join(self.directory, os.path.expanduser(path))
            return client_context(settings)
        except (OSError, TlsSettingsError) as error:
            allowed = f"a usable file on every worker: {error}"
            raise OptionError("tlsConfigFile", self.tls_file, allowed) from error

    def client_config(self) -> ClientConfig:
        """Returns the settings of a producer or consumer.

        Raises:
            OptionError: the file cannot be used.
        """
        return ClientConfig(credentials=self.credentials(), tls=self.tls_context())


# Neither account nor TLS.
OPEN_ACCESS: Final = Access()


def access_of(values: Mapping[str, Any]) -> Access:
    """Returns the access that options describe.

    Raises:
        OptionError: one is given without the other that it needs.
    """
    if (values["accessKey"] is None) != (values["secretKey"] is None):
        missing = "accessKey" if values["accessKey"] is None else "secretKey"
        raise OptionError(missing, None, "accessKey and secretKey together, or neither")
    if values["tlsConfigFile"] is not None and not values["tls"]:
        raise OptionError("tls", "false", "true where tlsConfigFile is given")
    file = values["tlsConfigFile"]
    return Access(
        access_key=values["accessKey"] or "",
        secret_key=values["secretKey"] or "",
        form=values["signature"],
        uses_tls=values["tls"],
        tls_file=str(local_path("tlsConfigFile", file)) if file else "",
        directory=os.getcwd(),
    )
