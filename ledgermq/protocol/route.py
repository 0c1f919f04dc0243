"""Bodies of topics, routes and clusters: what brokers tell name servers, and name servers all
others.

A route in Java's own dialect has unquoted numbers as keys of brokerAddrs, which all known clients
read; one in standard JSON quotes them, for clients of 4.9.4 and later and for those that ask.

    {"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a",
                     "cluster":"DefaultCluster"}],
     "filterServerTable":{},
     "queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,
                    "writeQueueNums":8}]}

Source: TopicRouteData.java, QueueData.java, BrokerData.java, TopicConfig.java, DataVersion.java,
ClusterInfo.java, RegisterBrokerBody.java, TopicConfigSerializeWrapper.java, KVTable.java,
TopicList.java.
"""

import re
import zlib
from collections.abc import Generator
from struct import Struct
from typing import ClassVar, Final, Self

import msgspec

from ledgermq.protocol import lenient_json
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers.header import Int32, Int64
from ledgermq.protocol.json_body import REQUEST_DIALECT_BYTES_MAX, JsonBody, read_plain

# Broker id of the one that takes writes; in a ledger group the leader.
MASTER_ID: Final = 0
# 4 length or count
_INT32: Final = Struct(">i")
# As Java's Deflater.BEST_COMPRESSION.
_ZLIB_LEVEL: Final = 9
# A body may inflate to this much, and beyond the free part to so many times its size.
_INFLATED_BYTES_MAX: Final = 16 * 1024 * 1024
_INFLATED_BYTES_FREE: Final = 64 * 1024
_INFLATED_RATIO_MAX: Final = 100
_TOPIC_PARTS_COUNT: Final = 5
# What a body of 16 MiB has room for, and of its filter servers as JSON.
_TOPICS_MAX: Final = 1 << 20
_SERVERS_BYTES_MAX: Final = 65_536
# Of a route or a list of brokers in fastjson's dialect, as stock name servers write it: half a
# second of work; a thousand brokers have a fifth of it.
_ANSWER_DIALECT_BYTES_MAX: Final = 1 << 20
# Of a compressed body, for one piece of work of less than half a millisecond.
_INFLATED_A_PIECE: Final = 65_536
_DEFLATED_A_PIECE: Final = 16_384
_TOPICS_A_PIECE: Final = 128
# A topic in a compressed body whose numbers need no look at their range.
_USUAL_TOPIC: Final = re.compile(
    r"([^ ]*) ([1-9][0-9]{0,8}) ([1-9][0-9]{0,8}) ([1-9][0-9]{0,8}) ([^ ]*)(?: .*)?", re.DOTALL
)


class DataVersion(JsonBody, frozen=True):
    """DataVersion: tells whether a table has changed; two are equal when both numbers are."""

    is_plain: ClassVar[bool] = True
    dialect_bytes_max: ClassVar[int] = REQUEST_DIALECT_BYTES_MAX

    # Time of the last change, ms since 1970.
    timestamp: Int64 = 0
    # Changes since the broker was first started.
    counter: Int64 = 0


class TopicConfig(JsonBody, frozen=True):
    """TopicConfig: one topic of one broker."""

    is_plain: ClassVar[bool] = True

    topic_name: str = ""
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    # 4 read, 2 write, 1 inherit.
    perm: Int32 = 6
    topic_filter_type: str = "SINGLE_TAG"
    # 1 unit, 2 unit subscription.
    topic_sys_flag: Int32 = 0
    order: bool = False


class TopicConfigTableBody(JsonBody, frozen=True):
    """TopicConfigSerializeWrapper: all topics of a broker (21)."""

    is_plain: ClassVar[bool] = True

    # By name of the topic.
    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()


class QueueData(JsonBody, frozen=True):
    """QueueData: the queues of a topic on one broker name."""

    is_plain: ClassVar[bool] = True

    broker_name: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_sys_flag: Int32 = 0


class BrokerData(JsonBody, frozen=True):
    """BrokerData: the addresses of one broker name."""

    cluster: str
    broker_name: str
    # Broker id -> "ip:port"; 0 is the master.
    broker_addrs: dict[Int64, str]


