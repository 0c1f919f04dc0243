"""The secret of a broker's group, from the file that its configuration names, and the former one,
from the file beside it whose name ends in `.former`.
"""

from pathlib import Path
from typing import Final

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.protocol.group_secret import GroupSecret, GroupSecretError, read_group_secret
from ledgermq.state.errors import ConfigError

_FORMER: Final = ".former"


def find_group_secret(config: BrokerConfig) -> GroupSecret | None:
    """Reads the file of dLegerGroupSecretFile; returns None where none is named.

    Raises:
        ConfigError: it cannot be the secret of a group; says what is wrong with it.
    """
    return _read(config.group_secret_file) if config.group_secret_file else None


def find_former_secret(config: BrokerConfig) -> GroupSecret | None:
    """Reads the secret that the group had before; returns None where no such file lies there.

    Raises:
        As `find_group_secret`.
    """
    former = config.group_secret_file + _FORMER
    is_there = config.group_secret_file and Path(former).expanduser().exists()
    return _read(former) if is_there else None


def _read(path: str) -> GroupSecret:
    try:
        return read_group_secret(Path(path).expanduser())
    except GroupSecretError as error:
        raise ConfigError("dLegerGroupSecretFile", path, str(error)) from error
