"""The account by which a broker registers at name servers, from its configuration and a file."""

from pathlib import Path
from typing import Final

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.protocol.private_file import PrivateFileError, read_private_file
from ledgermq.protocol.signature import Credentials
from ledgermq.state.errors import ConfigError

_SECRET_BYTES_MAX: Final = 1024


def find_namesrv_account(config: BrokerConfig) -> Credentials | None:
    """Reads the file of namesrvSecretKeyFile; returns None where no account is named.

    White space around the secret does not count, so that a file may be written by an editor.

    Raises:
        ConfigError: one of both keys is missing, or the file holds no secret.
    """
    access_key, path = config.namesrv_access_key, config.namesrv_secret_file
    if not access_key and not path:
        return None
    if not access_key:
        raise ConfigError("namesrvAccessKey", access_key, "the account of namesrvSecretKeyFile")
    if not path:
        raise ConfigError("namesrvSecretKeyFile", path, "a file with the secret of the account")
    try:
        data = read_private_file(Path(path).expanduser(), "the file", _SECRET_BYTES_MAX)
        secret = data.decode("utf-8").strip()
    except PrivateFileError as error:
        raise ConfigError("namesrvSecretKeyFile", path, str(error)) from error
    except UnicodeDecodeError:
        raise ConfigError("namesrvSecretKeyFile", path, "text in UTF-8") from None
    if not secret:
        raise ConfigError("namesrvSecretKeyFile", path, "a file that is not empty")
    return Credentials(
        access_key=access_key,
        secret_key=secret,
        form="strong" if config.namesrv_signature == "strong" else "stock",
    )
