"""Leadership: may this broker take writes now, and if not, why not and who does.

One plain value that the service's applier sets and every processor reads. Writes are taken while
this member leads, the record that opened its term is committed, everything committed is dispatched,
and nobody asked the broker to stop.
"""

from collections.abc import Callable
from typing import Final

from ledgermq.state.errors import ServiceUnavailableError
from ledgermq.state.under_way import OnCommitted

# Broker id of a member that has not found its role yet; never registered.
NO_BROKER_ID: Final = -1
LEADER_BROKER_ID: Final = 0
# Beside the roles that the ledger knows: it has said nothing yet, and it has stopped for good.
UNKNOWN: Final = "UNKNOWN"
FAILED: Final = "FAILED"


class Leadership:
    """What this member is to its group at the moment.

    Invariant: `is_serving` implies `is_leader`, and neither `is_stopping` nor `failure` is set
    then.
    """

    def __init__(self, self_id: str, follower_broker_id: int, *, is_slave: bool = False) -> None:
        self._self_id = self_id
        # Follows a master for as long as it runs; has no group that could lead instead.
        self.is_slave = is_slave
        self._follower_broker_id = follower_broker_id
        # LEADER, FOLLOWER or CANDIDATE, as the ledger says; UNKNOWN before it said anything,
        # FAILED after it stopped.
        self.role = UNKNOWN
        self.term = -1
        # Member id of the leader, None while there is none.
        self.leader_id: str | None = None
        # Writes are taken.
        self.is_serving = False
        # The broker was asked to stop.
        self.is_stopping = False
        # Why the ledger of this member stopped, None while it runs.
        self.failure: str | None = None
        # Why no message is taken although this member serves, None when they are; by subject.
        self.closed_because: str | None = None
        self._closures: dict[str, str] = {}
        # Why this member does not serve although it leads: its state is not complete. Empty when it
        # is.
        self.doubt = ""
        # What this member lost or found damaged, until it is whole again; None when it is.
        self.repair: str | None = None
        # Id of the bootstrapped group, and what the bootstrap waits for; at most one is not empty.
        self.cluster_id = self.bootstrap = ""
        # Peers of another group, and those that contradict committed entries, with the remedy.
        self.membership_alarm: str | None = None
        # Connections of members that are rejected here, or reject this member, and why.
        self.rejected_peers = ""
        # How far each follower of this leader is; empty for all others.
        self.followers = ""
        # Which settings differ that all members should share; empty while none does.
        self.settings_difference = ""
        # Clocks of the group that are wrong, empty for none; this machine's minus their median.
        self.clock_alarm, self.clock_difference_ms = "", 0
        # How far the log's latest store time is ahead of this machine's clock, 0 when it is not.
        self.log_ahead_ms = 0
        # Asks whether this follower has applied all that was granted before; the ledger's owner
        # sets it. And what tells how often that was known, or not.
        self.confirm_read: Callable[[OnCommitted], None] = _nobody_to_ask
        self.tell_reads: Callable[[], str] = str
        # Tells what a sync of the log takes lately.
        self.tell_sync_ms: Callable[[], int] = int
        # Since the start: leaders that were seen, elections that this member won and lost.
        self.leaders_count = self.won_count = self.lost_count = 0
        self._last_leader: tuple[str, int] | None = None
        # What of the broker's state cannot be stored, for operators; None while all can.
        self.alarm: str | None = None

    @property
    def is_leader(self) -> bool:
        """True while this member leads, also before it serves."""
        return self.role == "LEADER"

    @property
    def broker_id(self) -> int:
        """0 for a leader that serves, the member's own number for any other member that knows its
        leader, else -1.
        """
        if self.is_serving:
            return LEADER_BROKER_ID
        if self.role == UNKNOWN:
            return NO_BROKER_ID
        return self._follower_broker_id

    def changed(self, role: str, term: int, leader_id: str | None) -> None:
        """Takes over what the ledger says; serving ends with every change and begins again by
        `serve`.
        """
        if leader_id is not None and (leader_id, term) != self._last_leader:
            self._last_leader = leader_id, term
            self.leaders_count += 1
            self.won_count += role == "LEADER"
            self.lost_count += role != "LEADER" and self.role == "CANDIDATE"
        self.role = role
        self.term = term
        self.leader_id = leader_id
        self.is_serving = False

    def serve(self) -> None:
        """Opens the broker for writes."""
        if self.is_leader and not self.is_stopping and self.failure is None:
            self.is_serving = True

    def stop(self) -> None:
        """Closes the broker for writes for good: it is about to end."""
        self.is_stopping = True
        self.is_serving = False

    def fail(self, reason: str) -> None:
        """Closes the broker for writes for good: its ledger stopped."""
        self.failure = reason
        self.role = FAILED
        self.leader_id = None
        self.is_serving = False

    def close_for(self, subject: str, reason: str | None) -> None:
        """Takes why no messages are taken for the sake of a subject ("disk", "clock"), or that
        this is over (None).
        """
        self._closures.pop(subject, None)
        if reason is not None:
            self._closures[subject] = reason
        self.closed_because = "; ".join(self._closures.values()) or None

    @property
    def takes_messages(self) -> bool:
        """True when sends are taken; the hot path reads the two fields itself."""
        return self.is_serving and self.closed_because is None

    def check_serving(self) -> None:
        """Raises ServiceUnavailableError, with the reason, unless writes are taken."""
        if not self.is_serving:
            raise self.refusal()

    def refusal(self) -> ServiceUnavailableError:
        """Returns why writes are not taken now."""
        if self.failure is not None:
            return ServiceUnavailableError(
                f"the ledger of this broker has stopped: {self.failure}; another member takes over"
            )
        if self.is_serving and self.closed_because is not None:
            return ServiceUnavailableError(f"messages are not taken: {self.closed_because}")
        if self.is_stopping:
            return ServiceUnavailableError("the broker is stopping, send to another one")
        if self.is_leader and self.doubt:
            return ServiceUnavailableError(
                f"{self._self_id} leads term {self.term} but does not serve, as its state is in"
                f" doubt: {self.doubt}"
            )
        if self.is_leader:
            return ServiceUnavailableError(
                f"{self._self_id} leads term {self.term} but is not ready: it waits"
                " for a majority to commit the record that opens its term"
            )
        if self.leader_id is None or self.leader_id == self._self_id:
            return ServiceUnavailableError(
                f"{self._self_id} is {self.role} in term {self.term} and knows no leader:"
                " an election is going on or a majority of the group is down"
                + (f" ({self.bootstrap})" if self.bootstrap else "")
            )
        return ServiceUnavailableError(
            f"{self._self_id} is {self.role} in term {self.term};"
            f" {self.leader_id} leads and takes writes"
        )


def _nobody_to_ask(done: OnCommitted) -> None:
    done(ServiceUnavailableError("this broker has no leader that it could ask"))
