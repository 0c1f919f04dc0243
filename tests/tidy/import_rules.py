"""Who may import whom: the table, and the checks that compare a file with it."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.tidy.sources import Source

PACKAGE = "ledgermq"

# Threads are the business of the keeper, whose one has a file of its own, of its twin in the
# simulation, and of a client's blocking listener.
_THREADS = frozenset({"threading", "multiprocessing", "concurrent", "_thread"})
_EVENT_LOOPS = frozenset({"asyncio", "selectors"})
_NETWORK = frozenset({"socket", "socketserver", "ssl"}) | _EVENT_LOOPS
_CODECS = frozenset({"construct", "crc32c", "crcmod", "lz4", "msgspec", "zstandard"})
_TWISTED = frozenset({"twisted", "zope"})


@dataclass(frozen=True, kw_only=True)
class Room:
    """What the files of one room may import.

    `rooms` are prefixes of modules of ours, `packages` are top-level names of third parties, and
    `banned` are modules of the standard library that the room must not see.
    """

    rooms: frozenset[str]
    packages: frozenset[str] = frozenset()
    banned: frozenset[str] = _THREADS | _NETWORK


# What stands between the replicated state and the rooms: its copies, its records, answers.
BROKER_STATE: frozenset[str] = frozenset(
    f"broker.{name}"
    for name in (
        "committed_answers",
        "own_messages",
        "state_copy",
    )
)

# The rooms of the broker from the ground up: each knows only what stands before it.
BROKER_ORDER: tuple[frozenset[str], ...] = (
    frozenset({"broker"}),
    frozenset({"broker.config", "broker.selectors", "broker.records"}),
    frozenset({"broker.access"}),
    frozenset({"broker.audit"}),
    BROKER_STATE,
    frozenset({"broker.counts", "broker.clocks"}),
    frozenset({"broker.clients", "broker.sends"}),
    frozenset({"broker.offsets", "broker.waits", "broker.pulls"}),
    frozenset({"broker.registration", "broker.storage", "broker.admin"}),
    frozenset({"broker.ha", "broker.watching"}),
    frozenset({"broker.telemetry"}),
    frozenset({"broker.service"}),
)

# The longest prefix of a module's name decides. Read it from the ground up.
ROOMS: dict[str, Room] = {
    # Chooses between two forms of some modules; loaded before any room.
    "kernel": Room(rooms=frozenset()),
    "protocol": Room(rooms=frozenset({"protocol"}), packages=_CODECS),
    "protocol.tls": Room(
        rooms=frozenset({"protocol"}), banned=_THREADS | _EVENT_LOOPS | {"socket", "socketserver"}
    ),
    # Sets options of sockets that others have opened.
    "protocol.tcp_times": Room(rooms=frozenset(), banned=_THREADS | _EVENT_LOOPS | {"ssl"}),
    "protocol.transport": Room(rooms=frozenset({"protocol"}), packages=_TWISTED),
    # The log of a program; whoever changes its levels, and programs, know it.
    "logs": Room(rooms=frozenset({"logs", "protocol.plain_text"}), packages=_TWISTED),
    # Every thread logs; a lock is all that it knows of them.
    "logs.repeats": Room(rooms=frozenset({"logs"}), packages=_TWISTED, banned=_NETWORK),
    # Shared by those who have accounts, the broker and the name server.
    "audit": Room(rooms=frozenset({"audit", "protocol.networks"}), packages=_TWISTED),
    "access": Room(rooms=frozenset({"access"}), packages=frozenset({"yaml"})),
    # One HTTP port for whoever has views; it knows neither brokers nor consoles.
    "http": Room(rooms=frozenset({"http"}), packages=_TWISTED | {"msgspec"}),
    "http.port": Room(rooms=frozenset({"http", "protocol"}), packages=_TWISTED),
    "measures": Room(rooms=frozenset({"measures"})),
    # The pure core. Of the protocol it sees checksums alone: functions over buffers.
    "dledger": Room(
        rooms=frozenset({"dledger", "protocol.checksum", "measures"}),
        banned=_THREADS | _NETWORK | {"time", "datetime", "os", "io", "pathlib", "mmap"},
    ),
    "dledger.store": Room(
        rooms=frozenset({"dledger", "dledger.store", "protocol.checksum", "measures"})
    ),
    "dledger.store.keeper": Room(
        rooms=frozenset({"dledger", "dledger.store", "measures"}), packages=_TWISTED
    ),
    "dledger.store.disk_thread": Room(rooms=frozenset(), packages=_TWISTED, banned=_NETWORK),
    "dledger.replica": Room(
        rooms=frozenset({"dledger", "dledger.store", "dledger.replica", "protocol"}),
        packages=_TWISTED | {"msgspec"},
    ),
    "commitlog": Room(rooms=frozenset({"commitlog", "dledger", "dledger.store", "protocol"})),
    # Of the kernel; they name C's pointers for the type checker. It is not there at run time.
    "commitlog.consume_queue": Room(
        rooms=frozenset({"commitlog", "dledger.store"}), packages=frozenset({"cython"})
    ),
    "commitlog.index_loops": Room(
        rooms=frozenset({"commitlog", "protocol"}), packages=frozenset({"cython"})
    ),
    # One replicated machine; pure, but for a line in the log when it is refused.
    "state": Room(rooms=frozenset({"state", "commitlog", "dledger", "protocol"})),
    "state.refusals": Room(rooms=frozenset({"state"}), packages=_TWISTED),
    # The floor of the broker's rooms: codes of errors, who leads.
    "broker": Room(
        rooms=frozenset({"broker", "measures", "state", "protocol"}),
        packages=_TWISTED,
    ),
    "broker.config": Room(
        rooms=frozenset({"state", "broker.config", "commitlog", "dledger", "protocol"}),
        banned=_THREADS | _EVENT_LOOPS | {"ssl", "socketserver"},
    ),
    "broker.selectors": Room(rooms=frozenset({"state", "broker.selectors", "protocol"})),
    "broker.records": Room(rooms=frozenset({"state", "broker.records", "commitlog", "protocol"})),
    "broker.access": Room(
        rooms=frozenset({"state", "broker", "broker.config", "broker.records", "broker.access"})
        | {"access", "dledger", "protocol"},
        packages=_TWISTED | {"cryptography"},
    ),
    "broker.audit": Room(
        rooms=frozenset({"state", "broker", "broker.config", "broker.access", "broker.audit"})
        | {"audit", "dledger.store.disk_thread", "protocol"},
        packages=_TWISTED,
    ),
    **dict.fromkeys(
        BROKER_STATE,
        Room(
            rooms=BROKER_STATE
            | {
                "state",
                "broker",
                "commitlog",
                "protocol",
            },
            packages=_TWISTED,
        ),
    ),
    "broker.counts": Room(rooms=frozenset({"broker", "broker.counts", "measures", "protocol"})),
    "broker.clocks": Room(
        rooms=frozenset({"broker.clocks", "broker", "dledger", "dledger.replica"}),
        packages=_TWISTED,
    ),
    "broker.clients": Room(
        rooms=BROKER_STATE
        | {"state", "broker", "broker.config", "broker.selectors", "broker.records"}
        | {"broker.clients", "protocol"},
        packages=_TWISTED,
    ),
    "broker.sends": Room(
        rooms=BROKER_STATE
        | {"state", "broker", "broker.config", "broker.records", "broker.counts", "broker.sends"}
        | {"commitlog", "dledger", "measures", "protocol"},
        packages=_TWISTED,
    ),
    "broker.offsets": Room(
        rooms=BROKER_STATE
        | {"state", "broker", "broker.config", "broker.selectors", "broker.clients"}
        | {"broker.offsets", "commitlog", "protocol"},
        packages=_TWISTED,
    ),
    "broker.waits": Room(
        rooms=BROKER_STATE
        | {"state", "broker", "broker.config", "broker.records", "broker.counts", "broker.clients"}
        | {"broker.sends", "broker.waits", "commitlog", "measures", "protocol"},
        packages=_TWISTED,
    ),
    "broker.pulls": Room(
        rooms=BROKER_STATE
        | {
            "state",
            "broker",
            "broker.config",
            "broker.selectors",
            "broker.counts",
            "broker.clients",
        }
        | {"broker.sends", "broker.pulls", "commitlog", "protocol"}
        # Old messages are read in a thread.
        | {"dledger", "dledger.store"},
        packages=_TWISTED | {"msgspec"},
    ),
    "broker.registration": Room(
        rooms=BROKER_STATE
        | {"state", "broker", "broker.config", "broker.registration", "protocol"},
        packages=_TWISTED,
    ),
    "broker.ha": Room(
        rooms=BROKER_STATE
        | {"state", "broker", "broker.config", "broker.sends", "broker.offsets"}
        | {"broker.registration", "broker.storage", "broker.ha"}
        | {"commitlog", "dledger", "dledger.store", "dledger.replica", "protocol"},
        packages=_TWISTED,
    ),
    "broker.storage": Room(
        rooms=BROKER_STATE
        | {
            "state",
            "broker",
            "broker.config",
            "broker.sends",
            "broker.storage",
            "commitlog",
            "dledger",
            "dledger.store",
        }
        | {"protocol"},
        packages=_TWISTED,
    ),
    "broker.admin": Room(
        rooms=BROKER_STATE
        | {
            "state",
            "broker",
            "broker.config",
            "broker.selectors",
            "broker.records",
            "broker.counts",
        }
        | {"broker.clients", "broker.sends", "broker.waits", "broker.pulls", "broker.admin"}
        | {"commitlog", "logs", "protocol"},
        packages=_TWISTED | {"msgspec"},
    ),
    # What is told to probes and to Prometheus: pure, but for what views are made of.
    "broker.watching": Room(rooms=frozenset({"broker.watching", "http", "measures"})),
    # What a collector of OpenTelemetry gets: needs the extra ledgermq[otel].
    "broker.telemetry": Room(
        rooms=frozenset({"broker.telemetry", "broker.watching", "commitlog", "measures"})
        | {"protocol"},
        packages=_TWISTED | {"opentelemetry", "requests", "urllib3"},
    ),
    # The one room that knows all parts: it builds, binds, starts and stops them.
    "broker.service": Room(
        rooms=BROKER_STATE
        | {"state", "broker", "broker.config", "broker.records", "broker.access", "broker.counts"}
        | {
            "broker.audit",
            "broker.clocks",
            "broker.clients",
            "broker.sends",
            "broker.offsets",
            "broker.waits",
        }
        | {"broker.pulls", "broker.registration", "broker.ha", "broker.storage", "broker.admin"}
        | {"broker.watching", "broker.telemetry", "http", "measures"}
        | {"broker.service", "commitlog", "dledger", "dledger.store", "dledger.replica"}
        | {"protocol", "kernel"},
        packages=_TWISTED | {"cryptography"},
        banned=_THREADS | _EVENT_LOOPS | {"ssl", "socketserver"},
    ),
    "namesrv": Room(
        rooms=frozenset({"namesrv", "access", "audit", "protocol"}),
        packages=_TWISTED | {"msgspec"},
        banned=_THREADS | _EVENT_LOOPS,
    ),
    "client": Room(rooms=frozenset({"client", "protocol"}), banned=frozenset({"multiprocessing"})),
    # A program that asks brokers as any tool does; it serves pages and programs over HTTP.
    "console": Room(
        rooms=frozenset({"console", "audit", "client", "http", "protocol"}),
        packages=_TWISTED | {"msgspec"},
        banned=_THREADS | {"socket", "socketserver", "ssl", "selectors"},
    ),
    # Its shapes are values alone.
    "console.shapes": Room(rooms=frozenset({"console.shapes"}), packages=frozenset({"msgspec"})),
    # The one file of the client that needs the extra ledgermq[otel].
    "client.otel": Room(
        rooms=frozenset({"client", "protocol"}), packages=frozenset({"opentelemetry"})
    ),
    # A topic as a table: the one that needs the extra ledgermq[arrow].
    "client.arrow": Room(
        rooms=frozenset({"client", "protocol"}),
        packages=frozenset({"pyarrow"}),
        banned=_NETWORK | {"multiprocessing"},
    ),
    # A transport for kombu, an extra.
    "celery": Room(
        rooms=frozenset({"celery", "client", "protocol"}),
        packages=frozenset({"kombu", "amqp"}),
        banned=frozenset({"multiprocessing"}),
    ),
    # An application for Django, an extra.
    "django": Room(
        rooms=frozenset({"django", "client"}),
        packages=frozenset({"django"}),
        banned=frozenset({"multiprocessing"}),
    ),
    "spark": Room(
        rooms=frozenset({"spark", "client", "commitlog", "dledger", "dledger.store", "protocol"}),
        packages=frozenset(
            "pyspark pyarrow numpy yaml msgspec fastavro google deltalake pyiceberg"
            " sqlalchemy".split()
        ),
        banned=frozenset(),
    ),
    "testing": Room(
        rooms=BROKER_STATE
        | {"state", "broker", "broker.config", "broker.service"}
        | {"testing", "namesrv", "client", "protocol"},
        packages=_TWISTED | {"pytest"},
        banned=frozenset(),
    ),
    # Loaded by every run of pytest: it may load nothing but what pytest has loaded already.
    "pytest_plugin": Room(rooms=frozenset({"testing"}), packages=frozenset({"pytest"})),
    # A whole group in one process, on a clock, a network and disks of its own.
    "testing.simulation": Room(
        rooms=BROKER_STATE
        | {"state", "broker", "broker.offsets", "broker.sends", "broker.service", "broker.storage"}
        | {"broker.waits", "broker.clocks"}
        | {"testing.simulation", "commitlog", "dledger", "protocol"}
        | {"dledger.store", "dledger.replica"},
        packages=_TWISTED,
    ),
    "testing.simulation.thread": Room(
        rooms=frozenset({"testing.simulation"}),
        packages=_TWISTED,
        banned=_NETWORK,
    ),
    "cli": Room(
        rooms=BROKER_STATE
        | {"state", "broker", "broker.access", "broker.config", "broker.service", "broker.storage"}
        | {"broker.watching"}
        | {"cli", "testing", "spark", "namesrv", "client", "console", "kernel", "logs"}
        | {"commitlog", "dledger", "dledger.store", "dledger.replica", "protocol"},
        packages=_TWISTED | {"msgspec", "yaml", "cryptography"},
        banned=frozenset(),
    ),
}

# Rooms inside a room: naming the outer one does not open the inner one.
_INNER = ("dledger.store", "dledger.replica") + tuple(
    name for group in BROKER_ORDER for name in sorted(group) if name != "broker"
)


def room_of(name: str) -> str:
    """The key of ROOMS that rules a module, given its name below the package."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in ROOMS:
            return prefix
    return ""


