"""A process that writes messages until it is killed; run by test_commitlog_kill.

Prints `acknowledged N` after each turn of which all N messages so far are committed and dispatched.
"""

import random
import sys

from tests.unit.commitlog.single_member import Broker, message


def main(root: str, seed: int) -> None:
    """Open the store, take up the lead, and write for ever."""
    rng = random.Random(seed)
    broker = Broker(
        root,
        segment_bytes=1 << 20,
        queue_segment_bytes=20_000,
        index_slot_count=1000,
        index_entry_count=5000,
    )
    broker.lead()
    store = broker.store
    count = sum(store.max_offset(f"T{n}", q) for n in range(2) for q in range(4))
    sys.stdout.write(f"ready {count}\n")
    sys.stdout.flush()
    while True:
        turn = []
        for _ in range(rng.randrange(1, 40)):
            number = count + len(turn)
            properties = b"UNIQ_KEY\x01%032X\x02TAGS\x01t%d" % (number, number % 3)
            body = b"%d " % number + b"x" * rng.randrange(300)
            turn.append(message(body, f"T{number % 2}", rng.randrange(4), properties))
        broker.send(*turn)
        count += len(turn)
        sys.stdout.write(f"acknowledged {count}\n")
        sys.stdout.flush()
        if rng.random() < 0.1:
            store.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
