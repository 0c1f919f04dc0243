"""The built image, started: the group of the compose file, and what the image does alone.

python -m tests.fault.started_image [ARCHIVE]      as root, on Linux; half a minute

ARCHIVE is what `make image` makes, by default made of the sources as they are now. Its files are
unpacked, and each service runs from them with what the compose file says, in namespaces of its own
(container.py). All that is asked is asked by the image's own program. Prints a line for each answer
that was as it should be. Exit code 1 with the first that was not; 0 with `left out` and the reason
where no container can be.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from tests.fault.built_image import NotBuiltError, built_image
from tests.fault.container import Container, Image, Network, NoContainerError, check_tools
from tests.waiting import wait_until

_ROOT: Final = Path(__file__).parents[2]
COMPOSE: Final = _ROOT / "packaging" / "compose" / "compose.yaml"
MIB_MAX: Final = 120
_WHOLE_S: Final = 120.0
# What Docker gives who says nothing.
_GRACE_S: Final = 10.0
_NAMESRV: Final = "127.0.0.1:9876"
_TOPIC: Final = "Shipped"
_WRITES: Final = "open('/opt/ledgermq/new', 'w')"


def say(text: str) -> None:
    """A line for whoever watches."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Trial:
    """The group of the compose file, and what is asked of it."""

    def __init__(self, image: Image, network: Network, folder: Path) -> None:
        """Nothing runs yet."""
        self._image, self._network, self._folder = image, network, folder
        self._services: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
        self._running: dict[str, Container] = {}
        self._sent_count = 0
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def _members(self) -> list[str]:
        return [name for name in self._services if name != "namesrv"]

    def _start(self, name: str) -> None:
        service = self._services[name]
        assert service["read_only"] and service["volumes"] == [f"{name}:/data"], service
        self._running[name] = self._open.enter_context(
            Container(
                self._image,
                self._network,
                self._folder / name,
                command=service["command"],
                variables=service.get("environment"),
            )
        )

    def _is_healthy(self, name: str) -> bool:
        _, *words = self._services[name]["healthcheck"]["test"]
        return self._running[name].run(*words, check=False).returncode == 0

    def _whole(self) -> None:
        for name in self._running:
            wait_until(
                lambda name=name: self._is_healthy(name),
                what=f"health of {name}",
                deadline_s=_WHOLE_S,
                detail=lambda name=name: self._running[name].said[-2000:],
            )

    def _leader(self) -> str:
        def found() -> str:
            for name in self._members:
                *_, role = re.findall(r"^([A-Z]+) at .*, (?:serves|does)", self._said(name), re.M)
                if role == "LEADER":
                    return name
            return ""

        return wait_until(found, what="a leader")

    def _grace_s(self, name: str) -> float:
        return float(self._services[name]["stop_grace_period"].removesuffix("s"))

    def _said(self, name: str) -> str:
        return self._running[name].said

    def _send(self) -> None:
        texts = [f"message-{self._sent_count + count}" for count in range(1, 6)]
        self._running["n0"].run("ledgermq", "send", "-n", _NAMESRV, "-t", _TOPIC, *texts)
        self._sent_count += len(texts)

    def _read(self) -> int:
        """How many messages a new group finds."""
        words = ("-t", _TOPIC, "-g", f"Readers{self._sent_count}", "--until-idle", "3")
        done = self._running["n0"].run("ledgermq", "consume", "-n", _NAMESRV, *words)
        return len({int(number) for number in re.findall(r"message-(\d+)", done.stdout)})

    def described(self) -> str:
        """What the archive says of itself."""
        config, user = self._image.config, self._image.user
        assert min(user) > 0 and config["StopSignal"] == "SIGTERM", config
        said = subprocess.run(["du", "-sm", self._image.root], capture_output=True, text=True)
        size = int(said.stdout.split()[0])
        assert size < MIB_MAX, size
        return f"{size} MiB unpacked, user {user[0]}, {' '.join(config['Entrypoint'])}"

    def started(self) -> str:
        """All services of the compose file; each well by its own health check."""
        for name in self._services:
            self._start(name)
        self._whole()
        return f"{len(self._services)} services are well by their health checks"

    def closed(self) -> str:
        """Who they are, what they may do, where they can write."""
        user, _ = self._image.user
        for name, container in self._running.items():
            status = Path(f"/proc/{container.first}/status").read_text()
            assert re.search(rf"^Uid:\t{user}\t{user}\t", status, re.M), (name, status)
            assert re.search(r"^CapEff:\t0+$", status, re.M), (name, status)
            assert "NoNewPrivs:\t1\n" in status, (name, status)
            done = container.run("python3", "-c", _WRITES, check=False)
            assert "Read-only file system" in done.stderr, (name, done.stderr)
            assert "\npython" not in done.stdout
        return f"user {user}, no capability, none to gain, a root that nobody writes to"

    def sent(self) -> str:
        """Messages there and back."""
        self._send()
        found = self._read()
        assert found == self._sent_count, (found, self._sent_count)
        return f"{found} messages sent and consumed by the image's own program"

    def told(self) -> str:
        """Settings of the environment are in force, and say where they come from."""
        done = self._running["n1"].run(
            "ledgermq", "broker", "-p", "dLegerSelfId=n1", "listenPort=10921"
        )
        lines = done.stdout.splitlines()
        (own,) = [line for line in lines if line.startswith("brokerClusterName")]
        assert "compose" in own and "environment" in done.stdout, done.stdout
        return "settings come from the environment"

    def stopped(self) -> str:
        """SIGTERM ends the leader within the time that it has, and another one leads."""
        leader = self._leader()
        begun_s = time.monotonic()
        code = self._running[leader].stop(self._grace_s(leader))
        took_s = time.monotonic() - begun_s
        assert code == 0, (code, self._said(leader)[-2000:])
        del self._running[leader]
        return f"{leader} ended in {took_s:.1f} s; {self._again(leader)}"

    def _again(self, name: str) -> str:
        other = next(iter(one for one in self._members if one in self._running))
        texts = [f"message-{self._sent_count + count}" for count in range(1, 6)]
        self._running[other].run("ledgermq", "send", "-n", _NAMESRV, "-t", _TOPIC, *texts)
        self._sent_count += len(texts)
        self._start(name)
        self._whole()
        found = self._read()
        assert found == self._sent_count, (found, self._sent_count)
        return f"all {found} messages are there, also those sent meanwhile"

    def ended(self) -> str:
        """All of them, by SIGTERM."""
        for name, container in self._running.items():
            code = container.stop(self._grace_s(name))
            assert code == 0, (name, code, container.said[-2000:])
        self._running.clear()
        return "all services end by SIGTERM with 0"

    def alone(self) -> str:
        """Without words it is a development cluster."""
        with Container(self._image, self._network, self._folder / "alone") as container:
            wait_until(
                lambda: re.search("^ready", container.said, re.M),
                what="the image alone",
                detail=lambda: container.said[-2000:],
            )
            container.run("ledgermq", "send", "-n", _NAMESRV, "-t", _TOPIC, "alone")
            code = container.stop(_GRACE_S)
            assert code == 0, (code, container.said[-2000:])
        return "ready, takes a message, ends by SIGTERM with 0"


def tried(trial: Trial) -> None:
    """Asks all, in order."""
    asked: tuple[Callable[[], str], ...] = (
        trial.described, trial.started, trial.closed, trial.sent, trial.told, trial.stopped,
        trial.ended, trial.alone,
    )  # fmt: skip
    for ask in asked:
        say(f"{ask.__name__:<12} {ask()}")


def main() -> int:
    """Unpacks it, and tries."""
    with contextlib.ExitStack() as open_things:
        try:
            check_tools()
            archive = Path(sys.argv[1]) if len(sys.argv) > 1 else built_image() / "ledgermq.tar.gz"
            name = open_things.enter_context(tempfile.TemporaryDirectory(prefix="ledgermq-image-"))
            network = open_things.enter_context(Network())
        except (NoContainerError, NotBuiltError) as error:
            say(f"left out: {error}")
            return 0
        try:
            image = Image(archive, Path(name))
            tried(open_things.enter_context(Trial(image, network, Path(name))))
        except AssertionError as error:
            say(f"failed: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
