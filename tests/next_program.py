"""The broker of the next program: `python -m tests.next_program broker ...`, as `ledgermq broker`.

It is the product's own, with the made-up next format of the state's records plugged in.
"""

import argparse
import sys
from collections.abc import Sequence

from ledgermq.cli import broker
from ledgermq.testing.simulation.next_format import NEXT_FORMATS


def main(words: Sequence[str]) -> int:
    """Runs the broker; returns its exit code."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    broker.add_arguments(commands.add_parser("broker"))
    return broker.run(parser.parse_args(words), NEXT_FORMATS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