@cache
def imported_names(source: Source) -> tuple[tuple[ast.stmt | ast.expr, str], ...]:
    """Every name that a file imports, absolute; `from a import b` gives `a.b`.

    So does `importlib.import_module("a.b")`, by which optional parts are loaded when first needed.
    """
    return tuple(_imported_names(source))


def _imported_names(source: Source) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                package = source.module.split(".")
                up = node.level - 1 if source.is_package else node.level
                base = ".".join(package[: len(package) - up])
                module = f"{base}.{module}" if module else base
            for alias in node.names:
                yield node, f"{module}.{alias.name}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "import_module":
                name = node.args[0]
                if ast.unparse(node.func.value) == "importlib" and isinstance(name, ast.Constant):
                    yield node, str(name.value)


def _opens(grant: str, name: str) -> bool:
    """Whether leave to import `grant` covers `name`."""
    if name != grant and not name.startswith(grant + "."):
        return False
    return not any(
        inner.startswith(grant + ".") and (name == inner or name.startswith(inner + "."))
        for inner in _INNER
    )


def _complaint_about(name: str, own: str, room: Room) -> str:
    top, _, rest = name.partition(".")
    if top == PACKAGE:
        if rest in ("", "__version__") or any(_opens(grant, rest) for grant in room.rooms):
            return ""
        return f"{own} must not import {name}"
    if top in sys.stdlib_module_names:
        return f"{own} must not import {top}" if top in room.banned else ""
    return "" if top in room.packages else f"{own} must not import {top}, a third party's package"


