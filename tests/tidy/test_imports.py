"""Who may import whom: the real tree is held to the table, and the table is shown to bite."""

import subprocess
import sys

import pytest

from tests.tidy.import_rules import (
    ROOMS,
    Room,
    check_place,
    check_private_names,
    check_reactor,
    check_rooms,
    find_cycle,
    import_graph,
    imported_names,
    loaded_by,
    needless_grants,
    rooms_out_of_order,
    rooms_without_a_row,
    unused_modules,
)
from tests.tidy.sources import Source, python_sources, require_tidy


def test_rooms_import_only_what_stands_below_them() -> None:
    require_tidy(check_rooms, python_sources("ledgermq"))


def test_imports_stand_at_module_level() -> None:
    require_tidy(check_place, python_sources("ledgermq", "tests", "bench"))


def test_the_reactor_is_given_not_imported() -> None:
    require_tidy(check_reactor, python_sources("ledgermq"))


def test_private_names_stay_in_their_file() -> None:
    require_tidy(check_private_names, python_sources("ledgermq", "bench"))


def test_there_are_no_cycles() -> None:
    assert find_cycle(import_graph(python_sources("ledgermq"))) == []


def test_the_client_never_loads_twisted() -> None:
    """The client lives inside its user's program, which has an event loop of its own."""
    sources = python_sources("ledgermq")
    loaded = loaded_by("ledgermq.client", import_graph(sources))
    assert [
        source.path
        for source in sources
        if source.module in loaded
        and any(name.split(".")[0] == "twisted" for _, name in imported_names(source))
    ] == []


def test_every_module_is_used() -> None:
    assert unused_modules(python_sources("ledgermq", "tests", "bench")) == []


def test_rooms_of_the_broker_stand_on_each_other_in_one_order() -> None:
    assert rooms_out_of_order() == []


def test_rooms_of_the_broker_open_only_what_they_need() -> None:
    assert needless_grants(python_sources("ledgermq")) == []


def test_each_room_of_the_broker_has_its_row() -> None:
    assert rooms_without_a_row(python_sources("ledgermq")) == []


def test_a_room_without_a_row_or_with_a_needless_one_is_found() -> None:
    folder = Source("ledgermq/broker/attic/__init__.py", "")
    assert "broker.attic" in rooms_without_a_row([*python_sources("ledgermq"), folder])
    assert needless_grants([Source("ledgermq/broker/selectors/filters.py", "import json")]) != []


def test_a_row_that_opens_a_later_room_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROOMS, "broker.sends", Room(rooms=frozenset({"broker.waits"})))
    assert rooms_out_of_order() == ["broker.sends must not know broker.waits"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("ledgermq/protocol/framing.py", "import twisted"),
        ("ledgermq/protocol/framing.py", "import socket"),
        ("ledgermq/protocol/framing.py", "from ledgermq.dledger.entry import Entry"),
        ("ledgermq/dledger/raft.py", "import time"),
        ("ledgermq/dledger/raft.py", "import os.path"),
        ("ledgermq/dledger/raft.py", "from asyncio import sleep"),
        ("ledgermq/dledger/raft.py", "import threading"),
        ("ledgermq/dledger/raft.py", "from ledgermq.dledger.store import segment"),
        ("ledgermq/dledger/raft.py", "from ledgermq.protocol.command import RemotingCommand"),
        ("ledgermq/dledger/raft.py", "import random\nrandom.random()"),
        ("ledgermq/dledger/raft.py", "from random import randint"),
        ("ledgermq/dledger/raft.py", "import random\nchance = random.Random(1)"),
        ("ledgermq/dledger/store/segment.py", "from twisted.internet import defer"),
        ("ledgermq/dledger/store/segment.py", "from ..replica import driver"),
        ("ledgermq/commitlog/store.py", "from ledgermq.dledger.replica.driver import Driver"),
        ("ledgermq/commitlog/store.py", "if TYPE_CHECKING:\n    import ledgermq.broker"),
        ("ledgermq/broker/topics.py", "import ledgermq.namesrv.service"),
        ("ledgermq/broker/topics.py", "from ledgermq.dledger import store"),
        ("ledgermq/broker/topics.py", "from ledgermq.broker.sends.send import Done"),
        ("ledgermq/state/errors.py", "from ledgermq.broker.leadership import Leadership"),
        ("ledgermq/broker/dispatch.py", "from ledgermq.broker import service"),
        ("ledgermq/broker/sends/send.py", "from ledgermq.broker.waits import delay"),
        ("ledgermq/broker/selectors/filters.py", "from twisted.internet import defer"),
        ("ledgermq/namesrv/service.py", "from ledgermq.client import Producer"),
        ("ledgermq/namesrv/service.py", 'importlib.import_module("ledgermq.broker")'),
        ("ledgermq/client/producer.py", "from twisted.internet import defer"),
        ("ledgermq/broker/service/upkeep.py", "from ledgermq.cli import main"),
        ("ledgermq/attic/old.py", "import json"),
        ("ledgermq/__init__.py", "import json"),
    ],
)
def test_a_forbidden_import_is_found(path: str, text: str) -> None:
    assert check_rooms(Source(path, text)) != []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("ledgermq/protocol/transport.py", "from twisted.internet import protocol"),
        ("ledgermq/dledger/raft.py", "import random\ndef f(chance: random.Random): ..."),
        ("ledgermq/dledger/raft.py", "from ledgermq.dledger import messages"),
        ("ledgermq/dledger/entry.py", "from ledgermq.protocol.checksum import crc32c"),
        ("ledgermq/dledger/store/keeper.py", "import os\nfrom twisted.internet import threads"),
        ("ledgermq/dledger/replica/driver.py", "from ledgermq.dledger.store import file_store"),
        ("ledgermq/broker/sends/send.py", "from ledgermq.commitlog import store"),
        ("ledgermq/broker/sends/send.py", "from ledgermq.broker import names"),
        ("ledgermq/broker/sends/send.py", "from ledgermq.broker.topics import TopicTable"),
        ("ledgermq/client/producer.py", "import asyncio"),
        ("ledgermq/cli/main.py", "from ledgermq import __version__\nimport ledgermq.broker"),
    ],
)
def test_an_import_of_the_table_passes(path: str, text: str) -> None:
    assert check_rooms(Source(path, text)) == []


