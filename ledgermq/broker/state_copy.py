"""StateCopy: what a follower copies from a leader that writes no state into the log.

A leader of ours writes topics, groups, offsets and progress as records of the ledger. A Java
leader keeps them in files, and its followers ask for them every ten seconds (21, 43, 45, 201). So
do members of ours while they follow one: whoever of them leads next knows the topics, throws no
group back, and delivers no delayed message again, but for what happened since its last copy.

The copy adds and changes, it removes nothing: the Java leader may lack what a leader of ours made
just before it, and a topic too many does no harm. For the same reason its offsets count in the
first copy of a term only where they are ahead, afterwards wherever they changed.

A slave without a ledger copies the same from its master, ours or Java's. It never leads, so topics
and groups become exactly those of the master whenever their versions differ. The files of a queue
whose topic is gone stay until the log before them is.

Who is copied proves that it is the leader (`leader_trust.py`): what name servers call so may be
anybody.
Source: `SlaveSynchronize.java`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.broker.leader_trust import LeaderTrust, Peer
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.member_questions import TABLES
from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.consumer_offsets import OffsetsByKey, offsets_of_document
from ledgermq.state.data_version import DataVersion
from ledgermq.state.json_values import objects
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig

# A Java follower's interval is 10 s; what is copied more often is repeated less.
COPY_INTERVAL_MS: Final = 3000
_ANSWER_MS: Final = 3000

_log = Logger()


class StateCopy:
    """Copies the state of a Java leader, or of a slave's master, while this member follows it."""

    def __init__(
        self,
        leadership: Leadership,
        state: BrokerState,
        *,
        is_copied: Callable[[str], bool],
        find_master: Callable[[], str | None],
        ask_for_master: Callable[[], None],
        connect: Callable[[str], Peer],
        trust: LeaderTrust,
        mirrors_tables: bool = False,
    ) -> None:
        """Does nothing before `run`.

        Args:
            is_copied: tells whether a leader is to be copied, by its member id.
            find_master: "host:port" of the group's leader for clients, as name servers told it
                last; None when they told none.
            ask_for_master: has name servers tell it again.
            connect: gives a connection that `stop` ends.
            trust: says whether who answers there is the leader.
            mirrors_tables: whether what the leader's tables of topics and groups lack goes here,
                too.
        """
        self._leadership = leadership
        self._state = state
        self._is_copied = is_copied
        self._find_master = find_master
        self._ask_for_master = ask_for_master
        self._connect = connect
        self._trust = trust
        self._mirrors_tables = mirrors_tables
        # Term and leader of the copies so far, and the offsets of the last one.
        self._source: tuple[int, str] | None = None
        self._told: OffsetsByKey | None = None
        # The connection of a copy that is under way.
        self._peer: Peer | None = None
        # Why there was no copy, as it was logged last: once, not each time.
        self._logged_reason = ""
        # Copies since the start.
        self.count = 0

    def run(self) -> None:
        """Begins a copy if there is a Java leader; called from time to time."""
        leader_id = self._leadership.leader_id
        if self._peer is not None:
            return
        if self._leadership.is_leader or leader_id is None or not self._is_copied(leader_id):
            self._source = self._told = None
            return
        source = (self._leadership.term, leader_id)
        master = self._find_master()
        if source != self._source or master is None:
            # What name servers told may be the leader before.
            self._source, self._told = source, None
            self._ask_for_master()
            return
        doubt = self._trust.doubt_of_address(leader_id, master)
        if doubt is not None:
            self._told_why(doubt, master)
            self._ask_for_master()
            return
        peer = self._peer = self._connect(master)
        waiting = [self._trust.ask(peer, leader_id, code, master, _ANSWER_MS) for code in TABLES]
        copied = gatherResults(waiting, consumeErrors=True).addCallback(self._take, source)
        copied.addErrback(self._failed, master).addBoth(lambda _: self.stop())

    def stop(self) -> Deferred[None] | None:
        """Ends a copy that is under way; returns None when there is none."""
        peer, self._peer = self._peer, None
        return None if peer is None else peer.stop()

    def _take(self, answers: list[RemotingCommand], source: tuple[int, str]) -> None:
        leadership = self._leadership
        if (leadership.term, leadership.leader_id) != source or leadership.is_leader:
            return
        topics, groups, offsets, delays = map(_read, answers)
        told = offsets_of_document(offsets)
        told_topics = [
            TopicConfig.from_json(name, value)
            for name, value in objects(topics.get("topicConfigTable"))
        ]
        told_groups = [
            SubscriptionGroup.from_json(name, value)
            for name, value in objects(groups.get("subscriptionGroupTable"))
        ]
        if self._mirrors_tables:
            self._mirror_topics(told_topics, DataVersion.from_json(topics.get("dataVersion")))
            self._mirror_groups(told_groups, DataVersion.from_json(groups.get("dataVersion")))
            told_topics, told_groups = [], []
        news = news_of(told, self._told, self._state.offsets.all())
        self._state.copy(told_topics, told_groups, news)
        table = delays.get("offsetTable")
        self._state.progress.hear(table if isinstance(table, Mapping) else {})
        self._told = told
        self._logged_reason = ""
        self.count += 1

    def _mirror_topics(self, topics: Sequence[TopicConfig], version: DataVersion) -> None:
        state = self._state
        if state.topics.version != version:
            state.topics.replace_all(topics, version)
            state.unsaved.add("topics")
            state.permission_changed()

    def _mirror_groups(self, groups: Sequence[SubscriptionGroup], version: DataVersion) -> None:
        state = self._state
        if state.groups.version != version:
            state.groups.replace_all(groups, version)
            state.unsaved.add("groups")

    def _failed(self, failure: Failure, master: str) -> None:
        if self._peer is None:
            return
        error = failure.value
        reason = str(error.subFailure.value if isinstance(error, FirstError) else error)
        self._told_why(reason, master)
        self._ask_for_master()

    def _told_why(self, reason: str, master: str) -> None:
        if reason != self._logged_reason:
            self._logged_reason = reason
            _log.warn(
                "no copy of the state of the leader at {master}: {reason}",
                master=master,
                reason=reason,
            )


def news_of(
    told: OffsetsByKey, told_before: OffsetsByKey | None, own: Mapping[str, Mapping[int, int]]
) -> OffsetsByKey:
    """Returns the offsets of a leader that count here.

    Args:
        told: all of them.
        told_before: as of the copy before; None for the first one of a term.
        own: what is known here.
    """
    news: OffsetsByKey = {}
    for key, queues in told.items():
        if told_before is None:
            known = own.get(key, {})
            news[key] = {at: n for at, n in queues.items() if n > known.get(at, -1)}
        else:
            known = told_before.get(key, {})
            news[key] = {at: n for at, n in queues.items() if n != known.get(at)}
    return {key: queues for key, queues in news.items() if queues}


def _read(answer: RemotingCommand) -> Mapping[str, Any]:
    if answer.code != ResponseCode.SUCCESS:
        raise RemoteProtocolError(f"code ({answer.remark})", answer.code, 0)
    value = lenient_json.read(answer.body)
    if not isinstance(value, Mapping):
        raise RemoteProtocolError("body", type(value).__name__, "an object")
    return value
