"""What a send costs above the commit log: header, checks, properties, waiting, answer.

One turn is 256 sends of 1 KiB from four connections, with a store that only counts. Prints
microseconds for each message, in parts.
"""

from __future__ import annotations

import time

from bench.load import build_frames
from ledgermq.commitlog import AppendMessage
from ledgermq.protocol.command import decode
from tests.unit.broker.parts import ListConnection, Parts

TURN = 256
ROUNDS = 60


def main() -> None:
    """Runs the turns and prints the parts."""
    parts = Parts().lead()
    frames = [frame[4:] for frame in build_frames("BenchTopic", 4, 1024)[:TURN]]
    connections = [ListConnection() for _ in range(4)]
    for connection in connections:
        connection.send_frame = lambda frame: None  # type: ignore[method-assign]
    store = parts.store
    answers = [(index, index * 100 + 48, 1100, index, 1000) for index in range(TURN)]

    def append(messages: list[AppendMessage]) -> list[tuple[int, ...]]:
        return answers

    store.append = append  # type: ignore[assignment, method-assign]
    spent = {"decode": 0.0, "send": 0.0, "flush": 0.0, "committed": 0.0}
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        commands = [decode(frame) for frame in frames]
        decoded = time.perf_counter()
        for number, command in enumerate(commands):
            parts.sends.send(connections[number % 4], command)  # type: ignore[arg-type]
        sent = time.perf_counter()
        parts.turn.end()
        flushed = time.perf_counter()
        parts.proposals.committed(TURN)
        ended = time.perf_counter()
        spent["decode"] += decoded - begun
        spent["send"] += sent - decoded
        spent["flush"] += flushed - sent
        spent["committed"] += ended - flushed
    count = TURN * ROUNDS
    cells = [f"{name} {seconds * 1e6 / count:.2f}" for name, seconds in spent.items()]
    print(f"us a message: {', '.join(cells)}, all {sum(spent.values()) * 1e6 / count:.2f}")


if __name__ == "__main__":
    main()
