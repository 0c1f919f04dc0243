"""Kept: what was loaded stays good for a moment, and those who ask at one time share one load."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, NamedTuple, TypeVar

_T = TypeVar("_T")
# Several of each topic and group: one that takes long to load must not go for those of a list.
_VALUES_MAX: Final = 10_000


class _Value(NamedTuple):
    value: Any
    loaded_s: float


class Kept:
    """Values by key, of one account and one cluster."""

    def __init__(self) -> None:
        self._values: dict[Hashable, _Value] = {}
        self._loading: dict[Hashable, asyncio.Task[Any]] = {}
        # All that load, those among them whose values nobody will keep.
        self._tasks: set[asyncio.Task[Any]] = set()
        # Raised when all is forgotten: what was asked for before is not kept behind it.
        self._generation = 0

    async def get(
        self, key: Hashable, age_max_s: float, load: Callable[[], Awaitable[_T]]
    ) -> tuple[_T, float]:
        """Returns a value and its age in seconds.

        Args:
            key: what it is.
            age_max_s: older ones are loaded anew.
            load: loads it; what it raises is raised to all who wait, and nothing is kept.
        """
        loop = asyncio.get_running_loop()
        found = self._values.get(key)
        if found is not None and loop.time() - found.loaded_s <= age_max_s:
            return found.value, loop.time() - found.loaded_s
        # One who goes away must not end it for the others.
        return await asyncio.shield(self._begin(key, load)), 0.0

    async def get_soon(
        self,
        key: Hashable,
        age_max_s: float,
        old_max_s: float,
        load: Callable[[], Awaitable[_T]],
    ) -> tuple[_T, float]:
        """The same, but one that is only a little too old is returned, and loaded anew meanwhile.

        Args:
            old_max_s: for older ones somebody has to wait.
        """
        age_s = self.age_s(key)
        if age_s is not None and age_max_s < age_s <= old_max_s:
            self._begin(key, load)
            return self._values[key].value, age_s
        return await self.get(key, age_max_s, load)

    def _begin(self, key: Hashable, load: Callable[[], Awaitable[_T]]) -> asyncio.Task[Any]:
        task = self._loading.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._load(key, load, self._generation))
            self._loading[key] = task
            self._tasks.add(task)
            task.add_done_callback(lambda done: self._loaded(key, done))
        return task

    def find(self, key: Hashable) -> Any:
        """Returns a value however old it is; None when there is none."""
        found = self._values.get(key)
        return None if found is None else found.value

    def age_s(self, key: Hashable) -> float | None:
        """Returns the age of a value in seconds; None when there is none."""
        found = self._values.get(key)
        return None if found is None else asyncio.get_running_loop().time() - found.loaded_s

    def drop(self, key: Hashable) -> None:
        """Drops one value, which is loaded anew."""
        self._values.pop(key, None)

    def forget(self) -> None:
        """Drops all values, and those under way: something was changed."""
        self._values.clear()
        self._loading.clear()
        self._generation += 1

    def close(self) -> None:
        """Ends what is being loaded."""
        for task in self._tasks:
            task.cancel()

    async def _load(self, key: Hashable, load: Callable[[], Awaitable[_T]], generation: int) -> _T:
        value = await load()
        if generation != self._generation:
            return value
        while len(self._values) >= _VALUES_MAX:
            del self._values[next(iter(self._values))]
        self._values.pop(key, None)
        self._values[key] = _Value(value, asyncio.get_running_loop().time())
        return value

    def _loaded(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self._loading.get(key) is task:
            del self._loading[key]
        if not task.cancelled():
            # Asked for here, too: those who waited may have gone.
            task.exception()
