"""Sends numbered messages until its standard input is closed, and counts what it had to give up.

sender_until_told.py NAMESRV TOPIC FIRST

Runs where a broker is installed and nothing of the tests is. Prints {"sent": 17, "given_up": []}.
"""

from __future__ import annotations

import json
import sys
import threading

from ledgermq.client import ClientError, Message
from ledgermq.client.blocking import Producer

_BETWEEN_S = 0.01


def main() -> None:
    """Its retries are those of every producer."""
    name_server, topic, first = sys.argv[1:]
    told = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), told.set()), daemon=True).start()
    sent, given_up = 0, []
    with Producer(name_server) as producer:
        while not told.wait(_BETWEEN_S):
            try:
                producer.send(Message(topic, f"message-{int(first) + sent}".encode()))
                sent += 1
            except ClientError as error:
                given_up.append(str(error))
    json.dump({"sent": sent, "given_up": given_up}, sys.stdout)


if __name__ == "__main__":
    main()
