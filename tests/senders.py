"""Senders that go on until they are stopped; each asks one member after the other."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Self

from tests.waiting import wait_until


class Senders:
    """Threads with one message on its way each; a subclass says how it is sent."""

    def __init__(
        self, addresses: Sequence[str], count: int, *, answer_s: float, retry_s: float
    ) -> None:
        """Begins to send; a subclass has all that its threads need before.

        Args:
            addresses: of the members.
            count: of senders.
            answer_s: longest wait of `send_to` for an answer.
            retry_s: pause after a member that did not take a message.
        """
        self._addresses = addresses
        self._answer_s = answer_s
        self._retry_s = retry_s
        self.is_over = threading.Event()
        self.failures: list[str] = []
        self._threads = [
            threading.Thread(target=self._send_all, args=(number,), daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def send_to(self, address: str, sender: int) -> None:
        """Sends to one member until it refuses, or `is_over`; OSError says that it is gone."""
        raise NotImplementedError

    @property
    def taken_count(self) -> int:
        """Messages that were taken so far."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Sends no more."""
        self.is_over.set()
        for thread in self._threads:
            thread.join(4 * self._answer_s)

    def wait_for_more(self, count: int, deadline_s: float = 60.0) -> None:
        """Waits until so many more messages are taken."""
        wanted = self.taken_count + count
        wait_until(
            lambda: self.taken_count >= wanted or self.failures,
            what=f"{count} more acknowledged messages",
            deadline_s=deadline_s,
        )
        assert not self.failures, self.failures

    def _send_all(self, sender: int) -> None:
        for address in itertools.cycle(self._addresses):
            try:
                self.send_to(address, sender)
            except OSError:
                # Nobody there, or gone, or silent; the next member may lead.
                pass
            except Exception as error:
                self.failures.append(repr(error))
                return
            if self.is_over.wait(self._retry_s):
                return
