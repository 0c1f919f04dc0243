"""Directory: what all processes must know alike, kept by the cluster.

Topics are made on one broker each, with one queue: the log of a shared queue has one order. The
bindings lie in the key-value table of the name servers. A name server that was down, or lost its
file, gets the items of this process again when the table is next read.
"""

import asyncio
import hashlib
from typing import Final, TypeVar

from ledgermq.celery.bindings import Bindings
from ledgermq.celery.errors import TransportError
from ledgermq.client import ClientError, MessageQueue, NoRouteError
from ledgermq.client.instance import ClientInstance
from ledgermq.client.namespaces import with_namespace
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import (
    CreateTopicRequestHeader,
    DeleteKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from ledgermq.protocol.names import DEFAULT_TOPIC
from ledgermq.protocol.route import MASTER_ID, ClusterInfo, KVTable

B = TypeVar("B", KVTable, ClusterInfo)

# Read and write.
_PERM: Final = 6
_RETRY_S: Final = 0.05


class Directory:
    """Topics and bindings of one namespace."""

    def __init__(
        self, instance: ClientInstance, namespace: str, broker: str, timeout_s: float
    ) -> None:
        """Reads nothing yet.

        Args:
            instance: asks for us.
            namespace: of all topics; empty for none.
            broker: name of the broker for new topics; empty lets their names choose.
            timeout_s: how long to wait for a topic to be there.
        """
        self.bindings = Bindings()
        self._instance = instance
        self._namespace = namespace
        self._broker = broker
        self._timeout_s = timeout_s
        self._table = f"LEDGERMQ_KOMBU_{namespace}"
        # What this process has declared.
        self._own: dict[str, str] = {}
        self._queues: dict[str, MessageQueue] = {}
        # When the table was last read, on the loop's clock.
        self._read_s = float("-inf")

    async def queue(self, topic: str) -> MessageQueue:
        """Returns the one queue of a topic, which is made when it is not there.

        Raises:
            TransportError: it cannot be made, or has more than one queue.
            ClientError: nobody can be asked.
        """
        if topic not in self._queues:
            self._queues[topic] = await self._find_or_make(topic)
        return self._queues[topic]

    async def put(self, items: dict[str, str]) -> None:
        """Writes items into the table, unless this process did so before."""
        fresh = {key: text for key, text in items.items() if self._own.get(key) != text}
        if fresh:
            await self._write(fresh)
            self._own.update(fresh)
            await self.refresh()

    async def delete(self, keys: list[str]) -> None:
        """Removes items from the table."""
        for key in keys:
            self._own.pop(key, None)
            header = DeleteKVConfigRequestHeader(namespace=self._table, key=key)
            await self._ask_all(RemotingCommand.request(RequestCode.DELETE_KV_CONFIG, header))
        await self.refresh()

    async def refresh(self, *, older_than_s: float = 0.0) -> None:
        """Reads the table again when that was done longer ago than some time."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._read_s < older_than_s:
            return
        header = GetKVListByNamespaceRequestHeader(namespace=self._table)
        command = RemotingCommand.request(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        answer = await self._instance.name_servers.request(command)
        items: dict[str, str] = {}
        if answer.code == ResponseCode.SUCCESS:
            items = _decoded(answer, KVTable).table
        elif answer.code != ResponseCode.QUERY_NOT_FOUND:
            raise TransportError(f"the name server refused: {answer.remark}", code=answer.code)
        lost = {key: text for key, text in self._own.items() if key not in items}
        if lost:
            await self._write(lost)
        self.bindings = Bindings({**items, **lost})
        self._read_s = loop.time()

    async def _write(self, items: dict[str, str]) -> None:
        for key, text in items.items():
            header = PutKVConfigRequestHeader(namespace=self._table, key=key, value=text)
            await self._ask_all(RemotingCommand.request(RequestCode.PUT_KV_CONFIG, header))

    async def _ask_all(self, command: RemotingCommand) -> None:
        """Tells every name server; one of them has to take it."""
        instance = self._instance
        told = (instance.request(address, command) for address in instance.name_servers.addresses)
        answers = await asyncio.gather(*told, return_exceptions=True)
        failure: BaseException | None = None
        for answer in answers:
            if isinstance(answer, BaseException):
                failure = answer
            elif answer.code == ResponseCode.SUCCESS:
                failure = None
                break
            else:
                failure = TransportError(f"the name server refused: {answer.remark}")
        if failure is not None:
            raise failure

    async def _find_or_make(self, topic: str) -> MessageQueue:
        deadline_s = asyncio.get_running_loop().time() + self._timeout_s
        while True:
            try:
                return await self._find(topic)
            except NoRouteError as error:
                failure: ClientError = error
            try:
                await self._make(topic)
            except ClientError as error:
                if not error.retriable:
                    raise
                failure = error
            if asyncio.get_running_loop().time() > deadline_s:
                raise failure
            await asyncio.sleep(_RETRY_S)

    async def _find(self, topic: str) -> MessageQueue:
        queues = (await self._instance.routes.refresh(topic)).read_queues
        if len(queues) != 1:
            raise TransportError(
                f"it has {len(queues)} queues, and this transport needs topics of one", topic=topic
            )
        return queues[0]

    async def _make(self, topic: str) -> None:
        address = await self._choose(topic)
        header = CreateTopicRequestHeader(
            topic=with_namespace(self._namespace, topic),
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=1,
            write_queue_nums=1,
            perm=_PERM,
            topic_filter_type="SINGLE_TAG",
        )
        command = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        answer = await self._instance.request(address, command)
        if answer.code != ResponseCode.SUCCESS:
            raise TransportError(
                f"the broker does not make the topic: {answer.remark}",
                # Anything but a missing right may pass: a leader may just be elected.
                retriable=answer.code != ResponseCode.NO_PERMISSION,
                broker=address,
                topic=topic,
                code=answer.code,
            )

    async def _choose(self, topic: str) -> str:
        """Returns the address of the broker that shall have a topic."""
        command = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        info = _decoded(await self._instance.name_servers.request(command), ClusterInfo)
        masters = {
            name: broker.broker_addrs[MASTER_ID]
            for name, broker in sorted(info.broker_addr_table.items())
            if MASTER_ID in broker.broker_addrs
        }
        if self._broker:
            masters = {name: at for name, at in masters.items() if name == self._broker}
        if not masters:
            wanted = f"broker {self._broker}" if self._broker else "broker"
            raise TransportError(f"no {wanted} has a leader now", retriable=True, topic=topic)
        number = int(hashlib.sha256(topic.encode()).hexdigest()[:8], 16)
        return masters[sorted(masters)[number % len(masters)]]


def _decoded(answer: RemotingCommand, kind: type[B]) -> B:
    try:
        return kind.decode(answer.body)
    except RemoteProtocolError as error:
        raise TransportError(f"unreadable answer of the name server: {error}") from error
