"""Headers of the name server: codes 100 to 105, 205, 216, 219, 224, 322, 327.

Source: RegisterBrokerRequestHeader.java and its neighbors.
"""

from ledgermq.protocol.headers.header import Header, Int32, Int64


class RegisterBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """RegisterBrokerRequestHeader (103)."""

    broker_name: str
    # "ip:port" that clients connect to.
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    # 0 is the master.
    broker_id: Int64
    # The body is a zlib stream.
    compressed: bool = False
    # CRC-32 of the body as sent, masked to 31 bits; 0 is "not checked".
    body_crc32: Int32 = 0
    # 5.x
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    # LedgerMQ: the term of its ledger in which a leader registers; others read past it.
    ledger_term: Int64 | None = None


class RegisterBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """RegisterBrokerResponseHeader: the master of a slave that registered."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """UnRegisterBrokerRequestHeader (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class GetRouteInfoRequestHeader(Header, frozen=True, kw_only=True):
    """GetRouteInfoRequestHeader (105)."""

    topic: str
    # 4.9.4: the client reads standard JSON only.
    accept_standard_json_only: bool | None = None


class PutKVConfigRequestHeader(Header, frozen=True, kw_only=True):
    """PutKVConfigRequestHeader (100)."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header, frozen=True, kw_only=True):
    """GetKVConfigRequestHeader (101)."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, frozen=True, kw_only=True):
    """GetKVConfigResponseHeader."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header, frozen=True, kw_only=True):
    """DeleteKVConfigRequestHeader (102)."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header, frozen=True, kw_only=True):
    """GetKVListByNamespaceRequestHeader (219)."""

    namespace: str


class WipeWritePermOfBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """WipeWritePermOfBrokerRequestHeader (205)."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """WipeWritePermOfBrokerResponseHeader."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """AddWritePermOfBrokerRequestHeader (327)."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """AddWritePermOfBrokerResponseHeader."""

    add_topic_count: Int32


class QueryDataVersionRequestHeader(Header, frozen=True, kw_only=True):
    """QueryDataVersionRequestHeader (322)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(Header, frozen=True, kw_only=True):
    """QueryDataVersionResponseHeader."""

    changed: bool


class GetTopicsByClusterRequestHeader(Header, frozen=True, kw_only=True):
    """GetTopicsByClusterRequestHeader (224)."""

    cluster: str


class DeleteTopicFromNamesrvRequestHeader(Header, frozen=True, kw_only=True):
    """DeleteTopicFromNamesrvRequestHeader (216)."""

    topic: str
    # 4.9.8 and 5.x: only on the brokers of this cluster.
    cluster_name: str | None = None
