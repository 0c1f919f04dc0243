"""The blocking classes have what the asyncio ones have, and each of their calls has an end."""

import asyncio
import inspect
import threading
from collections.abc import Callable

import pytest

from ledgermq import client
from ledgermq.client import ClientError, ClosedError, blocking
from ledgermq.client.blocking.twin import Twin

# What the event loop needs has another name without it.
NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}
OWN = {"__init__", *NAMES}


@pytest.mark.parametrize("name", blocking.__all__)
def test_each_method_has_a_twin_with_the_same_arguments(name: str) -> None:
    twin = getattr(blocking, name)
    for method, value in vars(getattr(client, name)).items():
        if method.startswith("_") and method not in OWN:
            continue
        found = getattr(twin, NAMES.get(method, method), None)
        assert found is not None, f"{name}.{method}"
        if inspect.isfunction(value):
            parameters = inspect.signature(value).parameters.values()
            own = inspect.signature(found).parameters.values()
            assert [(one.name, one.default, one.kind) for one in own] == [
                (one.name, one.default, one.kind) for one in parameters
            ], f"{name}.{method}"


# So long may a thread take that has nothing to wait for.
_PATIENCE_S = 60.0


class Face:
    """An asyncio client that does nothing, or waits for ever."""

    def __init__(self) -> None:
        self.waits = threading.Event()

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *error: object) -> None: ...

    async def close(self) -> None: ...

    async def wait(self) -> None:
        self.waits.set()
        await asyncio.Event().wait()

    async def answer(self) -> int:
        return 7


class Blocking(Twin[Face]):
    def __init__(self) -> None:
        super().__init__(Face())

    def wait(self) -> None:
        self._call(self._twin.wait())

    def answer(self) -> int:
        return self._call(self._twin.answer())

    def call_inside(self, function: Callable[[], object]) -> None:
        """Calls a function in the thread of the loop."""

        async def inside() -> None:
            function()

        self._call(inside())


def failure_of(function: Callable[[], object]) -> BaseException | None:
    try:
        function()
    except BaseException as error:
        return error
    return None


class Caller(threading.Thread):
    """Calls a function again and again in a thread, until it fails."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self.failure: BaseException | None = None

    def run(self) -> None:
        while self.failure is None:
            self.failure = failure_of(self._function)

    def ended(self) -> BaseException | None:
        self.join(_PATIENCE_S)
        assert not self.is_alive(), "the call has no end"
        return self.failure


def test_call_that_waits_when_the_client_is_closed_has_an_end() -> None:
    with Blocking() as twin:
        caller = Caller(twin.wait)
        caller.start()
        assert twin._twin.waits.wait(_PATIENCE_S)
        twin.close()
        failure = caller.ended()
        assert isinstance(failure, ClosedError) and "closed meanwhile" in str(failure)


def test_calls_that_meet_the_end_are_answered_or_refused() -> None:
    for _ in range(50):
        with Blocking() as twin:
            callers = [Caller(twin.answer) for _ in range(4)]
            for caller in callers:
                caller.start()
            closers = [Caller(lambda: (twin.close(), 1 / 0)) for _ in range(2)]
            for closer in closers:
                closer.start()
            assert {type(caller.ended()) for caller in callers} == {ClosedError}
            assert {type(closer.ended()) for closer in closers} == {ZeroDivisionError}


def test_call_in_the_clients_own_thread_is_refused_and_does_not_wait_for_itself() -> None:
    with Blocking() as twin:
        with pytest.raises(ClientError, match="own thread"):
            twin.call_inside(twin.answer)
        with pytest.raises(ClientError, match="own thread"):
            twin.call_inside(twin.close)
        assert twin.answer() == 7
