"""Two hosts that exchange datagrams while their network is hurt: a check of the network itself.

    python -m tests.fault.hosts.network_probe

For a world of its own (see isolation). Host `a` sends numbered datagrams, host `b` sends each of
them back. For each kind of hurt a line of JSON tells its name, the numbers that came to `b`, and
those that came back, each in the order in which they came.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial

from tests.fault.hosts.links import Way
from tests.fault.hosts.network import Network
from tests.waiting import wait_until

COUNT = 200
# The last number, sent when all is well again: what has not come before it does not come.
END = COUNT
_PORT = 7000
_ANSWER_S = 30.0
# What is done, and how many packets the router has then judged: those there, and those back.
HURTS: dict[str, tuple[Callable[[Network], None], int]] = {
    "nothing": (lambda network: network.heal(), 2 * COUNT),
    "cut": (lambda network: network.cut("a"), COUNT),
    "cut out": (lambda network: network.cut_out("a"), COUNT),
    "cut in": (lambda network: network.cut_in("a"), 2 * COUNT),
    "blackout": (lambda network: network.black_out(), COUNT),
    "loss": (lambda network: network.disturb(Way(loss=0.5)), COUNT),
    "delay": (lambda network: network.disturb(Way(delay_s=0.01)), 2 * COUNT),
    "reorder": (lambda network: network.disturb(Way(late_share=0.5, late_s=0.01)), 2 * COUNT),
}


def echo(address: str) -> None:
    """Host b: sends back what comes; after END a line tells what came."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((address, _PORT))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        came: list[int] = []
        while True:
            data, sender = receiver.recvfrom(100)
            receiver.sendto(data, sender)
            if int(data) == END:
                sys.stdout.write(json.dumps(came) + "\n")
                sys.stdout.flush()
                came = []
            else:
                came.append(int(data))


def send(address: str) -> None:
    """Host a: for each line of standard input, sends so many numbers from there on, and tells what
    came back when the last of a round did.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_ANSWER_S)
        for line in sys.stdin:
            first, count = map(int, line.split())
            for number in range(first, first + count):
                sender.sendto(b"%d" % number, (address, _PORT))
            came: list[int] = []
            while first == END and END not in came:
                came.append(int(sender.recv(100)))
            sys.stdout.write(json.dumps(came[:-1]) + "\n")
            sys.stdout.flush()


def has_judged(network: Network, count: int) -> bool:
    """Whether the router has judged so many packets."""
    network.look()
    return network.passed + network.dropped >= count


def probe() -> None:
    """Hurts the network in each way."""
    with Network(("a", "b")) as network:
        address = network.addresses["b"]
        words = [sys.executable, "-m", "tests.fault.hosts.network_probe"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        b = subprocess.Popen([*network.command("b"), *words, "echo", address], **pipes)
        a = subprocess.Popen([*network.command("a"), *words, "send", address], **pipes)
        assert a.stdin is not None and a.stdout is not None and b.stdout is not None
        b.stdout.readline()
        for name, (hurt, judged) in HURTS.items():
            hurt(network)
            wanted = network.passed + network.dropped + judged
            a.stdin.write(f"0 {COUNT}\n")
            a.stdin.flush()
            a.stdout.readline()
            wait_until(partial(has_judged, network, wanted), what="the packets")
            network.heal()
            a.stdin.write(f"{END} 1\n")
            a.stdin.flush()
            back, there = json.loads(a.stdout.readline()), json.loads(b.stdout.readline())
            sys.stdout.write(json.dumps([name, there, back]) + "\n")
        for process in (a, b):
            process.kill()
            process.communicate()


if __name__ == "__main__":
    if sys.argv[1:2] == ["echo"]:
        echo(sys.argv[2])
    elif sys.argv[1:2] == ["send"]:
        send(sys.argv[2])
    else:
        probe()
