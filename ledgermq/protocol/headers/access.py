"""Headers of access control, version 1: codes 50 to 53.

Source: CreateAccessConfigRequestHeader.java and its neighbors.
"""

from ledgermq.protocol.headers.header import Header


class CreateAccessConfigRequestHeader(Header, frozen=True, kw_only=True):
    """CreateAccessConfigRequestHeader (50); lists are joined by commas."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAccessConfigRequestHeader(Header, frozen=True, kw_only=True):
    """DeleteAccessConfigRequestHeader (51)."""

    access_key: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(Header, frozen=True, kw_only=True):
    """UpdateGlobalWhiteAddrsConfigRequestHeader (53)."""

    global_white_addrs: str
    # 4.9.8
    acl_file_full_path: str | None = None


class GetBrokerAclConfigResponseHeader(Header, frozen=True, kw_only=True):
    """GetBrokerAclConfigResponseHeader (52)."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str