# What it loads when it is loaded, and what it names for type checkers and loads when asked for:
# test_the_root_loads_no_room shows the difference.
_OF_THE_ROOT = {
    "importlib",
    "typing.Any",
    "typing.TYPE_CHECKING",
    f"{PACKAGE}.kernel.choose",
    f"{PACKAGE}.client.arrow",
    f"{PACKAGE}.client.arrow.read",
}


def check_rooms(source: Source) -> list[str]:
    """A file imports only what the row of its room allows."""
    package, _, name = source.module.partition(".")
    if package != PACKAGE:
        return []
    if not name:
        return [
            source.at(node, "the root imports nothing but kernel, or names it for checkers")
            for node, imported in imported_names(source)
            if imported not in _OF_THE_ROOT
        ]
    key = room_of(name)
    if not key:
        return [f"{source.path}:1: {name} is no room of the table in tests/tidy/import_rules.py"]
    complaints = [
        source.at(node, complaint)
        for node, imported in imported_names(source)
        if (complaint := _complaint_about(imported, key, ROOMS[key]))
    ]
    return complaints + (_chance_in_core(source) if key == "dledger" else [])


def _chance_in_core(source: Source) -> list[str]:
    """The core names `random.Random` as a type: it neither makes one nor asks the global one."""
    complaints = []
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            if any(alias.name != "Random" for alias in node.names):
                complaints.append(source.at(node, "of random, only the type Random"))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "random" and node.attr != "Random":
                complaints.append(source.at(node, "of random, only the type Random"))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("random.Random", "Random"):
            complaints.append(source.at(node, "a source of chance is an argument"))
    return complaints


