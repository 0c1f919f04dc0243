"""Records `tests/interop/frames/`: real frames of Apache's programs, by taps between them.

Run `python -m tests.interop.record_frames [SET ...]` from the root of the repository. Each set
starts a stock cluster, leads a stock peer through taps, and keeps, for every request code, one
frame of each shape (fields of the head, response code, body or none), requests and responses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.free_ports import free_ports
from tests.processes import LOOPBACK
from tests.waiting import pause

from . import corpus
from .builds import HERE, cpp_program, go_program, java_program, node_program
from .mqadmin import CLUSTER_NAME, mqadmin_command
from .stock_broker import JavaCluster, JavaClusterPlan
from .wire_tap import Frame, WireTap

FRAMES: Final = HERE / "frames"

_FRAME_BYTES_KEPT_MAX: Final = 24_000
_SHAPES_PER_CODE_MAX: Final = 6
_LEDGER_CODES: Final = frozenset({51001, 51002, 51004})
_TOPIC: Final = "TopicFrames"
_ADMIN: Final[tuple[tuple[str, ...], ...]] = (
    ("clusterList",),
    ("clusterList", "-m"),
    ("topicList",),
    ("topicList", "-c"),
    ("topicRoute", "-t", _TOPIC),
    ("topicStatus", "-t", _TOPIC),
    ("topicClusterList", "-t", _TOPIC),
    ("consumerProgress",),
    ("consumerProgress", "-g", "tour_concurrent"),
    ("updateSubGroup", "-c", CLUSTER_NAME, "-g", "admin_group"),
    ("deleteSubGroup", "-c", CLUSTER_NAME, "-g", "admin_group"),
    ("queryMsgByKey", "-t", _TOPIC, "-k", "plain"),
    ("statsAll",),
    ("updateKvConfig", "-s", "space", "-k", "key", "-v", "värde"),
    ("deleteKvConfig", "-s", "space", "-k", "key"),
    ("getNamesrvConfig",),
    ("deleteTopic", "-c", CLUSTER_NAME, "-t", "TopicGone"),
)


class FrameShelf:
    """Keeps one frame of each shape of one set."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._kept: dict[tuple[object, ...], Frame] = {}

    def note(self, frame: Frame) -> None:
        """Keep the frame when it is the first of its shape, small enough and not one too many."""
        shape = (
            frame.request_code, frame.is_response, frame.code if frame.is_response else frame.flag,
            tuple(sorted(frame.ext_fields)), _body_kind(frame),
        )  # fmt: skip
        same_code = [
            one for one in self._kept.values()
            if (one.request_code, one.is_response) == (frame.request_code, frame.is_response)
        ]  # fmt: skip
        is_known = shape in self._kept or len(same_code) >= _SHAPES_PER_CODE_MAX
        if not is_known and len(frame.raw) <= _FRAME_BYTES_KEPT_MAX:
            self._kept[shape] = frame

    def write(self) -> list[dict[str, object]]:
        """Write the frames to files and return their lines for the manifest."""
        directory = FRAMES / self.name
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("*.bin"):
            old.unlink()
        lines: list[dict[str, object]] = []
        numbers: dict[tuple[int, bool], int] = {}
        for frame in sorted(self._kept.values(), key=lambda one: (one.request_code, one.flag)):
            key = (frame.request_code, frame.is_response)
            numbers[key] = numbers.get(key, 0) + 1
            kind = "response" if frame.is_response else "request"
            path = directory / f"{frame.request_code:05d}-{kind}-{numbers[key]}.bin"
            path.write_bytes(frame.raw)
            lines.append(
                {
                    "file": f"{self.name}/{path.name}",
                    "request_code": frame.request_code,
                    "kind": kind,
                    "code": frame.code,
                    "flag": frame.flag,
                    "opaque": frame.opaque,
                    "serialize": frame.serialize,
                    "link": frame.tap,
                    "sender": frame.sender,
                    "bytes": len(frame.raw),
                }
            )
        return lines


