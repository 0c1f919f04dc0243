"""What a tool has made a client finds at once: topics are answered when name servers know them."""

import os
import signal
import time
from pathlib import Path

from ledgermq.broker.registration.told_waits import WAIT_S
from ledgermq.cli.remote import Remote
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import CreateTopicRequestHeader
from tests.processes import LiveProgram, broker
from tests.waiting import wait_until


def name_server(folder: Path, name: str) -> LiveProgram:
    words = ["namesrv", "--json", "listenPort=0", "bindAddress=127.0.0.1",
             f"kvConfigPath={folder / name / 'kv.json'}"]  # fmt: skip
    return LiveProgram(words, folder / f"{name}.log").wait_until("address")


def make_topic(remote: Remote, address: str, name: str) -> None:
    header = CreateTopicRequestHeader(
        topic=name, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
    )  # fmt: skip
    remote.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def test_a_topic_that_was_made_is_in_the_route_of_each_name_server(tmp_path: Path) -> None:
    with name_server(tmp_path, "one") as one, name_server(tmp_path, "two") as two:
        names = [str(program.status["address"]) for program in (one, two)]
        with (
            broker(tmp_path, namesrv=";".join(names)) as serving,
            Remote(names[0]) as first,
            Remote(names[1]) as second,
        ):
            address = serving.wait_until_serving().address
            wait_until(
                lambda: all(remote.clusters().broker_addr_table for remote in (first, second)),
                what="a registered broker",
            )
            for number in range(40):
                begun_s = time.monotonic()
                make_topic(first, address, f"made-{number}")
                if time.monotonic() - begun_s >= WAIT_S:
                    # A name server that stood still so long was given up, as promised.
                    continue
                for remote in (first, second):
                    assert remote.route(f"made-{number}").broker_datas

            # One that stands still is waited for, but not long, and when it is given up not at all.
            os.kill(two.pid, signal.SIGSTOP)
            try:
                begun_s = time.monotonic()
                for number in range(10):
                    make_topic(first, address, f"more-{number}")
                    assert first.route(f"more-{number}").broker_datas
                assert time.monotonic() - begun_s < 3 * WAIT_S + 10
            finally:
                os.kill(two.pid, signal.SIGCONT)