_IMPORTS = (ast.Import, ast.ImportFrom)


def check_place(source: Source) -> list[str]:
    """Imports stand at module level, and name what they import."""
    complaints = []
    indented = any(isinstance(node, _IMPORTS) and node.col_offset for node in source.nodes)
    for outer in source.nodes if indented else ():
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            complaints += [
                source.at(node, f"import inside {getattr(outer, 'name', 'a lambda')}")
                for node in ast.iter_child_nodes(outer)
                for node in ast.walk(node)
                if isinstance(node, _IMPORTS)
            ]
    complaints += [
        source.at(node, f"star import of {name}")
        for node, name in imported_names(source)
        if name.endswith(".*")
    ]
    return sorted(set(complaints))


def check_reactor(source: Source) -> list[str]:
    """The global reactor is imported only in cli; coroutines are `async def`."""
    if source.module.startswith(f"{PACKAGE}.cli"):
        return []
    banned = {
        "twisted.internet.reactor": "the reactor is a constructor argument",
        "twisted.internet.defer.inlineCallbacks": "write async def",
    }
    return [
        source.at(node, banned[name]) for node, name in imported_names(source) if name in banned
    ]


def check_private_names(source: Source) -> list[str]:
    """A name with a leading underscore stays in its file."""
    return [
        source.at(node, f"{name} is private to its file")
        for node, name in imported_names(source)
        if name.startswith(PACKAGE + ".")
        and any(part.startswith("_") and not part.startswith("__") for part in name.split("."))
    ]


