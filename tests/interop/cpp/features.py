"""What the stock C++ client offers beside plain messages: FEATURE NAMESRV TOPIC GROUP.

As go/features: a topic of one queue, JSON lines on standard output, judged by
test_other_features.py. The package's face has no transactions.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any, Final

from rocketmq.client import (  # type: ignore[import-not-found]  # installed for it alone
    Message,
    MessageModel,
    Producer,
    PushConsumer,
    RecvMessage,
)
from rocketmq.ffi import dll  # type: ignore[import-not-found]  # likewise

PATIENCE_S: Final = 60.0
# What comes too much comes soon after the last message that was wanted.
SURPLUS_S: Final = 1.0
EXPECTED: Final = {"tags": 2, "broadcast": 8, "orderly": 4, "retry": 3, "delay": 2, "ways": 3}
# What a callback of the library returns.
DONE: Final = 0
LATER: Final = 1

_never = threading.Event()
_lock = threading.Lock()


def say(**line: object) -> None:
    """Print one report line."""
    with _lock:
        print(json.dumps(line), flush=True)


def sign(client: Any) -> None:
    """Gives the client the account of the environment, if there is one."""
    access_key = os.environ.get("INTEROP_ACCESS_KEY")
    if access_key:
        client.set_session_credentials(access_key, os.environ["INTEROP_SECRET_KEY"], "ALIYUN")


class Site:
    """Where one feature plays."""

    def __init__(self, feature: str, namesrv: str, topic: str, group: str) -> None:
        self.feature = feature
        self.namesrv = namesrv
        self.topic = topic
        self.group = group
        self.heard = 0
        self.consumers: list[Any] = []

    def message(self, body: str) -> Any:
        message = Message(self.topic)
        message.set_body(body)
        return message

    def send(self) -> None:
        """Send the messages of the feature; the producer stays."""
        self.producer = producer = Producer(f"{self.group}_senders")
        producer.set_namesrv_addr(self.namesrv)
        sign(producer)
        producer.start()
        if self.feature == "ways":
            producer.send_batch([self.message("batch-0"), self.message("batch-1")])
            producer.send_oneway(self.message("one-way"))
            return
        bodies = {"tags": ("red", "green", "blue"), "delay": ("level-1", "level-2"),
                  "retry": ("m0",)}  # fmt: skip
        for number, body in enumerate(bodies.get(self.feature, ("m0", "m1", "m2", "m3"))):
            message = self.message(body)
            if self.feature == "tags":
                message.set_tags(body)
            elif self.feature == "delay":
                message.set_delay_time_level(number + 1)
            producer.send_sync(message)

    def consume(self, number: int) -> None:
        """Start a consumer."""
        is_broadcast = self.feature == "broadcast"
        model = MessageModel.BROADCASTING if is_broadcast else MessageModel.CLUSTERING
        consumer = PushConsumer(self.group, orderly=self.feature == "orderly", message_model=model)
        consumer.set_namesrv_addr(self.namesrv)
        sign(consumer)
        consumer.set_instance_name(f"{self.group}{number}")

        def take(_: Any, message: Any) -> int:
            return self._take(number, RecvMessage(message))

        # The package's own subscribe answers a failure by an exception inside of a C callback.
        expression = "red || blue" if self.feature == "tags" else "*"
        dll.Subscribe(consumer._handle, self.topic.encode(), expression.encode())
        consumer._register_callback(take)
        consumer.start()
        self.consumers.append(consumer)

    def _take(self, number: int, message: Any) -> int:
        body, again = message.body.decode(), message.reconsume_times
        waited = int(time.time() * 1000) - message.born_timestamp
        say(event="message", body=body, again=again, consumer=number, waited=waited)
        with _lock:
            self.heard += 1
        return LATER if self.feature == "retry" and again < 2 else DONE


def main() -> None:
    """Play one feature."""
    site = Site(*sys.argv[1:5])
    for number in range(2 if site.feature == "broadcast" else 1):
        site.consume(number)
    site.send()
    end = time.monotonic() + PATIENCE_S
    while site.heard < EXPECTED[site.feature] and time.monotonic() < end:
        _never.wait(0.02)
    _never.wait(SURPLUS_S)
    say(event="done", count=site.heard)
    # The library's threads do not end by themselves.
    os._exit(0)


if __name__ == "__main__":
    main()
