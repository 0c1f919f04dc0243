"""Builds the client's distribution from the tree that it stands in.

In the repository the package is two folders above; in the distribution's own sources beside it.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
TREE = "." if (HERE / "ledgermq").is_dir() else "../.."
# What it holds; the frames' other end, which is Twisted's, is left out.
ROOMS = [
    "ledgermq",
    "ledgermq.celery*",
    "ledgermq.client*",
    "ledgermq.django*",
    "ledgermq.protocol*",
]
NOT_OF_A_CLIENT = ["ledgermq.protocol.transport*"]
# Modules of these rooms that need what a client does not, or that only brokers use; secrets of a
# broker's group are files of a POSIX system.
LEFT_OUT = {
    "ledgermq.pytest_plugin",
    "ledgermq.protocol.group_secret",
    "ledgermq.protocol.private_file",
    "ledgermq.protocol.record_layout",
}


class ClientModules(build_py):
    """Takes the modules that a client has use for."""

    def find_package_modules(self, package, package_dir):
        found = super().find_package_modules(package, package_dir)
        return [row for row in found if f"{row[0]}.{row[1]}" not in LEFT_OUT]


version = re.search(
    r'^__version__ = "(.+)"$', (HERE / TREE / "ledgermq/__init__.py").read_text(), re.MULTILINE
).group(1)

setup(
    version=version,
    packages=find_packages(TREE, include=ROOMS, exclude=NOT_OF_A_CLIENT),
    package_dir={"": TREE},
    package_data={"ledgermq": ["py.typed"]},
    cmdclass={"build_py": ClientModules},
    options={"egg_info": {"egg_base": "."}},
)
