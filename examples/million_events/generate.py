"""Generates the orders of a web shop as JSON lines: always the same ones for the same number.

Every event belongs to one of some ten thousand orders, which go from "created" over "paid" and
"shipped" to "delivered", now and then to "cancelled" or "returned". Names and addresses are not
ASCII only. An event has about 200 to 600 bytes.

    python generate.py --count 1000000 > events.jsonl
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator

SEED = 20240229
START_MS = 1_704_067_200_000
OPEN_ORDERS = 10_000

FIRST_NAMES = (
    "Anna", "Łukasz", "Zoë", "José", "Søren", "Ayşe", "Mário", "Chloé", "Jürgen", "Noor",
    "Дмитрий", "Ольга", "陈伟", "李娜", "さくら", "太郎", "민준", "Ελένη", "Ahmed", "Siobhán",
)  # fmt: skip
LAST_NAMES = (
    "Müller", "Nowak", "García", "Ødegård", "Yılmaz", "Conceição", "Lefèvre", "O'Brien", "Smith",
    "Иванов", "王", "佐藤", "김", "Παπαδοπούλου", "Haddad", "Kowalczyk", "Šimić", "Nguyễn",
)  # fmt: skip
CITIES = (
    ("Köln", "DE"), ("Łódź", "PL"), ("São Paulo", "BR"), ("Zürich", "CH"), ("東京", "JP"),
    ("Αθήνα", "GR"), ("Москва", "RU"), ("Málaga", "ES"), ("Århus", "DK"), ("서울", "KR"),
    ("Leeds", "GB"), ("Québec", "CA"),
)  # fmt: skip
ITEMS = (
    ("Espresso cups, 6 pieces", 2490), ("Bücherregal „Ole“", 8900), ("USB-C cable 2 m", 990),
    ("Crème brûlée torch", 3450), ("Trail shoes 42", 11990), ("Yoga mat", 2599),
    ("Käsereibe", 1295), ("Noise-cancelling headphones", 24900), ("緑茶 200 g", 1480),
    ("Desk lamp", 3999), ("Piñata", 1899), ("Wool socks, 3 pairs", 1750),
)  # fmt: skip
NEXT_STATES = {
    "created": ("paid", "paid", "paid", "paid", "cancelled"),
    "paid": ("shipped", "shipped", "shipped", "shipped", "cancelled"),
    "shipped": ("delivered", "delivered", "delivered", "delivered", "returned"),
}
CHANNELS = ("web", "app-ios", "app-android", "shop-pos", "partner")


def events(count: int) -> Iterator[bytes]:
    """Gives the first `count` events, each as one JSON line without its end."""
    chance = random.Random(SEED)
    choice, draw = chance.choice, chance.random
    # Fixed parts of orders that are open, as JSON text without the brackets around it.
    orders: list[tuple[int, str, str]] = []
    states: list[str] = []
    now_ms = START_MS
    for number in range(count):
        now_ms += int(draw() * 90)
        slot = int(draw() * OPEN_ORDERS)
        if slot < len(orders) and states[slot] in NEXT_STATES:
            order_id, key, details = orders[slot]
            state = choice(NEXT_STATES[states[slot]])
            states[slot] = state
        else:
            order_id, state = 500_000 + number, "created"
            key = f"order-{order_id}"
            details = _details(chance)
            if slot < len(orders):
                orders[slot], states[slot] = (order_id, key, details), state
            else:
                orders.append((order_id, key, details))
                states.append(state)
        yield (
            f'{{"event_id":"{number:010d}","order":"{key}","type":"order.{state}",'
            f'"at_ms":{now_ms},{details}}}'
        ).encode()


def _details(chance: random.Random) -> str:
    """Makes what stays the same in all events of an order."""
    choice = chance.choice
    city, country = choice(CITIES)
    lines = []
    total = 0
    for _ in range(1 + int(chance.random() * 3)):
        title, cents = choice(ITEMS)
        quantity = 1 + int(chance.random() * 3)
        total += cents * quantity
        lines.append({"title": title, "quantity": quantity, "cents": cents})
    details = {
        "user": {
            "id": f"u{int(chance.random() * 200_000):06d}",
            "name": f"{choice(FIRST_NAMES)} {choice(LAST_NAMES)}",
            "city": city,
            "country": country,
        },
        "items": lines,
        "total_cents": total,
        "currency": "EUR",
        "channel": choice(CHANNELS),
    }
    return json.dumps(details, ensure_ascii=False, separators=(",", ":"))[1:-1]


def main() -> int:
    """Writes the events to standard output."""
    parser = argparse.ArgumentParser(description="Generate web-shop events as JSON lines.")
    parser.add_argument("--count", type=int, default=1_000_000)
    options = parser.parse_args()
    chunk: list[bytes] = []
    for line in events(options.count):
        chunk.append(line)
        if len(chunk) == 1000:
            sys.stdout.buffer.write(b"\n".join(chunk) + b"\n")
            chunk.clear()
    if chunk:
        sys.stdout.buffer.write(b"\n".join(chunk) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
