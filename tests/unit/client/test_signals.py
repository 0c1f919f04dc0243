"""Signals that ask a program to end: whoever took them before has them again afterwards."""

import asyncio
import signal

from ledgermq.client.signals import ENDING, until_told


def test_handlers_of_the_program_are_back_at_the_end() -> None:
    def own(*_: object) -> None:
        """Takes the signal."""

    async def scenario() -> None:
        inner = signal.getsignal(signal.SIGINT)
        ended = asyncio.Event()
        ended.set()
        await until_told(ENDING, ended.wait())
        # That of asyncio.run: it cancels the program, in place of an error at any place.
        assert signal.getsignal(signal.SIGINT) is inner

    before = signal.signal(signal.SIGTERM, own)
    try:
        asyncio.run(scenario())
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)
