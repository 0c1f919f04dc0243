"""Floods against a broker, and the table of what they do.

    python -m tests.attack.floods [--long] [--tree DIRECTORY] [NAME ...]

prints for each flood what the victim used and how a well-behaved client beside it fared, as a table
for docs/security.md. Each flood is bounded in count and time and ends by itself. `--tree` floods
the broker of another checkout.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final

from ledgermq.protocol.codes import RequestCode
from tests.attack.victim import Effect, Flood, Target, Victim
from tests.e2e.wire_client import WireClient, half_fields, pull_fields, send_fields

_MIB: Final = 1 << 20
_ONE_WAY: Final = 2
# The p99 of the client beside, without what programs stood in line for a processor, may be so many
# times its quiet one; a quiet one below the floor, in milliseconds, counts as the floor: there the
# clock of the machine is measured, not the broker.
TIMES_MAX: Final = 10
QUIET_FLOOR_MS: Final = 2.0
# The same for turns of the reactor, in processor time, which does not depend on what else the
# machine does.
TURN_FLOOR_MS: Final = 1.0


COSTLY_CONDITION: Final = " AND ".join(
    ["(" * 20 + "a NOT BETWEEN 1 AND 9 AND b NOT IN ('x','y','z')" + ")" * 20] * 40
)


@dataclass(frozen=True)
class Size:
    """How much of each."""

    seconds: float
    held_pulls: int
    connections: int
    messages: int
    frames: int
    topics: int


SHORT: Final = Size(4.0, 5_000, 300, 5_000, 60, 300)
LONG: Final = Size(15.0, 100_000, 2_000, 200_000, 120, 5_000)


def quiet(size: Size) -> Flood:
    """Nothing; the client is alone."""
    return lambda victim: _wait(size.seconds)


def held_pulls(size: Size) -> Flood:
    """Pulls that wait for messages, a hundred of each of 8 queues on each connection."""

    def flood(victim: Target) -> None:
        with ExitStack() as stack:
            _hold(victim, stack, [100_000] * size.held_pulls)
            _wait(size.seconds)

    return flood


def woken_pulls(size: Size) -> Flood:
    """The same, of which each tenth of a second some have waited long enough, and of which half are
    woken by one message for each of their queues.
    """
    first_ms, last_ms = int(size.seconds * 400), int(size.seconds * 1000)
    step_ms = (last_ms - first_ms) / size.held_pulls

    def flood(victim: Target) -> None:
        waits_ms = [int(first_ms + number * step_ms) for number in range(size.held_pulls)]
        with ExitStack() as stack:
            _hold(victim, stack, waits_ms)
            _wait(size.seconds / 5)
            with victim.connect() as client:
                for queue_id in range(4):
                    assert client.send("held", queue_id, b"x").code == 0
            _wait(size.seconds)

    return flood


def _hold(victim: Target, stack: ExitStack, waits_ms: Sequence[int]) -> None:
    """Has so many pulls held, each for so long, until the stack ends."""
    with victim.connect() as client:
        assert client.send("held", 0, b"x", defaultTopicQueueNums="8").code == 0
    for first in range(0, len(waits_ms), 800):
        client = stack.enter_context(victim.connect())
        fields = [
            # 2: may be held. Behind the one message of queue 0; the others are empty.
            pull_fields(
                "held", number % 8, int(number % 8 == 0), sysFlag="6",
                suspendTimeoutMillis=str(waits_ms[number]),
            )
            for number in range(first, min(first + 800, len(waits_ms)))
        ]  # fmt: skip
        client.write(_pipelined(victim, RequestCode.PULL_MESSAGE, fields))


def sql(size: Size) -> Flood:
    """Pulls whose condition costs the most and holds for no message."""
    return _sql_pulls(size, [COSTLY_CONDITION + " AND a IS NULL"])


def new_sql(size: Size) -> Flood:
    """The same, each with a text of its own, so that none is known already; some are of signs, some
    of chains of comparisons.
    """
    conditions = [f"{COSTLY_CONDITION} AND a{number} IS NULL" for number in range(1000)]
    conditions[::10] = map(_signs, range(0, 1000, 10))
    conditions[5::10] = map(_chains, range(5, 1000, 10))
    return _sql_pulls(size, conditions)


def _chains(number: int) -> str:
    """A condition with as many comparisons as are allowed."""
    return f"a{number} = 1 OR " + " OR ".join(["a" + "=a" * 59] * 10)


def _signs(number: int) -> str:
    """A condition whose lines of signs look as if comments began there."""
    return "FALSE\nOR " + " OR ".join([f"a{number} = " + "-" * 60 + "1"] * 54)


def _sql_pulls(size: Size, conditions: Sequence[str]) -> Flood:
    assert max(map(len, conditions)) <= 4096

    def flood(victim: Target) -> None:
        properties = "".join(f"{name}\x01{'77'}\x02" for name in ("a", "b", "c"))
        with victim.connect() as client:
            sends = [send_fields("sql", 0, properties=properties, defaultTopicQueueNums="1")] * 2000
            client.write(_pipelined(victim, RequestCode.SEND_MESSAGE, sends, b"body"))
            for _ in sends:
                client.read()
        fields = [
            pull_fields(
                "sql", 0, 0, subscription=conditions[number % len(conditions)],
                expressionType="SQL92",
            )
            for number in range(1000)
        ]  # fmt: skip
        pulls = _pipelined(victim, RequestCode.PULL_MESSAGE, fields)
        pipeline_for(victim, size.seconds, [pulls] * 4)

    return flood


def idle_connections(size: Size) -> Flood:
    """Connections that say nothing."""

    def flood(victim: Target) -> None:
        with ExitStack() as stack:
            for _ in range(size.connections):
                stack.enter_context(victim.connect())
            _wait(size.seconds)

    return flood


def half_messages(size: Size) -> Flood:
    """Half messages that nobody ends."""
    fields = half_fields("nobody", int(time.time() * 1000))
    sends = [send_fields("halves", 0, **fields)] * size.messages
    return _sends(sends)


def delayed_messages(size: Size) -> Flood:
    """Messages that are due in a second, all at once."""
    return _sends([send_fields("later", 0, properties="DELAY\x011\x02")] * size.messages)


def tls_handshakes(size: Size) -> Flood:
    """Handshakes, one after the other, on four threads."""
    curious = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    curious.check_hostname, curious.verify_mode = False, ssl.CERT_NONE

    def flood(victim: Target) -> None:
        context = victim.tls or curious

        def shake(end_s: float) -> None:
            host, _, port = victim.address.rpartition(":")
            while time.monotonic() < end_s:
                try:
                    with socket.create_connection((host, int(port)), timeout=30) as plain:
                        context.wrap_socket(plain).close()
                except OSError:
                    # Refused, for a limit.
                    continue

        _in_threads(4, shake, time.monotonic() + size.seconds)

    return flood


def one_way(size: Size, connection_count: int = 4) -> Flood:
    """Sends, requests for lists and unknown requests that want no answer."""
    fields = {"a": "g", "b": "ways", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
              "h": "0", "i": "", "j": "0", "k": "false"}  # fmt: skip

    def flood(victim: Target) -> None:
        data = b"".join(
            victim.request(310, fields, bytes(100), flag=_ONE_WAY)
            + victim.request(RequestCode.GET_ALL_TOPIC_CONFIG.value, {}, flag=_ONE_WAY)
            + victim.request(9999, {}, flag=_ONE_WAY)
            for _ in range(1000)
        )
        pipeline_for(victim, size.seconds, [data] * connection_count)

    return flood


def one_way_of_many(size: Size) -> Flood:
    """The same of 32 connections: each of them asks for little."""
    return one_way(size, 32)


def small_requests(size: Size) -> Flood:
    """One small request after the other of each of hundreds of connections."""

    def flood(victim: Target) -> None:
        fields = {"topic": "small", "queueId": "0"}
        data = victim.request(RequestCode.GET_MAX_OFFSET.value, fields, flag=_ONE_WAY)
        with ExitStack() as stack:
            clients = [stack.enter_context(victim.connect()) for _ in range(size.connections // 8)]
            _write_for(size.seconds, clients, data, pause_s=0.01)

    return flood


def unfinished_frames(size: Size) -> Flood:
    """Frames of 15 MiB of which the last byte never comes."""
    begun = struct.pack(">i", 15 * _MIB) + bytes(15 * _MIB - 1)

    def flood(victim: Target) -> None:
        with ExitStack() as stack:
            for _ in range(size.frames):
                stack.enter_context(victim.connect()).write(begun)
            _wait(1.0)

    return flood


def slow_loris(size: Size) -> Flood:
    """Frames that come byte by byte."""
    return _pieces(size, 1000, b"\0")


def small_pieces(size: Size) -> Flood:
    """Frames that come in small pieces, but faster than what is cut off."""
    return _pieces(size, 60_000, bytes(300))


def _pieces(size: Size, frame_bytes: int, piece: bytes) -> Flood:
    def flood(victim: Target) -> None:
        with ExitStack() as stack:
            clients = [stack.enter_context(victim.connect()) for _ in range(size.connections)]
            for client in clients:
                client.write(struct.pack(">i", frame_bytes))
            _write_for(size.seconds, clients, piece, pause_s=0.2)

    return flood


def list_requests(size: Size) -> Flood:
    """Requests for lists in a pipeline, of connections that close without reading."""

    def flood(victim: Target) -> None:
        _make_topics(victim, size.topics)
        lists = _pipelined(victim, RequestCode.GET_ALL_TOPIC_CONFIG, [{}] * 3000)
        for _ in range(10):
            with victim.connect() as client:
                client.write(lists)
        # They read a little, and slowly.
        pipeline_for(victim, size.seconds, [lists] * 4)

    return flood


def changed_lists(size: Size) -> Flood:
    """Requests for lists of thousands of topics, of which one is changed again and again."""

    def flood(victim: Target) -> None:
        _make_topics(victim, max(size.topics, 2000))
        lists = _pipelined(victim, RequestCode.GET_ALL_TOPIC_CONFIG, [{}] * 1000)
        ended = threading.Event()

        def change() -> None:
            with victim.connect(is_admin=True) as client:
                for count in cycle((2, 1)):
                    if ended.wait(0.01):
                        return
                    client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC.value, _topic_fields(0, count))

        changes = threading.Thread(target=change)
        changes.start()
        try:
            pipeline_for(victim, size.seconds, [lists] * 4)
        finally:
            ended.set()
            changes.join()

    return flood


def _make_topics(victim: Target, count: int) -> None:
    with victim.connect(is_admin=True) as client:
        for number in range(count):
            fields = _topic_fields(number, 1)
            client.ask_later(RequestCode.UPDATE_AND_CREATE_TOPIC.value, fields)
        for _ in range(count):
            client.read()


def _topic_fields(number: int, queue_count: int) -> dict[str, str]:
    return {"topic": f"listed-{number}", "defaultTopic": "TBW102", "perm": "6",
            "readQueueNums": str(queue_count), "writeQueueNums": str(queue_count),
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip


def stands_of_groups(size: Size) -> Flood:
    """Requests for where all groups stand, of hundreds with places in 32 queues, in a pipeline."""

    def flood(victim: Target) -> None:
        with victim.connect(is_admin=True) as client:
            assert client.send("stands", 0, b"x", defaultTopicQueueNums="32").code == 0
            for number in range(size.topics):
                group = f"stands-{number}"
                body = json.dumps({"groupName": group}).encode()
                client.ask_later(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.value, {}, body)
                for queue_id in range(32):
                    fields = {"consumerGroup": group, "topic": "stands", "queueId": str(queue_id),
                              "commitOffset": "1"}  # fmt: skip
                    client.ask_later(RequestCode.UPDATE_CONSUMER_OFFSET.value, fields)
                for _ in range(33):
                    client.read()
        asked = [{"isOrder": "false"}] * 100
        stands = _pipelined(victim, RequestCode.GET_BROKER_CONSUME_STATS, asked)
        pipeline_for(victim, size.seconds, [stands] * 4)

    return flood


def heart_beats(size: Size) -> Flood:
    """Heart beats of 3.8 MB, each with 20,000 groups of its own; and in a pipeline those that are
    as great as is allowed: with many groups, and with conditions that nobody has read yet. Between
    them are questions whether such a condition can be applied.
    """

    def flood(victim: Target) -> None:
        with victim.connect() as client:
            for number in range(3):
                names = [f"g-{number}-{group}" for group in range(20_000)]
                client.ask_later(RequestCode.HEART_BEAT.value, {}, _heart_beat(names, {}))
            for _ in range(3):
                client.read()
        requests = [
            victim.request(RequestCode.CHECK_CLIENT_CONFIG.value, {}, _check(number))
            for number in range(100)
        ]
        beats = [_heart_beat([f"h-{group}" for group in range(900)], {})]
        for number in range(4):
            texts = {f"sql-{at}": f"{_signs(at)} OR b{number} = 1" for at in range(60)}
            beats.append(_heart_beat([f"h-{number}"], texts))
        assert all(200 << 10 < len(beat) < 256 << 10 for beat in beats[1:])
        requests += [victim.request(RequestCode.HEART_BEAT.value, {}, beat) for beat in beats]
        pipeline_for(victim, size.seconds, [b"".join(requests)] * 4)

    return flood


def leaving_members(size: Size) -> Flood:
    """Sixty connections that come into nine hundred groups each, and close at one moment."""
    consumers = _heart_beat([f"h-{group}" for group in range(450)], {})
    names = [{"groupName": f"h-{group}"} for group in range(450)]
    producers = json.dumps({"clientID": "c", "producerDataSet": names}).encode()

    def flood(victim: Target) -> None:
        end = time.monotonic() + size.seconds
        while time.monotonic() < end:
            with ExitStack() as stack:
                clients = [stack.enter_context(victim.connect()) for _ in range(60)]
                for client in clients:
                    for beat in (consumers, producers):
                        client.ask_later(RequestCode.HEART_BEAT.value, {}, beat)
                for client in clients:
                    client.read()
                    client.read()

    return flood


def _check(number: int) -> bytes:
    """A question whether a condition can be applied."""
    wanted = {"topic": "sql", "subString": _signs(number), "expressionType": "SQL92"}
    return json.dumps({"clientId": "c", "group": "h", "subscriptionData": wanted}).encode()


def _heart_beat(groups: Sequence[str], conditions: dict[str, str]) -> bytes:
    """A heart beat of a consumer in some groups, each of which wants of topics what is given."""
    wants = [
        {"topic": topic, "subString": text, "expressionType": "SQL92", "subVersion": 1,
         "tagsSet": [], "codeSet": [], "classFilterMode": False}
        for topic, text in conditions.items()
    ]  # fmt: skip
    consumers = [
        {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
         "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": wants}
        for group in groups
    ]  # fmt: skip
    return json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()


def many_keys(size: Size) -> Flood:
    """A hundred messages of 7,900 keys each."""
    keys = " ".join(f"{number:03x}" for number in range(7900))
    sends = [send_fields("keyed", 0, properties=f"KEYS\x01{keys}\x02")] * 100

    def flood(victim: Target) -> None:
        _sends(sends)(victim)
        _wait(size.seconds)

    return flood


FLOODS: Final = (
    quiet, held_pulls, woken_pulls, sql, new_sql, idle_connections, half_messages, delayed_messages,
    tls_handshakes, one_way, one_way_of_many, small_requests, unfinished_frames, slow_loris,
    small_pieces, list_requests, changed_lists, stands_of_groups, heart_beats, leaving_members,
    many_keys,
)  # fmt: skip


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def _pipelined(
    victim: Target, code: RequestCode, fields: Sequence[dict[str, str]], body: bytes = b""
) -> bytes:
    return b"".join(
        victim.request(code.value, given, body, opaque=number)
        for number, given in enumerate(fields)
    )


def _in_threads(count: int, function: object, *arguments: object) -> None:
    threads = [
        threading.Thread(target=function, args=arguments)  # type: ignore[arg-type]
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _sends(fields: Sequence[dict[str, str]]) -> Flood:
    """Sends of one connection, a hundred at a time."""

    def flood(victim: Target) -> None:
        with victim.connect() as client:
            for first in range(0, len(fields), 100):
                some = fields[first : first + 100]
                client.write(_pipelined(victim, RequestCode.SEND_MESSAGE, some, b"body"))
                for _ in some:
                    client.read()

    return flood


def _write_for(seconds: float, clients: Sequence[WireClient], data: bytes, pause_s: float) -> None:
    """Writes the same on all connections, one after the other, again and again with a pause."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for client in clients:
            client.write(data)
        _wait(pause_s)


