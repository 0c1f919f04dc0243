"""A closed broker for a file of attacks, and two of its clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attack.closed_broker import closed_broker
from tests.e2e.wire_client import WireClient
from tests.processes import LiveProgram


@pytest.fixture(scope="module")
def program(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveProgram]:
    """The broker, with what the file has as SETTINGS."""
    settings = getattr(request.module, "SETTINGS", ())
    with closed_broker(tmp_path_factory.mktemp("broker"), *settings) as running:
        yield running.wait_until_serving()


@pytest.fixture
def shop(program: LiveProgram) -> Iterator[WireClient]:
    """A connection; tests have the account of an honest application use it."""
    with WireClient(program.address, timeout_s=30.0) as client:
        yield client


@pytest.fixture
def thief(program: LiveProgram) -> Iterator[WireClient]:
    """A connection; tests have the account of an attacker use it."""
    with WireClient(program.address, timeout_s=30.0) as client:
        yield client
