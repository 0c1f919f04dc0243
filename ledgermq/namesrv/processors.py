"""The name server's requests: one function for each code, what it needs, and the table of them.

A processor takes the command and its caller and returns the answer, or a Deferred of one. It raises
this room's errors; only `answer` turns them into response codes. An unknown code is answered with 3
(4.9.x stays silent there, which leaves clients waiting).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.namesrv.audit import NameAudit
from ledgermq.namesrv.bounds import (
    check_address,
    check_filter_servers,
    check_name,
    check_silence,
    check_topic,
)
from ledgermq.namesrv.config import CHANGEABLE_KEYS, NamesrvConfig, with_settings
from ledgermq.namesrv.errors import (
    BodyChecksumError,
    ConfigItemNotFoundError,
    HeldError,
    LimitError,
    LineFullError,
    NamesrvError,
    NotAllowedError,
    RouteNotFoundError,
)
from ledgermq.namesrv.guard import Caller, Guard, Need, Peer, Refusals
from ledgermq.namesrv.kv_table import ORDER_TOPIC_CONFIG, KvTable
from ledgermq.namesrv.registrations import Registration
from ledgermq.namesrv.route_table import RouteTable
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
from ledgermq.protocol.transport.sliced_answers import Pieces, SlicedAnswers

Answer = RemotingCommand | Deferred[RemotingCommand]
Processor = Callable[[RemotingCommand, Caller], Answer]


class Row(NamedTuple):
    """One request code."""

    need: Need
    processor: Processor


_log = Logger()
# An address registers under one of these ids; -1 is a broker that does not know its role yet.
_BROKER_ID_MIN: Final = 0
_SETTINGS_BYTES_MAX: Final = 65_536
# Lists that are kept encoded, one for each cluster among them.
_LISTS_MAX: Final = 100
_LISTS_BYTES_MAX: Final = 32 << 20
# Of a cluster what is not worth to be kept, and of a route what is.
_SMALL_LIST_BYTES: Final = 4096
_LARGE_ROUTE_BYTES: Final = 16_384
# What takes so long to make is told as it was for so many times that, while the routes change.
_SLOW_MS: Final = 5.0
_REST_FACTOR: Final = 10
_NAMES_A_PIECE: Final = 512
# Registrations of the greatest size whose bodies may wait. What is made of a compressed one takes
# so many times as much.
_BODIES_MAX: Final = 4
_INFLATED_TIMES: Final = 40


class _Kept(NamedTuple):
    """A body that was made of one state of the routes, and until when it is told of later ones."""

    body: bytes
    version: int
    until_ms: float


class Processors:
    """Binds the requests to the two tables."""

    def __init__(
        self,
        config: NamesrvConfig,
        routes: RouteTable,
        kv: KvTable,
        guard: Guard,
        clock_ms: Callable[[], float],
        soon: Callable[[Callable[[], None]], None],
        audit: NameAudit | None = None,
    ) -> None:
        """Binds the parts; `clock_ms` is monotonic, `soon` has a function called in another turn,
        `audit` is None where nothing is noted.
        """
        self._audit = audit
        self._config = config
        self._routes = routes
        self._kv = kv
        self._guard = guard
        self._clock_ms = clock_ms
        self.refusals = Refusals(clock_ms)
        # The answer to registrations, and the version of the key-value table that it was made of.
        self._order: tuple[int, bytes] = (-1, b"")
        # Registrations of many topics; those of one registrant have at most half of what may wait.
        self._sliced = SlicedAnswers(
            soon, clock_ms, LineFullError, bytes_max=_BODIES_MAX * config.registration_bytes_max
        )
        # Bodies of lists and of large routes by code and name.
        self._lists: dict[tuple[int, str], _Kept] = {}
        self._lists_version = -1
        self._unknown_codes: set[int] = set()
        self.table: dict[int, Row] = {
            code: Row(need, processor)
            for need, processors in self._processors().items()
            for code, processor in processors.items()
        }

    def _processors(self) -> dict[Need, dict[int, Processor]]:
        """All codes by what they need; one that is not here is not supported."""
        return {
            Need.READ: {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
                RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
                RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
                RequestCode.GET_UNIT_TOPIC_LIST: self.get_unit_topics,
                RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_unit_sub_topics,
                RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_unit_sub_ununit_topics,
            },
            Need.REGISTER: {
                RequestCode.REGISTER_BROKER: self.register_broker,
                RequestCode.UNREGISTER_BROKER: self.unregister_broker,
                RequestCode.QUERY_DATA_VERSION: self.query_data_version,
                # Applications have no use for these; brokers ask for settings.
                RequestCode.GET_NAMESRV_CONFIG: self.get_config,
                RequestCode.GET_KV_CONFIG: self.get_kv_config,
                RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_list,
            },
            Need.ADMIN: {
                RequestCode.PUT_KV_CONFIG: self.put_kv_config,
                RequestCode.DELETE_KV_CONFIG: self.delete_kv_config,
                RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
                RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
                RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
                RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            },
        }

    def answer(self, command: RemotingCommand, peer: Peer) -> Answer:
        """Returns the answer to any request; never raises for what a peer sent, nor does a Deferred
        fail.
        """
        row = self.table.get(command.code)
        try:
            # Nobody is told what is supported who may not even read.
            caller = self._guard.admit(Need.READ if row is None else row.need, command, peer)
            if row is None:
                return self._not_supported(command)
            answer = self._answer(row, command, caller)
        except (NamesrvError, RemoteProtocolError, OSError) as error:
            return self._failed(command, peer, error)
        if isinstance(answer, Deferred):
            answer.addErrback(self._late_failure, command, peer)
        return answer

    def _answer(self, row: Row, command: RemotingCommand, caller: Caller) -> Answer:
        audit = self._audit
        if audit is None or row.need is not Need.ADMIN:
            return row.processor(command, caller)
        return audit.watch(
            command, caller, lambda: row.processor(command, caller), lambda: self._seen(command)
        )

    def _seen(self, command: RemotingCommand) -> object:
        """What a request that changes something is about, as it is at the moment."""
        fields = command.ext_fields or {}
        if command.code in (RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG):
            return self._kv.find(fields.get("namespace", ""), fields.get("key", ""))
        if command.code == RequestCode.UPDATE_NAMESRV_CONFIG:
            return {name: self._config.texts[name] for name in CHANGEABLE_KEYS}
        return None

    def _late_failure(
        self, failure: Failure, command: RemotingCommand, peer: Peer
    ) -> RemotingCommand:
        error = failure.value
        if isinstance(error, (NamesrvError, RemoteProtocolError, OSError)):
            return self._failed(command, peer, error)
        _log.failure("request {code} failed", failure, code=command.code)
        return command.response(ResponseCode.SYSTEM_ERROR, "the name server failed; see its log")

    def _failed(
        self,
        command: RemotingCommand,
        peer: Peer,
        error: NamesrvError | RemoteProtocolError | OSError,
    ) -> RemotingCommand:
        if isinstance(error, OSError):
            _log.error("request {code} failed: {reason}", code=command.code, reason=str(error))
            return command.response(ResponseCode.SYSTEM_ERROR, f"the name server's disk: {error}")
        if not isinstance(error, (RouteNotFoundError, ConfigItemNotFoundError)):
            self.refusals.note(command.code, peer, error)
        if self._audit is not None and isinstance(error, (NotAllowedError, HeldError)):
            self._audit.refused(command, peer, error)
        code = error.response_code if isinstance(error, NamesrvError) else ResponseCode.SYSTEM_ERROR
        return command.response(code, str(error))

    def _not_supported(self, command: RemotingCommand) -> RemotingCommand:
        self._report_unknown(command.code)
        return command.response(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported"
        )

    def _report_unknown(self, code: int) -> None:
        # A peer chooses the numbers: at most a few of them are kept and told.
        if code not in self._unknown_codes and len(self._unknown_codes) < 100:
            self._unknown_codes.add(code)
            _log.warn("request code {code} is not supported", code=code)

    # Brokers.

    def register_broker(self, command: RemotingCommand, caller: Caller) -> Answer:
        """REGISTER_BROKER: takes a broker, its topics, and tells it its master.

        A hundred thousand topics take half a second: piece by piece, a part of each turn.
        """
        header = command.header(RegisterBrokerRequestHeader)
        caller.check_broker_name(header.broker_name)
        self._check_registration(header, len(command.body))
        if header.broker_id < _BROKER_ID_MIN:
            raise RemoteProtocolError("brokerId", header.broker_id, "0 for the master, or more")
        size, limit = len(command.body), self._config.registration_bytes_max
        found = crc32_masked(command.body)
        if header.body_crc32 and found != header.body_crc32:
            raise BodyChecksumError(found, header.body_crc32)
        return self._sliced.answer(
            caller.connection,
            self._registering(command, header, caller),
            min(size * _INFLATED_TIMES, limit) if header.compressed else size,
            caller.registrant.key,
        )

    def _behind(self, caller: Caller, answer: Callable[[], RemotingCommand]) -> Answer:
        """Answers behind the registrations of the same connection that are under way."""
        key = caller.registrant.key
        if not self._sliced.has_of(caller.connection, key):
            return answer()

        def pieces() -> Pieces:
            yield from ()
            return answer()

        return self._sliced.answer(caller.connection, pieces(), 0, key)

    def _registering(
        self, command: RemotingCommand, header: RegisterBrokerRequestHeader, caller: Caller
    ) -> Pieces:
        limits, registrant = self._config.limits, caller.registrant
        body = yield from RegisterBrokerBody.decoding(
            command.body,
            compressed=header.compressed,
            topics_max=limits.topics_max
            if registrant.is_free
            else limits.topics_per_registrant_max,
        )
        check_filter_servers(body.filter_server_list)
        for number, (name, config) in enumerate(body.topic_config_table.items()):
            check_topic(name, config)
            if number % _NAMES_A_PIECE == 0:
                yield
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
            ledger_term=header.ledger_term,
        )
        master = yield from self._routes.registering(
            told, registrant, caller.connection, self._clock_ms()
        )
        answer = RegisterBrokerResponseHeader(
            ha_server_addr=master.ha_server_addr if master else None,
            master_addr=master.broker_addr if master else None,
        )
        return command.response(ResponseCode.SUCCESS, header=answer, body=self._order_config())

    def _check_registration(self, header: RegisterBrokerRequestHeader, size_bytes: int) -> None:
        """Lets what is told beside the topics pass."""
        limit = self._config.registration_bytes_max
        if size_bytes > limit:
            raise LimitError("registrationBytesMax", size_bytes, limit)
        check_name("brokerName", header.broker_name)
        check_name("clusterName", header.cluster_name)
        check_address("brokerAddr", header.broker_addr)
        # Empty where nobody copies a log.
        if header.ha_server_addr:
            check_address("haServerAddr", header.ha_server_addr)
        check_silence(header.heartbeat_timeout_millis)

    def _order_config(self) -> bytes:
        """Encoded once for each state of the table: every broker asks twice a minute."""
        if not self._config.return_order_topic_config_to_broker:
            return b""
        if self._order[0] != self._kv.version:
            try:
                body = KVTable(table=self._kv.items(ORDER_TOPIC_CONFIG)).encode()
            except ConfigItemNotFoundError:
                body = b""
            self._order = (self._kv.version, body)
        return self._order[1]

    def unregister_broker(self, command: RemotingCommand, caller: Caller) -> Answer:
        """UNREGISTER_BROKER."""
        header = command.header(UnRegisterBrokerRequestHeader)
        caller.check_broker_name(header.broker_name)
        return self._behind(caller, lambda: self._unregister(command, header, caller))

    def _unregister(
        self, command: RemotingCommand, header: UnRegisterBrokerRequestHeader, caller: Caller
    ) -> RemotingCommand:
        self._routes.unregister(
            header.broker_addr, header.broker_name, caller.registrant, caller.connection
        )
        return command.response(ResponseCode.SUCCESS)

    def query_data_version(self, command: RemotingCommand, caller: Caller) -> Answer:
        """QUERY_DATA_VERSION: has the broker's topic table changed since it registered?"""
        header = command.header(QueryDataVersionRequestHeader)
        caller.check_broker_name(header.broker_name)
        return self._behind(caller, lambda: self._compare_version(command, header, caller))

    def _compare_version(
        self, command: RemotingCommand, header: QueryDataVersionRequestHeader, caller: Caller
    ) -> RemotingCommand:
        version = DataVersion.decode(command.body)
        known = self._routes.refresh(
            header.broker_addr, version, caller.registrant, self._clock_ms()
        )
        return command.response(
            ResponseCode.SUCCESS,
            header=QueryDataVersionResponseHeader(changed=known != version),
            body=known.encode() if known is not None else b"",
        )

    def wipe_write_perm(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
        """WIPE_WRITE_PERM_OF_BROKER."""
        header = command.header(WipeWritePermOfBrokerRequestHeader)
        count = self._routes.set_write_perm(header.broker_name, writable=False)
        answer = WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        return command.response(ResponseCode.SUCCESS, header=answer)

    def add_write_perm(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
        """ADD_WRITE_PERM_OF_BROKER."""
        header = command.header(AddWritePermOfBrokerRequestHeader)
        count = self._routes.set_write_perm(header.broker_name, writable=True)
        answer = AddWritePermOfBrokerResponseHeader(add_topic_count=count)
        return command.response(ResponseCode.SUCCESS, header=answer)

    # Routes and lists.

    def get_route(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
        """GET_ROUTEINFO_BY_TOPIC."""
        header = command.header(GetRouteInfoRequestHeader)
        order = None
        if self._config.order_message_enable:
            order = self._kv.find(ORDER_TOPIC_CONFIG, header.topic)
        is_standard = command.version >= VERSION_4_9_4 or bool(header.accept_standard_json_only)
        key = command.code, f"{header.topic}\0{is_standard}\0{order}"
        body = self._find_kept(key)
        if body is None:
            begun_ms = self._clock_ms()
            body = self._routes.route(header.topic, order).encode(standard=is_standard)
            if len(body) > _LARGE_ROUTE_BYTES:
                self._keep(key, body, begun_ms)
        return command.response(ResponseCode.SUCCESS, body=body)

    def get_cluster_info(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
        """GET_BROKER_CLUSTER_INFO."""
        return self._listed(command, lambda: self._routes.clusters().encode())

    def get_all_topics(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        return self._listed(command, lambda: _topic_list(self._routes.topics()))

    def get_topics_by_cluster(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
        """GET_TOPICS_BY_CLUSTER."""
        cluster = command.header(GetTopicsByClusterRequestHeader).cluster
        return self._listed(
            command, lambda: _topic_list(self._routes.topics_of_cluster(cluster)), cluster
        )

    def get_system_topics(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS."""
        return self._listed(command, lambda: _topic_list(*self._routes.system_topics()))

    def get_unit_topics(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
        """GET_UNIT_TOPIC_LIST."""
        return self._listed(command, lambda: _topic_list(self._routes.unit_topics()))

    def get_unit_sub_topics(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
        """GET_HAS_UNIT_SUB_TOPIC_LIST."""
        return self._unit_sub_topics(command, also_unit=True)

    def get_unit_sub_ununit_topics(
        self, command: RemotingCommand, caller: Caller
    ) -> RemotingCommand:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST."""
        return self._unit_sub_topics(command, also_unit=False)

    def _unit_sub_topics(self, command: RemotingCommand, *, also_unit: bool) -> RemotingCommand:
        return self._listed(
            command, lambda: _topic_list(self._routes.unit_sub_topics(also_unit=also_unit))
        )

    def _listed(
        self, command: RemotingCommand, make: Callable[[], bytes], name: str = ""
    ) -> RemotingCommand:
        """Answers with a list, which is made once for each state of the routes, and a tenth of the
        time at most: with many topics it is much work, and anybody may ask for it.
        """
        key = command.code, name
        body = self._find_kept(key)
        if body is None:
            begun_ms = self._clock_ms()
            body = make()
            # Who asks for lists of clusters that are not there drives none out.
            if not name or len(body) > _SMALL_LIST_BYTES:
                self._keep(key, body, begun_ms)
        return command.response(ResponseCode.SUCCESS, body=body)

    def _find_kept(self, key: tuple[int, str]) -> bytes | None:
        version, now_ms = self._routes.version, self._clock_ms()
        if self._lists_version != version:
            self._lists_version = version
            self._lists = {k: kept for k, kept in self._lists.items() if now_ms < kept.until_ms}
        kept = self._lists.get(key)
        if kept is None or (kept.version != version and now_ms >= kept.until_ms):
            return None
        return kept.body

    def _keep(self, key: tuple[int, str], body: bytes, begun_ms: float) -> None:
        """Keeps what was just made, the eldest goes."""
        lists, now_ms = self._lists, self._clock_ms()
        took_ms = now_ms - begun_ms
        until_ms = now_ms + took_ms * _REST_FACTOR if took_ms >= _SLOW_MS else 0.0
        lists[key] = _Kept(body, self._routes.version, until_ms)
        while (
            len(lists) > _LISTS_MAX
            or sum(len(kept.body) for kept in lists.values()) > _LISTS_BYTES_MAX
        ):
            del lists[next(iter(lists))]

    def delete_topic(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
        """DELETE_TOPIC_IN_NAMESRV."""
        header = command.header(DeleteTopicFromNamesrvRequestHeader)
        self._routes.delete_topic(header.topic, header.cluster_name)
        return command.response(ResponseCode.SUCCESS)

    # Key-value table and configuration.

    def put_kv_config(self, command: RemotingCommand, caller: Caller) -> Answer:
        """PUT_KV_CONFIG; answered when it is durable."""
        header = command.header(PutKVConfigRequestHeader)
        done = self._kv.put(header.namespace, header.key, header.value)
        return done.addCallback(lambda _: command.response(ResponseCode.SUCCESS))

    def get_kv_config(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
        """GET_KV_CONFIG."""
        header = command.header(GetKVConfigRequestHeader)
        value = self._kv.get(header.namespace, header.key)
        return command.response(ResponseCode.SUCCESS, header=GetKVConfigResponseHeader(value=value))

    def delete_kv_config(self, command: RemotingCommand, caller: Caller) -> Answer:
        """DELETE_KV_CONFIG; answered when it is durable."""
        header = command.header(DeleteKVConfigRequestHeader)
        done = self._kv.delete(header.namespace, header.key)
        return done.addCallback(lambda _: command.response(ResponseCode.SUCCESS))

    def get_kv_list(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
        """GET_KVLIST_BY_NAMESPACE."""
        header = command.header(GetKVListByNamespaceRequestHeader)
        body = KVTable(table=self._kv.items(header.namespace)).encode()
        return command.response(ResponseCode.SUCCESS, body=body)

    def get_config(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
        """GET_NAMESRV_CONFIG: the effective settings as properties text."""
        text = format_properties(self._config.texts)
        return command.response(ResponseCode.SUCCESS, body=text.encode())

    def update_config(self, command: RemotingCommand, caller: Caller) -> RemotingCommand:
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


def _topic_list(topics: list[str], address: str | None = None) -> bytes:
    return TopicList(topic_list=topics, broker_addr=address).encode()
