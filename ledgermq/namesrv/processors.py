"""The name server's requests: one function for each code, and the table of them.

A processor takes the command and its connection and returns the answer. It raises this room's
errors; only `answer` turns them into response codes. An unknown code is answered with 3 (4.9.x
stays silent there, which leaves clients waiting).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.logger import Logger

from ledgermq.namesrv.config import NamesrvConfig, with_settings
from ledgermq.namesrv.errors import BodyChecksumError, ConfigItemNotFoundError, NamesrvError
from ledgermq.namesrv.kv_table import ORDER_TOPIC_CONFIG, KvTable
from ledgermq.namesrv.route_table import Registration, RouteTable
from ledgermq.protocol.checksum import crc32_masked
from ledgermq.protocol.codes import VERSION_4_9_4, RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from ledgermq.protocol.properties_file import format_properties, parse_properties
from ledgermq.protocol.route import DataVersion, KVTable, RegisterBrokerBody, TopicList

Processor = Callable[[RemotingCommand, object], RemotingCommand]

_log = Logger()
# An address registers under one of these ids; -1 is a broker that does not know its role yet.
_BROKER_ID_MIN: Final = 0
_SETTINGS_BYTES_MAX: Final = 65_536


class Processors:
    """Binds the requests to the two tables."""

    def __init__(
        self,
        config: NamesrvConfig,
        routes: RouteTable,
        kv: KvTable,
        clock_ms: Callable[[], float],
    ) -> None:
        self._config = config
        self._routes = routes
        self._kv = kv
        self._clock_ms = clock_ms
        self._unknown_codes: set[int] = set()
        self._table: dict[int, Processor] = {
            RequestCode.PUT_KV_CONFIG: self.put_kv_config,
            RequestCode.GET_KV_CONFIG: self.get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_list,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_unit_sub_ununit_topics,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
        }

    def answer(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """Returns the answer to any request; never raises for what a peer sent."""
        processor = self._table.get(command.code)
        if processor is None:
            self._report_unknown(command.code)
            return command.response(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {command.code} not supported",
            )
        try:
            return processor(command, owner)
        except NamesrvError as error:
            return command.response(error.response_code, str(error))
        except RemoteProtocolError as error:
            return command.response(ResponseCode.SYSTEM_ERROR, str(error))
        except OSError as error:
            _log.error("request {code} failed: {reason}", code=command.code, reason=str(error))
            return command.response(ResponseCode.SYSTEM_ERROR, f"the name server's disk: {error}")

    def _report_unknown(self, code: int) -> None:
        # A peer chooses the numbers: at most a few of them are kept and told.
        if code not in self._unknown_codes and len(self._unknown_codes) < 100:
            self._unknown_codes.add(code)
            _log.warn("request code {code} is not supported", code=code)

    # Brokers.

    def register_broker(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """REGISTER_BROKER: takes a broker, its topics, and tells it its master."""
        header = command.header(RegisterBrokerRequestHeader)
        if header.broker_id < _BROKER_ID_MIN:
            raise RemoteProtocolError("brokerId", header.broker_id, "0 for the master, or more")
        found = crc32_masked(command.body)
        if header.body_crc32 and found != header.body_crc32:
            raise BodyChecksumError(found, header.body_crc32)
        body = RegisterBrokerBody.decode(command.body, compressed=header.compressed)
        told = Registration(
            cluster_name=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            broker_addr=header.broker_addr,
            ha_server_addr=header.ha_server_addr,
            data_version=body.data_version,
            topics=body.topic_config_table,
            filter_servers=tuple(body.filter_server_list),
            expires_after_ms=header.heartbeat_timeout_millis,
        )
        master = self._routes.register(told, owner, self._clock_ms())
        answer = RegisterBrokerResponseHeader(
            ha_server_addr=master.ha_server_addr if master else None,
            master_addr=master.broker_addr if master else None,
        )
        return command.response(ResponseCode.SUCCESS, header=answer, body=self._order_config())

    def _order_config(self) -> bytes:
        if not self._config.return_order_topic_config_to_broker:
            return b""
        try:
            return KVTable(table=self._kv.items(ORDER_TOPIC_CONFIG)).encode()
        except ConfigItemNotFoundError:
            return b""

    def unregister_broker(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """UNREGISTER_BROKER."""
        header = command.header(UnRegisterBrokerRequestHeader)
        self._routes.unregister(header.broker_addr, header.broker_name, header.broker_id)
        return command.response(ResponseCode.SUCCESS)

    def query_data_version(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """QUERY_DATA_VERSION: has the broker's topic table changed since it registered?"""
        header = command.header(QueryDataVersionRequestHeader)
        version = DataVersion.decode(command.body)
        known = self._routes.refresh(header.broker_addr, version, self._clock_ms())
        return command.response(
            ResponseCode.SUCCESS,
            header=QueryDataVersionResponseHeader(changed=known != version),
            body=known.encode() if known is not None else b"",
        )

    def wipe_write_perm(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """WIPE_WRITE_PERM_OF_BROKER."""
        header = command.header(WipeWritePermOfBrokerRequestHeader)
        count = self._routes.set_write_perm(header.broker_name, writable=False)
        answer = WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        return command.response(ResponseCode.SUCCESS, header=answer)

    def add_write_perm(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """ADD_WRITE_PERM_OF_BROKER."""
        header = command.header(AddWritePermOfBrokerRequestHeader)
        count = self._routes.set_write_perm(header.broker_name, writable=True)
        answer = AddWritePermOfBrokerResponseHeader(add_topic_count=count)
        return command.response(ResponseCode.SUCCESS, header=answer)

    # Routes and lists.

    def get_route(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """GET_ROUTEINFO_BY_TOPIC."""
        header = command.header(GetRouteInfoRequestHeader)
        order = None
        if self._config.order_message_enable:
            order = self._kv.find(ORDER_TOPIC_CONFIG, header.topic)
        route = self._routes.route(header.topic, order)
        is_standard = command.version >= VERSION_4_9_4 or bool(header.accept_standard_json_only)
        return command.response(ResponseCode.SUCCESS, body=route.encode(standard=is_standard))

    def get_cluster_info(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """GET_BROKER_CLUSTER_INFO."""
        return command.response(ResponseCode.SUCCESS, body=self._routes.clusters().encode())

    def get_all_topics(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        return _topic_list(command, self._routes.topics())

    def get_topics_by_cluster(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """GET_TOPICS_BY_CLUSTER."""
        header = command.header(GetTopicsByClusterRequestHeader)
        return _topic_list(command, self._routes.topics_of_cluster(header.cluster))

    def get_system_topics(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS."""
        topics, address = self._routes.system_topics()
        return _topic_list(command, topics, address)

    def get_unit_topics(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """GET_UNIT_TOPIC_LIST."""
        return _topic_list(command, self._routes.unit_topics(unit=True, unit_sub=None))

    def get_unit_sub_topics(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """GET_HAS_UNIT_SUB_TOPIC_LIST."""
        return _topic_list(command, self._routes.unit_topics(unit=None, unit_sub=True))

    def get_unit_sub_ununit_topics(
        self, command: RemotingCommand, owner: object
    ) -> RemotingCommand:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST."""
        return _topic_list(command, self._routes.unit_topics(unit=False, unit_sub=True))

    def delete_topic(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """DELETE_TOPIC_IN_NAMESRV."""
        header = command.header(DeleteTopicFromNamesrvRequestHeader)
        self._routes.delete_topic(header.topic, header.cluster_name)
        return command.response(ResponseCode.SUCCESS)

    # Key-value table and configuration.

    def put_kv_config(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """PUT_KV_CONFIG."""
        header = command.header(PutKVConfigRequestHeader)
        self._kv.put(header.namespace, header.key, header.value)
        return command.response(ResponseCode.SUCCESS)

    def get_kv_config(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """GET_KV_CONFIG."""
        header = command.header(GetKVConfigRequestHeader)
        value = self._kv.get(header.namespace, header.key)
        return command.response(ResponseCode.SUCCESS, header=GetKVConfigResponseHeader(value=value))

    def delete_kv_config(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """DELETE_KV_CONFIG."""
        header = command.header(DeleteKVConfigRequestHeader)
        self._kv.delete(header.namespace, header.key)
        return command.response(ResponseCode.SUCCESS)

    def get_kv_list(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """GET_KVLIST_BY_NAMESPACE."""
        header = command.header(GetKVListByNamespaceRequestHeader)
        body = KVTable(table=self._kv.items(header.namespace)).encode()
        return command.response(ResponseCode.SUCCESS, body=body)

    def get_config(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """GET_NAMESRV_CONFIG: the effective settings as properties text."""
        text = format_properties(self._config.texts)
        return command.response(ResponseCode.SUCCESS, body=text.encode())

    def update_config(self, command: RemotingCommand, owner: object) -> RemotingCommand:
        """UPDATE_NAMESRV_CONFIG: changes a few settings until the next start."""
        size = len(command.body)
        if size > _SETTINGS_BYTES_MAX:
            raise RemoteProtocolError("settings", size, f"at most {_SETTINGS_BYTES_MAX} bytes")
        try:
            settings = parse_properties(command.body.decode("utf-8"))
        except ValueError as error:
            raise RemoteProtocolError("settings", str(error), "properties text") from error
        self._config = with_settings(self._config, settings)
        for name, text in settings.items():
            _log.info("{name} is {text} until the next start", name=name, text=text)
        return command.response(ResponseCode.SUCCESS)


def _topic_list(
    command: RemotingCommand, topics: list[str], address: str | None = None
) -> RemotingCommand:
    body = TopicList(topic_list=topics, broker_addr=address).encode()
    return command.response(ResponseCode.SUCCESS, body=body)
