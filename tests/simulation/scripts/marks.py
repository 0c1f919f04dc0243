"""Marks: small files that say what others hold, and a machine that stops between two of them."""

from ledgermq.dledger.messages import VoteRequest
from tests.simulation.stage import Choices, group


def vote_whose_save_was_cut_between_its_files() -> None:
    """D3: a vote that one file tells stands in both before it is answered: a program that takes
    the directory over and reads the other one alone does not vote again in that term.
    """
    # With a Java member no birth is needed, which stands in the file that is taken away.
    stage = group(java_ids=("n1",))
    stage.isolate("n0")
    stage.kill("n0")
    disk, directory = stage["n1"].disk, stage["n1"].directory
    identity = f"{directory}/identity"

    def stops_in(kind: str, path: str) -> bool:
        is_second = kind == "write_text" and path == f"{directory}/currterm.tmp"
        return is_second and b"voted_for=n2" in disk.texts[identity]

    disk.stops_in = stops_in
    # It stops before the rename, and leaves no other file.
    disk._rng = Choices(0.99, 0, below=2)
    asked = stage.hold(VoteRequest, "n2", "n1", is_copy=True)
    stage.favorite = "n2"
    stage.until(lambda: not stage["n1"].is_running, "n1 stops while it saves its vote")
    asked.stop()
    disk.stops_in = lambda kind, path: False
    stage.heal()
    stage.start("n1")
    stage.run(20)
    asked.release()
    stage.until(lambda: stage.is_leader("n2"), "n2 leads by the vote of n1")
    stage.kill("n1")
    stage.isolate("n2")
    del disk.texts[identity]
    stage.start("n0", "n1")
    stage.favorite = "n0"
    stage.until(lambda: stage.is_leader("n0"), "n0 leads in a later term")
    stage.settle()


def flush_without_room_for_its_last_file() -> None:
    """D9: no mark calls a queue's file whole that its flush, done once more, makes anew."""
    stage = group()
    stage.run(3_000)
    disk = stage["n1"].disk
    refused: list[str] = []

    def lacks_room(path: str, size_bytes: int) -> bool:
        if path != "/store/checkpoint.tmp":
            return False
        refused.append(path)
        return True

    def stops_in(kind: str, path: str) -> bool:
        return bool(refused) and kind == "sync" and "/consumequeue/" in path

    disk._lacks_room, disk.stops_in = lacks_room, stops_in
    stage.send_all("n0", topic_at=1)
    stage.until(lambda: not stage["n1"].is_running, "n1 stops while it writes the queue again")
    del disk._lacks_room
    disk.stops_in = lambda kind, path: False
    stage.cut_power("n1", keeps=lambda name, at: "/consumequeue/" not in name)
    stage.start("n1")
    stage.settle()
