"""The judgment at the end of a run: what was acknowledged is there, once, and nothing else is."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import NamedTuple

from ledgermq.protocol.codes import RequestCode
from tests.e2e.wire_client import WireClient
from tests.fault.hosts.cluster import QUEUES, TOPIC, Cluster
from tests.fault.hosts.notes import Note
from tests.fault.hosts.observer import Place
from tests.fault.hosts.producer import STREAMS, body_of, key_of, number_of
from tests.fault.up_group import NODES

# A queue is read in answers of 32; a broker that was just hurt may be slow.
_ANSWER_S = 30.0
_SHOWN_MAX = 5


class Verdict(NamedTuple):
    """What was found."""

    # Everything that was promised and does not hold; empty when all is well.
    complaints: list[str]
    # Messages at a place that nobody was told of: their sends failed, or were tried again.
    unknown_count: int
    # Numbers that stand at more than one place: sends that were tried again.
    copies_count: int
    # Deliveries of what had been delivered before.
    again_count: int


def read_broker(address: str) -> dict[Place, bytes]:
    """All that a broker shows.

    Raises:
        AssertionError: offsets are missing.
        OSError: it does not answer.
    """
    found: dict[Place, bytes] = {}
    with WireClient(address, _ANSWER_S) as client:
        for queue in range(QUEUES):
            fields = {"topic": TOPIC, "queueId": str(queue)}
            answer = client.ask(RequestCode.GET_MIN_OFFSET.value, fields)
            assert answer.code == 0 and answer.ext_fields is not None, answer.remark
            # What retention took is missed by whoever compares.
            first = int(answer.ext_fields["offset"])
            for expected, record in enumerate(client.read_queue(TOPIC, queue, first), first):
                assert record.queue_offset == expected, f"queue {queue} lacks offset {expected}"
                found[queue, expected] = record.body
    return found


def judge(
    acks: Sequence[Note],
    deliveries: Sequence[Note],
    sent: Sequence[int],
    seen: dict[Place, int],
    brokers: dict[str, dict[Place, bytes]],
    terms: dict[int, set[str]],
) -> Verdict:
    """Compares what was told with what is there.

    Args:
        acks: what the producers were told.
        deliveries: what the consumer was given.
        sent: messages that were sent, by stream.
        seen: what the observer saw at each place.
        brokers: what each broker shows in the end.
        terms: who led in each term.
    """
    complaints = []
    told = {(ack.queue, ack.offset): ack.number for ack in acks}
    if len(told) != len(acks):
        complaints.append("two messages were acknowledged at one place")
    given: dict[Place, bytes] = {}
    for note in deliveries:
        body = given.setdefault((note.queue, note.offset), body_of(note.number))
        if body != body_of(note.number):
            complaints.append(f"the consumer was given two messages of {note.queue}:{note.offset}")
    complaints += _overtaken(acks)
    complaints += _missing("the consumer", "acknowledged", told, given)
    for node, found in brokers.items():
        for what, expected in (("acknowledged", told), ("seen", seen)):
            complaints += _missing(node, what, expected, found)
        numbers = map(number_of, found.values())
        if any(number // STREAMS >= sent[number % STREAMS] for number in numbers):
            complaints.append(f"{node} holds messages that were never sent")
    first = next(iter(brokers.values()), {})
    for node, found in brokers.items():
        if found != first:
            count = sum(found.get(place) != body for place, body in first.items())
            count += sum(place not in first for place in found)
            complaints.append(f"{node} and {next(iter(brokers))} differ at {count} places")
    complaints += [
        f"term {term} had the leaders {', '.join(sorted(nodes))}"
        for term, nodes in sorted(terms.items())
        if len(nodes) > 1
    ]
    times = collections.Counter(map(number_of, first.values()))
    return Verdict(
        complaints,
        unknown_count=sum(place not in told for place in first),
        copies_count=sum(count - 1 for count in times.values()),
        again_count=len(deliveries) - len(given),
    )


def _overtaken(acks: Sequence[Note]) -> list[str]:
    """Messages of one ordering key that do not stand in the order in which they were sent."""
    complaints = []
    last: dict[str, Note] = {}
    for note in sorted(acks):
        key = key_of(note.number)
        if key is None:
            continue
        before = last.get(key)
        if before is not None and (note.queue != before.queue or note.offset <= before.offset):
            complaints.append(
                f"key {key}: message {note.number} at {note.queue}:{note.offset} was sent after"
                f" {before.number} at {before.queue}:{before.offset}"
            )
        last[key] = note
    return complaints[:_SHOWN_MAX]


def _missing(
    node: str, what: str, expected: dict[Place, int], found: dict[Place, bytes]
) -> list[str]:
    """The places at which a broker does not have what it should."""
    wrong = [place for place, number in expected.items() if found.get(place) != body_of(number)]
    lost = sum(place not in found for place in wrong)
    if not wrong:
        return []
    shown = ", ".join(f"{queue}:{offset}" for queue, offset in sorted(wrong)[:_SHOWN_MAX])
    return [
        f"{node}: of {len(expected)} messages that were {what}, {lost} are lost and"
        f" {len(wrong) - lost} are others (queue:offset {shown})"
    ]


def judge_cluster(
    cluster: Cluster,
    acks: Sequence[Note],
    deliveries: Sequence[Note],
    sent: Sequence[int],
    seen: dict[Place, int],
) -> Verdict:
    """Reads all brokers, and judges."""
    brokers = {}
    complaints = []
    for node in NODES:
        try:
            brokers[node] = read_broker(cluster.address(node))
        except (AssertionError, OSError) as error:
            complaints.append(f"{node} cannot be read: {error!r}")
    if not brokers:
        return Verdict(complaints, 0, 0, 0)
    verdict = judge(acks, deliveries, sent, seen, brokers, cluster.terms())
    return verdict._replace(complaints=complaints + verdict.complaints)