class TopicRouteData(JsonBody, frozen=True):
    """TopicRouteData: where a topic is (105)."""

    generous_bytes_max: ClassVar[int] = lenient_json.DIALECT_BYTES_MAX
    dialect_bytes_max: ClassVar[int] = _ANSWER_DIALECT_BYTES_MAX

    # "broker-a:8;broker-b:4" for an ordered topic.
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    # Broker address -> filter servers.
    filter_server_table: dict[str, list[str]] = {}

    def encode(self, *, standard: bool = False) -> bytes:
        """Writes the route.

        Args:
            standard: True for a client that reads standard JSON only, so keys of brokerAddrs are
                quoted.
        """
        return lenient_json.write(self, has_quoted_keys=standard)


class ClusterInfo(JsonBody, frozen=True):
    """ClusterInfo: all brokers (106); never in standard JSON."""

    generous_bytes_max: ClassVar[int] = lenient_json.DIALECT_BYTES_MAX
    dialect_bytes_max: ClassVar[int] = _ANSWER_DIALECT_BYTES_MAX

    # By broker name.
    broker_addr_table: dict[str, BrokerData] = {}
    # Cluster name -> broker names.
    cluster_addr_table: dict[str, list[str]] = {}


class KVTable(JsonBody, frozen=True):
    """KVTable: texts by name (28, 219, the answer to 103)."""

    is_plain: ClassVar[bool] = True
    dialect_bytes_max: ClassVar[int] = REQUEST_DIALECT_BYTES_MAX

    table: dict[str, str] = {}


class TopicList(JsonBody, frozen=True):
    """TopicList: names of topics (206, 224, 304, 305)."""

    topic_list: list[str] = []
    # Of one master; only in the answer to 304.
    broker_addr: str | None = None


class _RegisterBrokerJson(JsonBody, frozen=True):
    """RegisterBrokerBody as JSON nests it."""

    is_plain: ClassVar[bool] = True
    dialect_bytes_max: ClassVar[int] = REQUEST_DIALECT_BYTES_MAX

    filter_server_list: list[str] = []
    topics: TopicConfigTableBody = msgspec.field(
        name="topicConfigSerializeWrapper", default_factory=TopicConfigTableBody
    )