def pipeline_for(victim: Target, seconds: float, floods: Sequence[bytes]) -> None:
    """Writes bytes again and again, each on a connection of its own, and reads little."""
    end_s = time.monotonic() + seconds

    def write(data: bytes) -> None:
        at = 0
        with _stubborn(victim) as plain:
            while time.monotonic() < end_s:
                try:
                    at = (at + plain.send(data[at : at + 65_536])) % len(data)
                    plain.recv(4096)
                except (BlockingIOError, TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    _wait(0.01)
                except OSError:
                    return

    threads = [threading.Thread(target=write, args=(data,)) for data in floods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _stubborn(victim: Target) -> socket.socket:
    opened = victim.open()
    opened.setblocking(False)
    return opened


def is_fair(effect: Effect, quiet_ms: float) -> bool:
    """Tells whether the client beside was served: its p99 is under ten times its quiet one."""
    return effect.seen.free_p99_ms < TIMES_MAX * max(quiet_ms, QUIET_FLOOR_MS)


def has_short_turns(effect: Effect, quiet: Effect) -> bool:
    """Tells whether a client beside can be served: turns last no ten times a quiet one."""
    return effect.turn_ms < TIMES_MAX * max(quiet.turn_ms, TURN_FLOOR_MS)


def _row(name: str, effect: Effect, quiet_ms: float) -> str:
    seen = effect.seen
    returned = "no" if effect.returned_s is None else f"{effect.returned_s:.0f} s"
    return (
        f"| {name.replace('_', ' ')} | {effect.seconds:.0f} s | {effect.cpu_s:.1f} s"
        f" | {effect.before_mb:.0f} / {effect.peak_mb:.0f} / {effect.after_mb:.0f} MB | {returned}"
        f" | {len(seen.acknowledged)} of {len(seen.waits_ms)} | {seen.p99_ms:.1f} ms"
        f" | {seen.free_p99_ms:.1f} ms"
        f" | {seen.slowest_ms:.0f} ms | {'yes' if is_fair(effect, quiet_ms) else 'no'}"
        f" | {effect.turn_ms:.1f} ms |"
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="floods; all of them when none is named")
    parser.add_argument("--long", action="store_true", help="the numbers of docs/security.md")
    parser.add_argument("--tree", type=Path, help="checkout whose broker is flooded")
    options = parser.parse_args()
    size = LONG if options.long else SHORT
    quiet_ms = float("inf")
    _say(
        "| flood | lasts | processor time | memory before / most / after | back in"
        " | sends answered beside | p99 | without other programs | slowest | within ten times"
        " | turns |\n" + "|---" * 11 + "|"
    )
    for make in FLOODS:
        name = make.__name__
        if options.names and name not in ("quiet", *options.names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            victim = Victim(Path(folder), tree=options.tree)
            with victim.program:
                victim.wait_until_serving()
                effect = victim.watch(make(size))
                lost = victim.lost()
        if make is quiet:
            quiet_ms = effect.seen.free_p99_ms
        _say(_row(name, effect, quiet_ms))
        if lost:
            _say(f"LOST: {len(lost)} acknowledged messages")


if __name__ == "__main__":
    main()
