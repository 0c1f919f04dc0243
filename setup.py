"""Builds the kernel: the loops that each message passes, compiled.

Each module named here is plain Python with a `.pxd` beside it that gives its variables C types. The
compiled form takes the place of the source at import (`ledgermq/kernel.py` says how to prevent
that). Where there is no C compiler the installation goes on without it.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

MODULES = (
    "ledgermq.broker.answering",
    "ledgermq.broker.gathering",
    "ledgermq.commitlog.consume_queue",
    "ledgermq.commitlog.index_loops",
    "ledgermq.commitlog.row",
    "ledgermq.commitlog.row_loops",
    "ledgermq.commitlog.run_loops",
    "ledgermq.commitlog.encoding",
    "ledgermq.dledger.entry_loops",
    "ledgermq.protocol.plain_frames",
)

EXTENSIONS = cythonize(
    [Extension(module, [f"{module.replace('.', '/')}.py"]) for module in MODULES],
    build_dir="build/kernel",
    compiler_directives={
        "language_level": 3,
        # Lists, tuples and bytes are indexed as Python does; what goes through a pointer is for the
        # loops themselves to check, before they read or write.
        "boundscheck": True,
        "wraparound": True,
        "cdivision": True,
        "initializedcheck": False,
        # Types are given in the .pxd files alone: an annotation is for readers and mypy.
        "annotation_typing": False,
    },
    show_all_warnings=False,
)
for extension in EXTENSIONS:
    # The sources run as well; cythonize makes extensions anew, so it is said here.
    extension.optional = True

setup(ext_modules=EXTENSIONS)