def _body_kind(frame: Frame) -> str:
    """Tell bodies apart that are frames of different kinds though their heads are alike."""
    head_size = int.from_bytes(frame.raw[4:8], "big") & 0xFFFFFF
    body = frame.raw[8 + head_size :]
    if not body:
        return "none"
    if frame.request_code not in _LEDGER_CODES:
        return "body"
    fields = json.loads(body)
    return str([fields.get(name) for name in ("type", "batch", "code", "voteResult")])


def _run(command: Sequence[str], seconds: float = 150) -> str:
    done = subprocess.run(
        list(command), capture_output=True, text=True, timeout=seconds, check=False,
        env={**os.environ, "ROCKETMQ_HOME": tempfile.gettempdir()},
    )  # fmt: skip
    print(f"  exit {done.returncode}: {' '.join(command[-8:])[:110]}")
    if done.returncode:
        print(done.stdout[-1500:], done.stderr[-1500:])
    return done.stdout


def _record_clients(
    name: str,
    plan: JavaClusterPlan,
    visit: Callable[[JavaCluster, str], None],
) -> list[dict[str, object]]:
    """Start a plain stock cluster between taps and let `visit` use it through them."""
    shelf = FrameShelf(name)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="frames-")))
        namesrv_tap_port, broker_tap_port, registry_tap_port = free_ports(3)[:]
        cluster = JavaCluster(
            directory,
            JavaClusterPlan(
                version=plan.version,
                jvm_options=plan.jvm_options,
                broker_keys=plan.broker_keys,
                namesrv_for_brokers=f"{LOOPBACK}:{registry_tap_port}",
            ),
        )
        real = f"{LOOPBACK}:{cluster.broker_ports[0]}".encode()
        led = f"{LOOPBACK}:{broker_tap_port}".encode()
        # An offset message id names the broker in hex; viewing a message connects to it.
        real_id, led_id = (
            f"7F000001{port:08X}".encode() for port in (cluster.broker_ports[0], broker_tap_port)
        )
        taps = [
            WireTap("broker-namesrv", cluster.namesrv_port, shelf.note, port=registry_tap_port),
            WireTap(
                "client-namesrv", cluster.namesrv_port, shelf.note,
                port=namesrv_tap_port, rewrite={real: led},
            ),
            WireTap(
                "client-broker", cluster.broker_ports[0], shelf.note,
                port=broker_tap_port, rewrite={real_id: led_id},
            ),
        ]  # fmt: skip
        for tap in taps:
            stack.callback(tap.close)
        stack.enter_context(cluster)
        visit(cluster, f"{LOOPBACK}:{namesrv_tap_port}")
    return shelf.write()


def _make_topics(namesrv: str) -> None:
    for topic in (_TOPIC, "TopicGone"):
        _run(
            mqadmin_command(
                "updateTopic", "-n", namesrv, "-c", CLUSTER_NAME, "-t", topic, "-r", "4", "-w", "4"
            )
        )


def _tour(version: str, *options: str, admin: bool = True) -> Callable[[JavaCluster, str], None]:
    """Return a visit by FrameTour of that release, and by the cluster's mqadmin after it."""

    def visit(cluster: JavaCluster, namesrv: str) -> None:
        _make_topics(namesrv)
        program = java_program(version, "FrameTour")
        _run([program[0], *options, *program[1:], namesrv, _TOPIC, "tour_"])
        for arguments in _ADMIN if admin else ():
            _run(mqadmin_command(arguments[0], "-n", namesrv, *arguments[1:], options=options))

    return visit


