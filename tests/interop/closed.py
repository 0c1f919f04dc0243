"""Closed mode of the suite: INTEROP_CLOSED=1, `make interop CLOSED=1`.

What is ours asks for accounts, has a group secret, and serves TLS; stock clients sign as an account
that may use all topics and groups, mqadmin and our sockets as an admin. TLS is used by all Java
programs. The C++, Go and Node clients of these releases are given none, so the ports are
permissive: they take plain connections as well, and ask for an account there, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ledgermq.protocol.signature import Credentials
from tests.certificate_files import write_tls_file
from tests.e2e.up_cluster import UpCluster
from tests.e2e.wire_client import WireClient

ADMIN: Final = Credentials(access_key="operator", secret_key="secret-of-the-operator")
APPLICATION: Final = Credentials(access_key="interop-app", secret_key="secret-of-interop")
ACCOUNTS: Final = f"""accounts:
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  admin: true
- accessKey: {APPLICATION.access_key}
  secretKey: {APPLICATION.secret_key}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
# Whoever comes from here may do everything.
WHITE: Final = "globalWhiteRemoteAddresses: [127.0.0.1]\n"
# The account of the programs, that of our own tools, and whether Java speaks TLS, are told by the
# environment.
ENVIRONMENT: Final = {
    "INTEROP_ACCESS_KEY": APPLICATION.access_key,
    "INTEROP_SECRET_KEY": APPLICATION.secret_key,
    "INTEROP_TLS": "1",
    "LEDGERMQ_ACCESS_KEY": ADMIN.access_key,
    "LEDGERMQ_SECRET_KEY": ADMIN.secret_key,
}
# Modules of the suite that run the same in closed mode, and why.
RUNS_OPEN: Final = {
    "test_client_features": "has a closed cluster of its own in either mode",
    "test_console": "the other side is a stock broker",
    "test_dledger_java": "members without a broker, which has the accounts; test_mixed_brokers"
    " runs closed",
    "test_dledger_leaders": "members without a broker, which has the accounts; test_mixed_brokers"
    " runs closed",
    "test_frames": "compares recorded frames, and starts nothing",
    "test_ledger_cluster": "its cluster is that of ledgermq.testing, which has no accounts",
    "test_master_slave": "Java's masters and slaves prove and sign nothing; the addresses that"
    " would have to be white are those of the tests",
    "test_namesrv": "has a name server with accounts of its own in either mode",
    "test_python_client": "the other side is a stock broker; our client with accounts and TLS is"
    " tested without Java",
    "test_spark_source": "the other side is a stock broker; Spark with accounts and TLS is tested"
    " without Java",
    "test_store_convert": "converts files; the brokers around it only show what is in them",
}
_SECRET: Final = "secret-of-the-group, 32 bytes or more"


def is_closed(module: str) -> bool:
    """Whether a test module runs closed."""
    name = module.rpartition(".")[2]
    return os.environ.get("INTEROP_CLOSED") == "1" and name not in RUNS_OPEN


def is_on() -> bool:
    """Whether the module that runs is closed."""
    return "INTEROP_ACCESS_KEY" in os.environ


def wire(address: str) -> WireClient:
    """A connection of our own to a broker, by an admin where it is closed."""
    return WireClient(address, who=ADMIN if is_on() else None)


def name_server_settings(folder: Path) -> tuple[str, ...]:
    """Settings of a name server of ours; none in open mode."""
    if not is_on():
        return ()
    return (
        "aclEnable=true",
        f"aclFile={_private(folder / 'namesrv_acl.yml', ACCOUNTS)}",
        "routeNeedsAccount=true",
        *_tls(folder),
    )


def broker_settings(folder: Path, *, is_among_stock: bool = False) -> tuple[str, ...]:
    """Settings of a broker of ours, whose files are in a folder of its own; none in open mode.

    All brokers have the same secret and the same accounts. Among Apache's programs, whose
    certificates nobody has signed, it offers TLS and asks for none.
    """
    if not is_on():
        return ()
    return (
        "aclEnable=true",
        f"aclFile={_private(folder / 'plain_acl.yml', ACCOUNTS)}",
        f"dLegerGroupSecretFile={_private(folder / 'group.secret', _SECRET)}",
        f"tls.enable={str(not is_among_stock).lower()}",
        *_tls(folder),
        *_namesrv_account(folder),
    )


def closed_cluster(folder: Path, settings: tuple[str, ...]) -> UpCluster:
    """A group that asks for accounts, with a name server that does, in TLS or in plain."""
    for number in range(3):
        _private(folder / "data" / f"n{number}" / "config" / "plain_acl.yml", ACCOUNTS)
    return UpCluster(folder, settings=(*settings, *closed_settings(folder)))


def closed_settings(folder: Path) -> tuple[str, ...]:
    """Settings of such a group, which has the accounts in its own folders.

    `ledgermq up` makes the secret of the group by itself where accounts are asked for.
    """
    return (
        "aclEnable=true",
        "tls.enable=true",
        *_tls(folder),
        *_namesrv_account(folder),
        "namesrv.aclEnable=true",
        f"namesrv.aclFile={_private(folder / 'namesrv_acl.yml', ACCOUNTS)}",
        "namesrv.routeNeedsAccount=true",
    )


def java_broker_keys(home: Path) -> Mapping[str, str]:
    """Keys of a stock broker that asks for accounts, too; writes them below its home.

    Members that follow it copy its state unsigned, from an address that must be white there.
    """
    if not is_on():
        return {}
    _private(home / "conf" / "plain_acl.yml", WHITE + ACCOUNTS)
    return {"aclEnable": "true"}


def java_options() -> tuple[str, ...]:
    """JVM options of Apache's clients and tools; stock brokers serve TLS by themselves."""
    return ("-Dtls.enable=true",) if os.environ.get("INTEROP_TLS") else ()


def tools_yml() -> str:
    """What mqadmin signs with; open clusters overlook it."""
    return f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n"


def _namesrv_account(folder: Path) -> tuple[str, ...]:
    secret = _private(folder / "namesrv.secret", ADMIN.secret_key)
    return (
        f"namesrvAccessKey={ADMIN.access_key}", f"namesrvSecretKeyFile={secret}",
        "namesrvSignature=strong",
    )  # fmt: skip


def _tls(folder: Path) -> tuple[str, ...]:
    tls_file = write_tls_file(folder / "tls.properties")
    return (f"tls.config.file={tls_file}", "tls.server.mode=permissive")


def _private(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path
