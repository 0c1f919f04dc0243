"""EntryDispatcher: what a leader pushes to one follower, and what it knows of that follower's log.

    COMPARE ──match found──> APPEND <──done── TRUNCATE
       │  ^                    │                 ^
       │  └── 406, connection ─┘                 │
       └── nothing in common, or a Java follower's log is longer

COMPARE finds the last common entry by binary search (DLedger steps back one entry a time; to the
follower a probe is a probe). TRUNCATE cuts a Java follower's extra entries, or starts a follower
afresh at the leader's first entry when retention has removed what it lacks. APPEND pushes a window
of frames, or a single one while the follower does not answer. Towards a LedgerMQ member a frame
names the entry before it, so it cuts what contradicts it (Raft 5.3) and needs neither COMPARE nor
TRUNCATE first.

Source: DLedgerEntryPusher.EntryDispatcher. Answers count only when their request id belongs to the
present attempt: a comparison that failed or a lost connection starts a new one.
"""

from enum import Enum
from typing import NamedTuple

from ledgermq.dledger.config import NEVER, Config
from ledgermq.dledger.entry import EntrySlice
from ledgermq.dledger.errors import ColdDataError, CompactedError
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.messages import (
    AppendRequest,
    CommitRequest,
    CompareRequest,
    DLedgerCode,
    PeerDialect,
    PushKind,
    PushRequest,
    PushResponse,
    TruncateRequest,
)
from ledgermq.dledger.search import MatchSearch
from ledgermq.dledger.throttle import PushThrottle
from ledgermq.measures.histogram import Histogram

# Pause after a probe that was neither confirmed nor denied (DLedgerEntryPusher: 500 ms).
RETRY_PAUSE_MS = 500
# So many refusals in a row of what was appended lead back to COMPARE (DLedger only logs them).
REFUSALS_MAX = 3
# Frames that timed out and may still be answered.
LATE_FRAMES_MAX = 64
# A read that lacks bytes after so many loads waits for the disk: the page cache does not keep them.
_LOADS_MAX = 4


class PushState(Enum):
    """States of a dispatcher (PushEntryRequest.Type)."""

    COMPARE = "COMPARE"
    TRUNCATE = "TRUNCATE"
    APPEND = "APPEND"


class Frame(NamedTuple):
    """An APPEND that was not answered yet."""

    first_index: int
    last_index: int
    sent_ms: float


class Question(NamedTuple):
    """A COMPARE or TRUNCATE that was not answered yet."""

    request_id: int
    entry_index: int
    sent_ms: float