def _other_client(name: str, build: Callable[[], list[str]]) -> Callable[[JavaCluster, str], None]:
    """Return a visit by one of the programs for other languages with a small corpus."""

    def visit(cluster: JavaCluster, namesrv: str) -> None:
        _make_topics(namesrv)
        path = cluster.directory / "corpus"
        with path.open("wb") as file:
            drafts = [draft for draft in corpus.draw(name, 120, 1) if len(draft.body) < 12_000]
            file.writelines(corpus.frame(draft) for draft in drafts)
        link = ("--namesrv", namesrv, "--topic", _TOPIC)
        _run([*build(), "send", *link, "--group", f"{name}_sender", "--corpus", str(path)])
        for mode in ((), ("--orderly", "1")):
            group = f"{name}_receiver{len(mode)}"
            _run([*build(), "consume", *link, "--group", group, "--idle", "12", *mode])

    return visit


def _record_dledger(name: str, plan: JavaClusterPlan) -> list[dict[str, object]]:
    """Start a DLedger group whose members reach each other through taps."""
    shelf = FrameShelf(name)
    members = range(plan.dledger_members)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="frames-")))
        tap_ports = free_ports(len(members))
        cluster = JavaCluster(
            directory,
            JavaClusterPlan(
                version=plan.version,
                dledger_members=plan.dledger_members,
                broker_keys=plan.broker_keys,
                jvm_options=plan.jvm_options,
                peer_ports={(i, j): tap_ports[j] for i in members for j in members if i != j},
            ),
        )
        for member in members:
            tap = WireTap(
                f"member-n{member}",
                cluster.dledger_ports[member],
                shelf.note,
                port=tap_ports[member],
            )
            stack.callback(tap.close)
        stack.enter_context(cluster)
        program = java_program("4.9.3", "FrameTour")
        pause(8)
        _make_topics(cluster.namesrv)
        _run([*program, cluster.namesrv, _TOPIC, "tour_"])
    return shelf.write()


_BINARY: Final = "-Drocketmq.serialize.type=ROCKETMQ"
_CODE_10: Final = "-Dorg.apache.rocketmq.client.sendSmartMsg=false"
_SETS: Final[dict[str, Callable[[str], list[dict[str, object]]]]] = {
    "java-4.9.3-json": lambda name: _record_clients(name, JavaClusterPlan(), _tour("4.9.3")),
    "java-4.9.3-binary": lambda name: _record_clients(
        name, JavaClusterPlan(jvm_options=(_BINARY,)), _tour("4.9.3", _BINARY, _CODE_10)
    ),
    "java-4.9.3-code-10": lambda name: _record_clients(
        name, JavaClusterPlan(), _tour("4.9.3", _CODE_10, admin=False)
    ),
    "go": lambda name: _record_clients(name, JavaClusterPlan(), _other_client(name, go_program)),
    "cpp": lambda name: _record_clients(name, JavaClusterPlan(), _other_client(name, cpp_program)),
    "node": lambda name: _record_clients(
        name, JavaClusterPlan(), _other_client(name, node_program)
    ),
    "java-5.3.3-json": lambda name: _record_clients(
        name, JavaClusterPlan(), _tour("5.3.3", admin=False)
    ),
    "dledger-0.2.3": lambda name: _record_dledger(name, JavaClusterPlan(dledger_members=3)),
    "dledger-0.3.1.2": lambda name: _record_dledger(
        name, JavaClusterPlan(version="4.9.7", dledger_members=3)
    ),
    "dledger-0.3.1.2-batch": lambda name: _record_dledger(
        name,
        JavaClusterPlan(
            version="4.9.7", dledger_members=3, broker_keys={"enableBatchPush": "true"}
        ),
    ),
}


def main(names: Sequence[str]) -> None:
    """Record the named sets, all by default, and bring the manifest up to date."""
    path = FRAMES / "manifest.json"
    manifest: list[dict[str, object]] = json.loads(path.read_text()) if path.exists() else []
    for name in names or list(_SETS):
        print(f"recording {name}")
        lines = _SETS[name](name)
        manifest = [line for line in manifest if not str(line["file"]).startswith(f"{name}/")]
        manifest += lines
        print(f"  {len(lines)} frames")
        manifest.sort(key=lambda line: str(line["file"]))
        path.write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
