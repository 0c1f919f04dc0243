"""Frames that are almost right against all ports: a short form of `make fuzz`, with fixed seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import decode, encode
from tests.attack import frames
from tests.attack.mutations import mutated
from tests.e2e.wire_client import WireClient
from tests.processes import broker

CASES = 1000
# A broker takes 100 new connections a second from one address.
LOOPBACK_CASES = 80


@pytest.mark.parametrize("access", ["open", "closed"])
@pytest.mark.parametrize("form", ["sources", "as installed"])
@pytest.mark.parametrize("port", frames.PORTS)
def test_nothing_almost_right_breaks_a_port(port: str, form: str, access: str) -> None:
    """Closed ones are given frames that were signed before they were changed, or afterwards."""
    environment = {**os.environ}
    if form == "sources":
        environment["LEDGERMQ_PURE"] = "1"
    elif environment.get("LEDGERMQ_PURE"):
        pytest.skip("LEDGERMQ_PURE is set: the compiled form is not to be run")
    words = [sys.executable, "-m", "tests.attack.fuzz", "--ports", port, "--cases", str(CASES)]
    done = subprocess.run(
        [*words, *(["--closed"] if access == "closed" else [])],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


@pytest.mark.parametrize("port", ["broker", "namesrv"])
def test_corpus_is_of_valid_frames(port: str) -> None:
    for name, data in frames.read(port).items():
        command = decode(data[4:])
        assert len(data) == int.from_bytes(data[:4], "big") + 4, name
        assert encode(command) == data, name


def test_broker_on_a_real_port_goes_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    corpus, rng = list(frames.read("broker").values()), Random(5)
    with broker(tmp_path_factory.mktemp("broker"), "flushDiskType=ASYNC_FLUSH") as running:
        address = running.wait_until_serving().address
        for _ in range(LOOPBACK_CASES):
            with WireClient(address) as client:
                client.write(mutated(rng, corpus))
        with WireClient(address) as client:
            assert client.ask(RequestCode.GET_BROKER_RUNTIME_INFO.value).code == 0
        assert "Traceback" not in running.log_text()
