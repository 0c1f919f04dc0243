"""What the tables of processors are made of."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from twisted.internet.defer import Deferred

from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.audit.watch import Watch
from ledgermq.broker.clients.client_table import ClientTable
from ledgermq.broker.clients.open_questions import OpenQuestions
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.counts.rates import Rates
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.pulls.long_polling import ParkedPulls
from ledgermq.broker.request_times import RequestTimes
from ledgermq.broker.sends.proposals import Proposals
from ledgermq.commitlog import MessageStore
from ledgermq.dledger.store.cold_reader import ColdReader
from ledgermq.protocol.headers import UpdateConsumerOffsetRequestHeader
from ledgermq.state.broker_state import BrokerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the processors are bound to."""

    config: BrokerConfig
    leadership: Leadership
    state: BrokerState
    clients: ClientTable
    # What clients are asked for others.
    questions: OpenQuestions = field(default_factory=OpenQuestions)
    parked: ParkedPulls
    proposals: Proposals
    messages: MessageStore
    # Reads old messages for pulls; None: a pull waits for the disk.
    cold_reader: ColdReader | None = None
    rates: Rates
    # Rules of access control; None while it is off.
    rules: RulesTable | None
    # Notes changes and refusals; None where nothing is noted.
    audit: Watch | None = None
    # Gets the times of requests; None where nobody asks.
    times: RequestTimes | None = None
    # Address and port of this broker as records hold them.
    store_host: tuple[bytes, int]
    machine_memory_bytes: int
    # Has the next look at old files not wait for its hour.
    clean_soon: Callable[[], None]
    # Returns what fires when name servers know the topics of the moment.
    topics_told: Callable[[], Deferred[None]]
    # Passes an offset on to the leader: as decoded, and as it came.
    relay_offset: Callable[[UpdateConsumerOffsetRequestHeader, dict[str, str], str], None]
    # Wall clock, monotonic time, and the wall clock's time without its jumps ahead.
    now_ms: Callable[[], int]
    clock_ms: Callable[[], float]
    expiry_ms: Callable[[], int]
    # Has a function called at the end of the turn.
    soon: Callable[[Callable[[], None]], None]
    rng: Random