@pytest.mark.parametrize(
    "text",
    ["def f():\n    import json", "class C:\n    from os import path", "from os import *"],
)
def test_an_import_in_the_wrong_place_is_found(text: str) -> None:
    assert check_place(Source("ledgermq/cli/main.py", text)) != []


@pytest.mark.parametrize(
    "text",
    ["from twisted.internet import reactor", "from twisted.internet.defer import inlineCallbacks"],
)
def test_the_global_reactor_is_found(text: str) -> None:
    assert check_reactor(Source("ledgermq/broker/service.py", text)) != []


def test_a_private_name_is_found() -> None:
    source = Source("ledgermq/broker/service.py", "from ledgermq.broker.topics import _load")
    assert check_private_names(source) != []


def test_a_cycle_behind_type_checking_is_found() -> None:
    graph = import_graph(
        [
            Source("ledgermq/client/a.py", "from ledgermq.client import b"),
            Source("ledgermq/client/b.py", "if TYPE_CHECKING:\n    from .c import C"),
            Source("ledgermq/client/c.py", "from ledgermq.client.a import A"),
            Source("ledgermq/client/d.py", "from ledgermq.client.a import A"),
        ]
    )
    assert find_cycle(graph) == [f"ledgermq.client.{name}" for name in "abca"]


def test_a_cycle_by_way_of_a_package_is_found() -> None:
    """Whoever imports the one file before the package has loaded it gets half a module."""
    graph = import_graph(
        [
            Source("ledgermq/broker/storage/storage.py", "from ledgermq.broker.service import b"),
            Source("ledgermq/broker/service/__init__.py", "from ledgermq.broker.service import a"),
            Source("ledgermq/broker/service/a.py", "from ledgermq.broker.storage import storage"),
            Source("ledgermq/broker/service/b.py", ""),
        ]
    )
    assert len(find_cycle(graph)) == 4


def test_what_a_package_re_exports_counts_as_loaded() -> None:
    graph = import_graph(
        [
            Source("ledgermq/client/producer.py", "from ledgermq.protocol.codes import X"),
            Source("ledgermq/protocol/__init__.py", "from ledgermq.protocol.transport import Y"),
            Source("ledgermq/protocol/codes.py", ""),
            Source("ledgermq/protocol/transport.py", ""),
            Source("ledgermq/broker/service.py", ""),
        ]
    )
    assert loaded_by("ledgermq.client", graph) == {
        "ledgermq.client.producer",
        "ledgermq.protocol",
        "ledgermq.protocol.codes",
        "ledgermq.protocol.transport",
    }


def test_a_module_that_nobody_imports_is_found() -> None:
    sources = [
        Source("ledgermq/client/a.py", "from ledgermq.client.b import B"),
        Source("ledgermq/client/b.py", "import ledgermq.client.b"),
        Source("ledgermq/client/__init__.py", ""),
        Source("ledgermq/cli/up.py", ""),
        Source("tests/unit/client/test_c.py", "from ledgermq.client import c"),
        Source("ledgermq/client/c.py", ""),
    ]
    assert unused_modules(sources) == ["ledgermq.client.a"]


def test_the_root_loads_no_room() -> None:
    """A program pays for the rooms that it uses: the reader comes when it is asked for."""
    words = "import sys, ledgermq; print(*(name for name in sys.modules if 'ledgermq' in name))"
    shown = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    assert set(shown.stdout.split()) == {"ledgermq", "ledgermq.kernel"}, shown.stderr
    words = "import ledgermq; print(ledgermq.read.__module__)"
    shown = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    assert shown.stdout.strip() == "ledgermq.client.arrow", shown.stderr