def import_graph(sources: list[Source]) -> dict[str, set[str]]:
    """Which module of ours imports which, TYPE_CHECKING blocks included.

    What imports a module of another package when it is loaded loads that package before it.
    """
    modules = {source.module for source in sources}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for source in sources:
        for node, name in imported_names(source):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != source.module:
                graph[source.module].add(target)
                if node not in source.tree.body:
                    continue
                parts = target.split(".")
                for length in range(2, len(parts)):
                    package = ".".join(parts[:length])
                    if package in modules and not f"{source.module}.".startswith(package + "."):
                        graph[source.module].add(package)
    return graph


def rooms_out_of_order() -> list[str]:
    """Rows of the broker's rooms that name a room which does not stand before them."""
    complaints, below = [], frozenset[str]()
    for group in BROKER_ORDER:
        for name in sorted(group):
            own = group if group == BROKER_STATE else {name}
            named = {one for one in ROOMS[name].rooms if one.partition(".")[0] == "broker"}
            complaints += [f"{name} must not know {one}" for one in sorted(named - below - own)]
        below |= group
    return complaints


def needless_grants(sources: list[Source]) -> list[str]:
    """What rows of the broker's rooms open, and no file of the room imports."""
    imported: dict[Room, set[str]] = {}
    for source in sources:
        package, _, name = source.module.partition(".")
        if package == PACKAGE and room_of(name).partition(".")[0] == "broker":
            names = imported.setdefault(ROOMS[room_of(name)], set())
            names |= {found for _, found in imported_names(source)}
    return [
        f"{room_of(grant) or grant} is open to a room of the broker that does not need it"
        f" ({', '.join(sorted(name for name, row in ROOMS.items() if row == room)[:2])})"
        for room, names in imported.items()
        for grant in sorted(room.rooms - BROKER_STATE)
        if ROOMS.get(grant) != room
        if not any(_opens(grant, name.removeprefix(f"{PACKAGE}.")) for name in names)
    ]


