"""The quick road of pulls: those (`quick_frames.py`) that find usual messages.

Which group asks for which queue of which topic, and what it wants of it, is the same from pull to
pull. What passed all of `PullProcessor.admit` once is remembered, until a topic, a group or what
members subscribe to is changed. Whatever else there is to say of a pull is left to `PullProcessor`:
it decides, and answers a pull that was taken here with the same bytes.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from twisted.logger import Logger

from ledgermq.broker.dispatch import UNSENT_BYTES_MAX
from ledgermq.broker.pulls.pull import COUNT_MAX, PullProcessor
from ledgermq.broker.request_times import RequestTimes
from ledgermq.broker.selectors.filters import SQL_TYPE
from ledgermq.commitlog import ConsumeQueue, Run, is_light_queue, read_run
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import decode
from ledgermq.protocol.errors import ProtocolError
from ledgermq.protocol.headers import decode_pull_header, encode_found_head
from ledgermq.protocol.quick_frames import QuickPull, read_quick_pull
from ledgermq.protocol.sysflag import PULL_COMMIT_OFFSET
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.errors import BrokerError
from ledgermq.state.subscriptions import SubscriptionGroup

# Pulls that are remembered; one more, and all are forgotten. Each takes a kilobyte at most for its
# text, some hundred bytes as a rule, and as much for the rest.
KNOWN_MAX: Final = 16_384

_log = Logger()


class _Known(NamedTuple):
    """What is remembered of a pull that passed its checks."""

    group: SubscriptionGroup
    topic: str
    # None: such pulls are for the other road.
    queue: ConsumeQueue | None
    commits_offset: bool
    # Where the group has pulled up to, by queue id.
    pulled: dict[int, int]


_PULL: Final = int(RequestCode.PULL_MESSAGE)

# Tells whether access control lets a frame of a connection pass, a pull of a topic as a group.
LetsPull = Callable[[CommandProtocol, bytes, str, str], bool]


class RunReader(Protocol):
    """What is needed of a message store."""

    @property
    def find_run(self) -> Callable[[ConsumeQueue, int, int], Run | None]: ...

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None: ...


class QuickPulls:
    """Answers quick pulls."""

    def __init__(
        self,
        pulls: PullProcessor,
        store: RunReader,
        lets_pull: LetsPull | None = None,
        times: RequestTimes | None = None,
    ) -> None:
        """Binds the parts.

        Args:
            pulls: checks and counts.
            store: where messages are read.
            lets_pull: asked before a pull does anything; None: there is no access control.
            times: gets the time of pulls; None: one of its own.
        """
        self._times = times or RequestTimes()
        self._lets_pull = lets_pull
        self._pulls = pulls
        self._store = store
        self._find_run = store.find_run
        self._topics, self._groups = pulls.state.topics, pulls.state.groups
        self._clients = pulls.clients
        # By the text of the pull; valid for these generations.
        self._known: dict[bytes, _Known] = {}
        self._topics_generation = self._groups_generation = self._clients_generation = -1

    def take(self, connection: CommandProtocol, frames: list[bytes]) -> int:
        """Answers the quick pulls at the front of a chunk, up to a frame that is none.

        Args:
            connection: who asks.
            frames: without their length bytes.

        Returns: how many were answered.
        """
        taken, begun_s = 0, 0.0
        for frame in frames:
            pull = read_quick_pull(frame)
            if pull is None:
                break
            if not taken:
                # Not before: most chunks are of sends, and hold no pull at all.
                begun_s = self._times.seconds()
            if not self._is_answered(connection, frame, pull):
                break
            taken += 1
        if taken:
            self._times.took(_PULL, taken, begun_s, connection)
        return taken

    def _is_answered(self, connection: CommandProtocol, frame: bytes, pull: QuickPull) -> bool:
        opaque, offset, count, commit_offset, text = pull
        if (
            self._topics.generation != self._topics_generation
            or self._groups.generation != self._groups_generation
            or self._clients.generation != self._clients_generation
        ):
            self._forget()
        known, lets_pull = self._known.get(text), self._lets_pull
        if known is None:
            known, lets_pull = self._admitted(connection, frame, text), None
        if known is None or not connection.has_room(UNSENT_BYTES_MAX):
            return False
        group, topic, queue, commits_offset, pulled = known
        if queue is None:
            return False
        spans = self._pulls.spans
        begun_ms = 0.0 if spans is None else spans.clock_ms()
        try:
            run = self._find_run(queue, offset, min(max(count, 1), COUNT_MAX))
            if run is None:
                return False
            if lets_pull is not None and not lets_pull(connection, frame, topic, group.name):
                return False
            found_count, found_bytes, behind_bytes = run[:3]
            broker_id = self._pulls.suggested_broker(group, behind_bytes)
            low, high = queue.min_offset, queue.max_offset
            head = encode_found_head(
                opaque, broker_id, offset + found_count, low, high, found_bytes
            )
            answer = read_run(head, run)
            if answer is None:
                return False
            if commits_offset:
                self._pulls.commit_offset(group.name, topic, queue.queue_id, commit_offset)
        except (BrokerError, ProtocolError):
            return False
        except Exception:
            # The other road comes upon it as well, or else answers.
            _log.failure("a quick pull of {peer} failed", peer=connection.peer)
            return False
        pulled[queue.queue_id] = offset + found_count
        self._pulls.count_found(topic, group.name, found_count, found_bytes)
        if spans is not None:
            records = memoryview(answer)[len(answer) - found_bytes :]
            spans.gave(topic, group.name, queue.queue_id, found_count, [records], begun_ms)
        connection.send_frame(answer)
        return True

    def _forget(self) -> None:
        self._known = {}
        self._topics_generation = self._topics.generation
        self._groups_generation = self._groups.generation
        self._clients_generation = self._clients.generation

    def _admitted(self, connection: CommandProtocol, frame: bytes, text: bytes) -> _Known | None:
        """Has a pull checked that is not remembered; None when it is refused."""
        try:
            header = decode_pull_header(decode(frame))
            lets_pull = self._lets_pull
            if lets_pull is not None and not lets_pull(
                connection, frame, header.topic, header.consumer_group
            ):
                return None
            group, subscription = self._pulls.admit(connection, header)
        except (BrokerError, ProtocolError):
            return None
        queue = self._store.find_queue(header.topic, header.queue_id)
        if queue is None:
            return None
        # In a light queue no record has the place that it names.
        if (
            subscription.matcher is not None
            or subscription.expression_type == SQL_TYPE
            or is_light_queue(header.topic)
        ):
            queue = None
        commits_offset = bool(header.sys_flag & PULL_COMMIT_OFFSET)
        pulled = self._pulls.state.pulled.of(group.name, header.topic)
        known = _Known(group, header.topic, queue, commits_offset, pulled)
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        # The group may have been made just now.
        if self._groups.generation == self._groups_generation:
            self._known[text] = known
        return known