class EntryDispatcher:
    """The leader's side of one follower.

    Invariants:
    1. `match_index < next_index`.
    2. In APPEND the frames in flight are consecutive and end before `next_index`.
    3. `match_index` only falls when the follower shows, or may have, a shorter log than it
       acknowledged.
    """

    def __init__(
        self,
        config: Config,
        log: RaftLog,
        *,
        peer_id: str,
        term: int,
        dialect: PeerDialect,
    ) -> None:
        """Starts for a leader that has just been elected, before it appends anything.

        Args:
            config: of this member.
            log: of this member.
            peer_id: the follower.
            term: of this leader.
            dialect: how the follower speaks, as far as it is known.
        """
        self.peer_id = peer_id
        self._config = config
        self._log = log
        self._term = term
        self.dialect = dialect
        # The follower holds the leader's log up to here, synced if the leader's mode is SYNC_FLUSH;
        # -1 when that is not known.
        self.match_index = -1
        # APPEND: next entry to push.
        self.next_index = log.last_index + 1
        # A LedgerMQ follower is tried with the next frame at once, and with one until it fits.
        self.state = PushState.COMPARE
        self._is_probing = dialect is PeerDialect.LEDGERMQ
        if self._is_probing:
            self.state = PushState.APPEND
        # APPEND: frames by request id, oldest first; and the last indexes of those given up, whose
        # success still counts.
        self._in_flight: dict[int, Frame] = {}
        self._late: dict[int, int] = {}
        # COMPARE: the search for the last common entry; None before its first question.
        self._search: MatchSearch | None = None
        # COMPARE, TRUNCATE: the question that is out, and the entry to truncate to.
        self._asked: Question | None = None
        self._truncate_index = -1
        # Nothing is sent before this time.
        self._pause_end_ms = float("-inf")
        self._last_push_ms = float("-inf")
        # APPEND: a follower that is far behind gets no frame before this time.
        self._throttle = PushThrottle(config.throttle_far_bytes, config.throttle_quota_bytes)
        self._throttle_end_ms = float("-inf")
        # COMMIT: its request id, and match_index when it was sent.
        self._commit_asked: tuple[int, int] | None = None
        # What the next push lacks in memory, until it is taken; whether it is being loaded; and how
        # often it was since the last push that was read.
        self._cold: ColdDataError | None = None
        self._is_loading = False
        self._load_count = 0
        self._refusal_count = 0
        self._last_request_id = 0
        # Of frames that were confirmed: from the push to the answer, the follower's sync included.
        self.round_trips = Histogram()

    # -- what goes out

    def make_pushes(self, commit_index: int, now_ms: float) -> list[PushRequest]:
        """Returns what may be sent to the follower now."""
        if now_ms < self._pause_end_ms or self._is_loading:
            return []
        is_appending = self.state is PushState.APPEND
        has_all = self.next_index > self._log.last_index
        if is_appending and has_all and self.dialect is not PeerDialect.JAVA:
            return []
        try:
            if is_appending:
                pushes = self._make_appends(commit_index, now_ms)
            else:
                pushes = self._make_question(commit_index, now_ms)
        except CompactedError as error:
            # Retention has removed what the follower lacks: it starts at our first entry.
            self._start_truncate(error.first_index)
            pushes = self._make_question(commit_index, now_ms)
        except ColdDataError as cold:
            self._cold = cold
            return []
        if pushes:
            self._last_push_ms = now_ms
        return pushes

    def tick(self, now_ms: float) -> None:
        """Gives up frames that were not answered in time.

        The follower is silent, or its disk is slow: until it answers again it gets one frame each
        time, not the window, which it would have to keep (the state "probe" of a Raft Progress;
        DLedger repeats one frame, too). One that comes late opens the window again.
        """
        if now_ms >= self._throttle_end_ms:
            self._throttle_end_ms = float("-inf")
        if not self._in_flight:
            return
        oldest = next(iter(self._in_flight.values()))
        if now_ms >= oldest.sent_ms + self._config.push_timeout_ms:
            # Back to the first entry that was not acknowledged.
            for request_id, frame in self._in_flight.items():
                self._late[request_id] = frame.last_index
            for request_id in list(self._late)[:-LATE_FRAMES_MAX]:
                del self._late[request_id]
            self._in_flight.clear()
            self._is_probing = True
            self.next_index = oldest.first_index

    def deadline_ms(self) -> float:
        """Returns when this dispatcher wants a tick or has something to send."""
        if self._is_loading:
            return NEVER
        if self._asked is not None:
            return self._asked.sent_ms + self._config.push_timeout_ms
        throttle_end_ms = self._throttle_end_ms
        if self._in_flight:
            sent_ms = next(iter(self._in_flight.values())).sent_ms
            timeout_ms = sent_ms + self._config.push_timeout_ms
            return timeout_ms if throttle_end_ms <= sent_ms else min(timeout_ms, throttle_end_ms)
        if throttle_end_ms > self._pause_end_ms:
            return throttle_end_ms
        if self.state is not PushState.APPEND or self.next_index <= self._log.last_index:
            return self._pause_end_ms if self._log.last_index >= self._log.first_index else NEVER
        if self.dialect is PeerDialect.JAVA:
            return self._last_push_ms + self._config.commit_interval_ms
        return NEVER

    def _make_appends(self, commit_index: int, now_ms: float) -> list[PushRequest]:
        is_java = self.dialect is PeerDialect.JAVA
        frames_max = self._config.java_push_frames_max if is_java else self._config.push_frames_max
        bytes_max = self._config.java_push_bytes_max if is_java else self._config.push_bytes_max
        if self._is_probing:
            frames_max = 1
        pushes: list[PushRequest] = []
        last_index = self._log.last_index
        while self.next_index <= last_index and len(self._in_flight) < frames_max:
            if now_ms < self._throttle_end_ms:
                break
            try:
                entries = self._read(self.next_index, bytes_max)
            except ColdDataError as cold:
                self._cold = cold
                break
            previous = self._log.id_before(self.next_index)
            lack_bytes = self._log.end_position - entries.position
            if self._throttle.is_far(lack_bytes, last_index - entries.first_index):
                size = len(entries.data)
                if not self._throttle.take(size, self._log.end_position, now_ms):
                    self._throttle_end_ms = self._throttle.next_ms
                    break
            request_id = self._new_request_id()
            self._in_flight[request_id] = Frame(entries.first_index, entries.last_index, now_ms)
            self.next_index = entries.last_index + 1
            pushes.append(
                AppendRequest(
                    term=self._term,
                    sender=self._config.self_id,
                    target=self.peer_id,
                    entries=entries,
                    previous=previous,
                    commit_index=commit_index,
                    request_id=request_id,
                    wants_sync=self._config.is_sync_flush,
                )
            )
        is_idle = now_ms >= self._last_push_ms + self._config.commit_interval_ms
        if is_java and not self._in_flight and is_idle:
            request_id = self._new_request_id()
            self._commit_asked = (request_id, self.match_index)
            pushes.append(
                CommitRequest(
                    term=self._term,
                    sender=self._config.self_id,
                    target=self.peer_id,
                    commit_index=commit_index,
                    request_id=request_id,
                )
            )
        return pushes

    def _read(self, index: int, bytes_max: int, count_max: int | None = None) -> EntrySlice:
        """Reads what is to be pushed; raises ColdDataError, but not for ever."""
        may_wait = self._load_count >= _LOADS_MAX
        entries = self._log.read(index, bytes_max, count_max, may_wait=may_wait)
        self._load_count = 0
        return entries

    def take_cold(self) -> ColdDataError | None:
        """Returns what the next push lacks in memory; nothing is pushed before `loaded`."""
        cold, self._cold = self._cold, None
        self._is_loading = self._is_loading or cold is not None
        return cold

    def loaded(self) -> None:
        """Takes that what `take_cold` returned was read into memory."""
        self._is_loading = False
        self._load_count += 1

    def _make_question(self, commit_index: int, now_ms: float) -> list[PushRequest]:
        """COMPARE or TRUNCATE: one question at a time, with the whole entry.

        A question that was not answered in time is asked again under its old id: an answer to
        either copy is good, however slow the follower.
        """
        log, asked = self._log, self._asked
        if log.last_index < log.first_index:
            return []
        if asked is None:
            index = self._truncate_index
            if self.state is PushState.COMPARE:
                search = self._search
                if search is None or search.low < log.first_index - 1:
                    search = self._search = MatchSearch(log.first_index, log.last_index)
                index = search.probe()
            request_id = self._new_request_id()
        elif now_ms >= asked.sent_ms + self._config.push_timeout_ms:
            request_id, index = asked.request_id, asked.entry_index
        else:
            return []
        entry = self._read(index, 1, 1)
        self._asked = Question(request_id, index, now_ms)
        kind = TruncateRequest if self.state is PushState.TRUNCATE else CompareRequest
        return [
            kind(
                term=self._term,
                sender=self._config.self_id,
                target=self.peer_id,
                entry=entry,
                commit_index=commit_index,
                request_id=request_id,
                wants_sync=self._config.is_sync_flush,
            )
        ]

    # -- what comes back

    def heard(self) -> None:
        """The peer answered something: the connection works, so a pause for it is over."""
        self._pause_end_ms = float("-inf")

    def unreachable(self, now_ms: float) -> None:
        """The connection broke: nothing is known of the follower until it is compared again."""
        self._start_compare()
        self.match_index = -1
        self._pause_end_ms = now_ms + self._config.push_timeout_ms

    def set_dialect(self, dialect: PeerDialect) -> None:
        """The connection opened, and this is how the peer speaks.

        What was sent before was dropped, for there was no way: it goes out again at once.
        """
        if dialect is PeerDialect.JAVA and self.dialect is not PeerDialect.JAVA:
            self._start_compare()
        self.dialect = dialect
        self._pause_end_ms = float("-inf")
        if self._asked is not None:
            self._asked = self._asked._replace(sent_ms=float("-inf"))
        for request_id, frame in self._in_flight.items():
            self._in_flight[request_id] = frame._replace(sent_ms=float("-inf"))

    def respond(self, response: PushResponse, now_ms: float) -> None:
        """Takes an answer of the follower in this term."""
        asked = self._asked
        if response.kind is PushKind.APPEND:
            self._on_append_response(response, now_ms)
        elif response.kind is PushKind.COMMIT:
            self._on_commit_response(response)
        elif asked is not None and asked.request_id == response.request_id:
            self._asked = None
            if response.kind is PushKind.COMPARE and self.state is PushState.COMPARE:
                self._on_compare_response(response, asked.entry_index, now_ms)
            elif response.kind is PushKind.TRUNCATE and self.state is PushState.TRUNCATE:
                self._on_truncate_response(response, asked.entry_index, now_ms)

    def _on_append_response(self, response: PushResponse, now_ms: float) -> None:
        request_id, end_index = response.request_id, response.end_index
        frame = self._in_flight.get(request_id)
        if response.code == DLedgerCode.SUCCESS:
            last_index = frame.last_index if frame is not None else self._late.get(request_id)
            if last_index is None:
                return
            self._is_probing = False
            self._refusal_count = 0
            if frame is not None and frame.sent_ms >= 0:
                # One that was dropped on the way has no time yet.
                self.round_trips.observe(max(now_ms - frame.sent_ms, 0.0) / 1000)
            if end_index < last_index:
                self._lost_entries()
            else:
                self._matched(last_index)
        elif frame is None:
            return
        elif response.code == DLedgerCode.INCONSISTENT_STATE:
            if end_index < self.match_index:
                self._lost_entries()
            elif end_index < frame.first_index - 1 and self.dialect is PeerDialect.LEDGERMQ:
                # The follower's log ends before the frame; try the frame that would continue it.
                self._forget_requests()
                self._is_probing = True
                self.next_index = max(end_index, self.match_index) + 1
            elif frame.first_index - 1 <= self.match_index:
                self._lost_entries()
            else:
                self._start_compare()
                if self.dialect is PeerDialect.LEDGERMQ:
                    # The entry before the frame is what differs.
                    search = MatchSearch(self._log.first_index, frame.first_index - 2)
                    search.low = max(search.low, self.match_index)
                    self._search = search
                    if search.is_over:
                        self._found(search.low, end_index)
        elif response.code == DLedgerCode.INCONSISTENT_LEADER:
            # It does not follow yet: what was sent goes out again when it answers a heart beat.
            self.next_index = next(iter(self._in_flight.values())).first_index
            self._forget_requests()
            self._pause_end_ms = now_ms + RETRY_PAUSE_MS
        else:
            self._refusal_count += 1
            if self._refusal_count >= REFUSALS_MAX and self.dialect is PeerDialect.JAVA:
                self._start_compare()

    def _on_commit_response(self, response: PushResponse) -> None:
        """A Java follower that lost its log is found out here (DLedger ignores this answer)."""
        if self._commit_asked is None or self._commit_asked[0] != response.request_id:
            return
        held = self._commit_asked[1]
        self._commit_asked = None
        if response.code == DLedgerCode.SUCCESS and response.end_index < held:
            self._lost_entries()

    def _on_compare_response(self, response: PushResponse, index: int, now_ms: float) -> None:
        """Narrows the search, and leaves COMPARE when it is over.

        Source: DLedgerEntryPusher.EntryDispatcher.doCompare, which goes back one by one.
        """
        search = self._search
        assert search is not None
        if response.code == DLedgerCode.SUCCESS:
            search.matched(index, response.end_index)
        elif response.code != DLedgerCode.INCONSISTENT_STATE:
            self._pause_end_ms = now_ms + RETRY_PAUSE_MS
            return
        elif 0 <= index < response.begin_index:
            # What the follower dropped cannot be compared: it starts afresh (as in DLedger).
            self._start_truncate(self._log.first_index)
            return
        elif not search.differed(index, response.end_index):
            self._start_compare()
            return
        if search.is_over:
            self._found(search.low, response.end_index)

    def _on_truncate_response(self, response: PushResponse, index: int, now_ms: float) -> None:
        if response.code == DLedgerCode.SUCCESS:
            self._start_append(index)
            return
        if response.code == DLedgerCode.INCONSISTENT_STATE:
            self._start_compare()
        self._pause_end_ms = now_ms + RETRY_PAUSE_MS

    # -- changes of state

    def _found(self, common_index: int, end_index: int) -> None:
        """The last common entry is found; before our first entry it means that there is none."""
        first_index = self._log.first_index
        if common_index >= first_index:
            if self.dialect is not PeerDialect.LEDGERMQ and end_index > common_index:
                self._start_truncate(common_index)
            else:
                self._start_append(common_index)
        elif self.dialect is PeerDialect.LEDGERMQ and first_index == 0:
            self._start_append(-1)
        else:
            self._start_truncate(first_index)

    def _start_compare(self) -> None:
        self.state = PushState.COMPARE
        self._forget_requests()
        self._search = None

    def _start_truncate(self, index: int) -> None:
        self.state = PushState.TRUNCATE
        self._forget_requests()
        self._truncate_index = index

    def _start_append(self, match_index: int) -> None:
        self.state = PushState.APPEND
        self._forget_requests()
        self._is_probing = False
        self.next_index = match_index + 1
        self.match_index = match_index

    def _forget_requests(self) -> None:
        self._asked = None
        self._commit_asked = None
        self._in_flight.clear()
        self._late.clear()
        self._refusal_count = 0

    def _lost_entries(self) -> None:
        """The follower's log is shorter than what it acknowledged: it no longer counts."""
        self._start_compare()
        self.match_index = -1

    def _matched(self, index: int) -> None:
        self.match_index = max(self.match_index, index)
        self.next_index = max(self.next_index, self.match_index + 1)
        for request_id in [i for i, f in self._in_flight.items() if f.last_index <= index]:
            del self._in_flight[request_id]
        if self._late:
            self._late = {i: last for i, last in self._late.items() if last > index}

    def _new_request_id(self) -> int:
        self._last_request_id += 1
        return self._last_request_id