def rooms_without_a_row(sources: list[Source]) -> list[str]:
    """Folders of the broker that the floor's row would rule, and rows of what is not there."""
    modules = {source.module.removeprefix(f"{PACKAGE}.") for source in sources}
    folders = {
        source.module.removeprefix(f"{PACKAGE}.")
        for source in sources
        if source.is_package and source.module.startswith(f"{PACKAGE}.broker")
    }
    rows = {name for name in ROOMS if name.partition(".")[0] == "broker"}
    missing = {name for group in BROKER_ORDER for name in group} ^ rows
    return sorted((folders - rows) | (rows - modules) | missing)


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """One cycle of the graph, its first member repeated at the end; empty when there is none."""
    done: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        path.append(module)
        for target in sorted(graph[module]):
            if cycle := visit(target):
                return cycle
        done.add(path.pop())
        return []

    for module in sorted(graph):
        if cycle := visit(module):
            return cycle
    return []


def loaded_by(root: str, graph: dict[str, set[str]]) -> set[str]:
    """All modules that importing `root` and what lies below it loads, packages included."""
    loaded: set[str] = set()
    waiting = {module for module in graph if module == root or module.startswith(root + ".")}
    while waiting:
        module = waiting.pop()
        loaded.add(module)
        parts = module.split(".")
        parents = {".".join(parts[:length]) for length in range(1, len(parts))}
        waiting |= ((graph[module] | parents) & graph.keys()) - loaded
    return loaded


def unused_modules(sources: list[Source]) -> list[str]:
    """Modules of ours that no file imports.

    A command is loaded by its name in cli's table, a format of tables by its name, too; Django
    finds modules by the names it gave them.
    """
    modules = {source.module for source in sources if source.module.startswith(PACKAGE + ".")}
    used = {source.module for source in sources if source.is_package}
    by_name = ("cli.", "django.apps", "django.management.", "django.migrations.", "spark.tables.")
    used |= {module for module in modules if module[len(PACKAGE) + 1 :].startswith(by_name)}
    for source in sources:
        for _, name in imported_names(source):
            used |= {name, name.rpartition(".")[0]} - {source.module}
    return sorted(modules - used)
