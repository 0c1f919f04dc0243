"""Admin commands about access control: accounts, addresses that need none, version of the rules.

A broker without `aclEnable=true` refuses all of them.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from ledgermq.cli.security import SecurityError, read_secret
from ledgermq.cli.subcommand import BROKERS, Flag, Row, boolean, order
from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)

_ACCESS_KEY: Final = Flag("-a", "accessKey", "name of the account")
_ACCOUNT_COLUMNS: Final = (
    "account", "admin", "address", "default_topic", "default_group", "topics", "groups",
)  # fmt: skip


def account_of(options: argparse.Namespace) -> CreateAccessConfigRequestHeader:
    """Returns the account that is to be made or changed.

    Raises:
        SecurityError: its secret cannot be read.
    """
    secret = options.secretKey
    if options.secretKeyFile is not None:
        if secret is not None:
            raise SecurityError("-s and --secretKeyFile both name the secret: give one of them")
        secret = read_secret(options.secretKeyFile, ascii(options.accessKey)[1:-1])
    return CreateAccessConfigRequestHeader(
        access_key=options.accessKey,
        secret_key=secret,
        white_remote_address=options.whiteRemoteAddress,
        admin=options.admin,
        default_topic_perm=options.defaultTopicPerm,
        default_group_perm=options.defaultGroupPerm,
        topic_perms=options.topicPerms,
        group_perms=options.groupPerms,
    )


def _version_rows(answer: RemotingCommand) -> list[Row]:
    header = answer.header(GetBrokerAclConfigResponseHeader)
    main: dict[str, Any] = json.loads(header.version)
    files: dict[str, dict[str, Any]] = json.loads(header.all_acl_file_version or "{}") or {}
    return [
        (header.broker_name, file, version.get("counter"), version.get("timestamp"))
        for file, version in (sorted(files.items()) or [("", main)])
    ]


def _account_rows(answer: RemotingCommand) -> list[Row]:
    """Accounts without their secrets: a screen is no place for them."""
    document = lenient_json.read(answer.body)
    accounts = document.get("plainAccessConfigs") if isinstance(document, dict) else None
    return [
        (
            account.get("accessKey", ""),
            bool(account.get("admin")),
            account.get("whiteRemoteAddress") or "",
            account.get("defaultTopicPerm") or "",
            account.get("defaultGroupPerm") or "",
            ",".join(account.get("topicPerms") or ()),
            ",".join(account.get("groupPerms") or ()),
        )
        for account in accounts or ()
    ]


SUBCOMMANDS: Final = {
    "updateAclConfig": order(
        "create or change an account",
        BROKERS,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        _ACCESS_KEY,
        Flag("-s", "secretKey", "its secret, seen by all users of this machine: better -f", None),
        Flag(
            "-f",
            "secretKeyFile",
            "file with its secret, mode 0600; - for standard input, asked for on a terminal;"
            " needed for a new account",
            None,
        ),
        Flag("-w", "whiteRemoteAddress", "addresses that need no signature", None),
        Flag("-i", "defaultTopicPerm", "DENY, PUB, SUB or PUB|SUB", None),
        Flag("-u", "defaultGroupPerm", "DENY, PUB, SUB or PUB|SUB", None),
        Flag("-t", "topicPerms", "topicA=PUB,topicB=SUB", None),
        Flag("-g", "groupPerms", "groupA=SUB,groupB=DENY", None),
        Flag("-m", "admin", "may administrate: true or false", False, boolean),
        header=account_of,
    ),
    "deleteAccessConfig": order(
        "delete an account",
        BROKERS,
        RequestCode.DELETE_ACL_CONFIG,
        _ACCESS_KEY,
        header=lambda options: DeleteAccessConfigRequestHeader(access_key=options.accessKey),
    ),
    "updateGlobalWhiteAddr": order(
        "set the addresses that need no account",
        BROKERS,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Flag("-g", "globalWhiteRemoteAddresses", "joined by commas"),
        Flag("-p", "aclFileFullPath", "of this file; default: plain_acl.yml", None),
        header=lambda options: UpdateGlobalWhiteAddrsConfigRequestHeader(
            global_white_addrs=options.globalWhiteRemoteAddresses,
            acl_file_full_path=options.aclFileFullPath,
        ),
    ),
    "clusterAclConfigVersion": order(
        "version of the rules",
        BROKERS,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        columns=("broker", "file", "changes", "changed_ms"),
        rows=_version_rows,
    ),
    "getAccessConfigSubCommand": order(
        "all accounts",
        BROKERS,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        columns=_ACCOUNT_COLUMNS,
        rows=_account_rows,
    ),
}