class RegisterBrokerBody(msgspec.Struct, frozen=True):
    """RegisterBrokerBody: what a broker tells a name server about itself (103).

    As a zlib stream it is, big endian:

        4 length, data version as JSON
        4 count of topics, then for each 4 length and a text, its parts separated by blanks:
          name readQueueNums writeQueueNums perm topicFilterType [attributes]
        4 length, filter servers as a JSON array

    That form has neither topicSysFlag nor order; they read as 0 and False.
    """

    # By name of the topic.
    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()
    # Addresses of filter servers.
    filter_server_list: list[str] = []

    def encode(self, *, compressed: bool = False) -> bytes:
        """Writes the body as JSON, or as a zlib stream."""
        if not compressed:
            topics = TopicConfigTableBody(self.topic_config_table, self.data_version)
            return _RegisterBrokerJson(self.filter_server_list, topics).encode()
        parts = [_counted(self.data_version.encode()), _INT32.pack(len(self.topic_config_table))]
        for name, topic in self.topic_config_table.items():
            text = (
                f"{name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
                f"{topic.topic_filter_type}"
            )
            parts.append(_counted(text.encode()))
        parts.append(_counted(lenient_json.write(self.filter_server_list)))
        return zlib.compress(b"".join(parts), _ZLIB_LEVEL)

    @classmethod
    def decode(
        cls, data: bytes, *, compressed: bool = False, topics_max: int = _TOPICS_MAX
    ) -> Self:
        """Reads a body.

        Args:
            data: an empty one stands for no topics, in either form.
            compressed: as the header of the request says.
            topics_max: topics that are looked at; one that comes again counts again.

        Raises:
            RemoteProtocolError: the body is broken, has more topics, or inflates beyond 16 MiB or a
                hundredfold.
        """
        pieces = cls.decoding(data, compressed=compressed, topics_max=topics_max)
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                body: Self = end.value
                return body

    @classmethod
    def decoding(
        cls, data: bytes, *, compressed: bool = False, topics_max: int = _TOPICS_MAX
    ) -> Generator[None, None, Self]:
        """Reads a body as `decode`, but for JSON, which is read at once, piece by piece; yields
        behind each.
        """
        if not data:
            return cls()
        if not compressed:
            body = _RegisterBrokerJson.decode(data)
            topics = body.topics
            return cls(topics.topic_config_table, topics.data_version, body.filter_server_list)
        plain = yield from _inflating(data)
        version, at = _take_counted(plain, 0)
        count, at = _take_number(plain, at)
        if count > topics_max:
            raise RemoteProtocolError("topics in a compressed body", count, topics_max)
        table: dict[str, TopicConfig] = {}
        for number in range(count):
            text, at = _take_counted(plain, at)
            topic = _read_topic_text(text)
            table[topic.topic_name] = topic
            if number % _TOPICS_A_PIECE == 0:
                yield
        servers, at = _take_counted(plain, at)
        if len(servers) > _SERVERS_BYTES_MAX:
            raise RemoteProtocolError(
                "bytes of the filter servers", len(servers), _SERVERS_BYTES_MAX
            )
        if at != len(plain):
            raise RemoteProtocolError("bytes after the filter servers", len(plain) - at, 0)
        return cls(
            table,
            DataVersion.decode(version),
            read_plain(lenient_json.read(servers, REQUEST_DIALECT_BYTES_MAX), list[str]),
        )


def _counted(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _inflating(data: bytes) -> Generator[None, None, bytes]:
    limit = min(_INFLATED_BYTES_MAX, max(_INFLATED_BYTES_FREE, len(data) * _INFLATED_RATIO_MAX))
    stream = zlib.decompressobj()
    plain = bytearray()
    # What is left of the input is copied with each piece of output: a little of it at a time.
    left, at = b"", 0
    while not stream.eof:
        if not left:
            left = data[at : at + _DEFLATED_A_PIECE]
            at += len(left)
        is_end = at == len(data)
        try:
            piece = stream.decompress(left, _INFLATED_A_PIECE)
        except zlib.error as error:
            raise RemoteProtocolError("compressed body", str(error), "a zlib stream") from error
        plain += piece
        left = stream.unconsumed_tail
        if len(plain) > limit:
            raise RemoteProtocolError("size of the inflated body", f"over {limit}", limit)
        if is_end and not piece and not left and not stream.eof:
            raise RemoteProtocolError("compressed body", f"cut after {len(data)} bytes", "whole")
        yield
    return bytes(plain)


def _take_number(data: bytes, at: int) -> tuple[int, int]:
    if len(data) - at < _INT32.size:
        raise RemoteProtocolError("compressed body", f"ends at {len(data)}", f"{at + 4} or more")
    (number,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    # As a length and as a count of things with a length of their own.
    if not 0 <= number <= len(data) - at:
        raise RemoteProtocolError("length in a compressed body", number, len(data) - at)
    return number, at


def _take_counted(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _take_number(data, at)
    return data[at : at + length], at + length


def _read_topic_text(data: bytes) -> TopicConfig:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("topic in a compressed body", str(error), "UTF-8") from error
    if usual := _USUAL_TOPIC.fullmatch(text):
        name, read, write, permission, filter_type = usual.groups()
        return TopicConfig(name, int(read), int(write), int(permission), filter_type)
    parts = text.split(" ")
    if len(parts) < _TOPIC_PARTS_COUNT:
        raise RemoteProtocolError("topic in a compressed body", text, "five parts")
    members = {
        "topicName": parts[0],
        "readQueueNums": parts[1],
        "writeQueueNums": parts[2],
        "perm": parts[3],
        "topicFilterType": parts[4],
    }
    return TopicConfig.from_plain(members)
