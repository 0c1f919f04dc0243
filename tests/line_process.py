"""A child process that answers lines with lines: a member of a ledger, in Python or in Java."""

import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.waiting import wait_until

_ANSWER_S = 60.0
_ANSWERS = ("counts", "birth ", "state ", "appended ", "left ", "digest ", "stopped")


class MemberStatus(NamedTuple):
    """What `state` answers; -1 where a log is empty."""

    role: str
    leader_id: str
    term: int
    first_index: int
    last_index: int
    commit_index: int


class LineProcess:
    """One child; `heard` gets the lines that answer nothing."""

    def __init__(
        self,
        command: Sequence[str],
        log_path: Path,
        heard: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._log = log_path.open("ab")
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            bufsize=1,
        )
        self._heard = heard
        # None once the child's output has ended.
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_ANSWERS):
                self._answers.put(line.strip())
            else:
                self._heard(line.strip())
        self._answers.put(None)

    def ask(self, command: str) -> str:
        """Sends a command and returns its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            # Said below: there is no answer.
            pass
        answer = self._answers.get(timeout=_ANSWER_S)
        if answer is None:
            self._answers.put(None)
            code = self._process.wait(_ANSWER_S)
            raise AssertionError(f"{self._log.name}: the process ended with code {code}")
        return answer

    def state(self) -> MemberStatus:
        _, role, leader_id, *numbers = self.ask("state").split()
        return MemberStatus(role, leader_id, *map(int, numbers))

    def append(self, count: int, prefix: str) -> int:
        """Appends bodies; returns how many were committed."""
        _, done, _ = self.ask(f"append {count} {prefix}").split()
        return int(done)

    def leave(self, count: int, prefix: str) -> None:
        """Appends bodies without waiting for what becomes of them."""
        self.ask(f"leave {count} {prefix}")

    def digest(self) -> tuple[int, str]:
        """The number of entries it serves, and the SHA-256 of all their bodies."""
        _, count, digest = self.ask("digest").split()
        return int(count), digest

    def kill(self) -> None:
        """Ends it with SIGKILL."""
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """Ends it properly."""
        if self._process.poll() is None:
            self.ask("stop")
            self._process.wait(_ANSWER_S)
        self._end()

    def _end(self) -> None:
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


def wait_for_leader(members: dict[str, LineProcess], deadline_s: float = 60.0) -> str:
    """Waits until all members agree on one of them as their leader, and returns its id."""

    states: dict[str, MemberStatus] = {}

    def find() -> str:
        states.update({member_id: member.state() for member_id, member in members.items()})
        leaders = {state.leader_id for state in states.values()}
        if len(leaders) != 1:
            return ""
        leader_id = leaders.pop()
        return leader_id if leader_id in states and states[leader_id].role == "LEADER" else ""

    try:
        return wait_until(find, what="a leader of all members", deadline_s=deadline_s)
    except AssertionError as error:
        error.add_note("\n".join(f"{member_id}: {state}" for member_id, state in states.items()))
        raise


def wait_until_equal(members: dict[str, LineProcess], deadline_s: float = 60.0) -> int:
    """Waits until all members have committed the same last entry, and returns its index."""

    def find() -> int:
        states = [member.state() for member in members.values()]
        ends = {(state.last_index, state.commit_index) for state in states}
        last_index, commit_index = ends.pop()
        return last_index + 1 if not ends and last_index == commit_index else 0

    return wait_until(find, what="equal members", deadline_s=deadline_s) - 1
