"""TopicSearch: looks for the topics that match a consumer's pattern, again and again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ledgermq.client.endless import keep_going, level_of
from ledgermq.client.errors import ClientError, NameServerError, RefusedError
from ledgermq.client.instance import ClientInstance
from ledgermq.client.topics import WantedTopics
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.route import TopicList

_log = logging.getLogger("ledgermq.client")


class TopicSearch:
    """What asks name servers for the names of all topics."""

    def __init__(
        self,
        instance: ClientInstance,
        wanted: WantedTopics,
        changed: Callable[[], Awaitable[None]],
        interval_s: float,
    ) -> None:
        """Asks nothing yet.

        Args:
            instance: knows the name servers.
            wanted: takes what they list.
            changed: told when other topics are wanted than before.
            interval_s: between two questions.
        """
        self._instance = instance
        self._wanted = wanted
        self._changed = changed
        self._interval_s = interval_s

    async def look(self) -> bool:
        """Asks once; True when other topics are wanted than before.

        Raises:
            ClientError: no name server answers, it refuses, or too many topics match.
        """
        command = RemotingCommand.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        answer = await self._instance.name_servers.request(command)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(answer.code, answer.remark)
        try:
            listed = TopicList.decode(answer.body).topic_list
        except RemoteProtocolError as error:
            raise NameServerError(f"unreadable list of topics: {error}") from error
        return self._wanted.take(listed, self._instance.config.namespace)

    async def run(self, group: str) -> None:
        """Runs until it is cancelled."""
        await keep_going(f"looking for topics of {group}", lambda: self._turn(group))

    async def _turn(self, group: str) -> None:
        await asyncio.sleep(self._interval_s)
        try:
            if await self.look():
                _log.info("%s wants %s now", group, ", ".join(sorted(self._wanted.by_name)))
                await self._changed()
        except ClientError as error:
            _log.log(level_of(error), "%s cannot look for topics: %s", group, error)
