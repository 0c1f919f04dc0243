"""Programs are replaced while the group works: when the next format is written, who reads it."""

from collections.abc import Sequence

from ledgermq.dledger.messages import PushResponse
from ledgermq.state.formats import FORMATS, Format
from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.next_format import NEXT_FORMATS
from tests.simulation.scripts.state import make_topic
from tests.simulation.stage import Stage, group

# Links are made anew, and what is stored is in its files.
_SETTLED_MS = 3_000


def _install(stage: Stage, formats: Sequence[Format], *member_ids: str) -> None:
    """These processes end and start again with another program."""
    stage.kill(*member_ids)
    for member_id in member_ids:
        stage[member_id].formats = formats
    stage.start(*member_ids)
    stage.run(_SETTLED_MS)


def _make(stage: Stage, member_id: str, name: str) -> None:
    demand(make_topic(stage, member_id, name, 1) == [None], "made", name)


def _is_written(stage: Stage) -> bool:
    return stage.world.formats.next_index is not None


def programs_replaced_one_by_one() -> None:
    """The next format is written when the last member has the next program, and not while one of
    them has gone back: I42. From then on the former program is refused.
    """
    stage = group()
    _make(stage, "n0", "made-0")
    _lead_elsewhere(stage, "n0", "n1")
    _install(stage, NEXT_FORMATS, "n0")
    stage.hand_over("n1", "n0")
    _make(stage, "n0", "made-1")
    demand(not _is_written(stage), "I42 written by a leader that knows nobody who reads it")
    _install(stage, NEXT_FORMATS, "n2")
    _make(stage, "n0", "made-2")
    # The way back.
    _install(stage, FORMATS, "n2")
    _make(stage, "n0", "made-3")
    stage.send_all("n0")
    _install(stage, NEXT_FORMATS, "n1")
    _make(stage, "n0", "made-4")
    demand(not _is_written(stage), "I42 written while a member has gone back")
    _install(stage, NEXT_FORMATS, "n2")
    stage.holds_all(*stage.ids)
    # It need not be there: it has told what it reads.
    stage.kill("n2")
    _make(stage, "n0", "made-5")
    demand(_is_written(stage), "I15 all read the next format, and nobody writes it")
    _install(stage, FORMATS, "n2")
    refused = stage.world.counts.get("older program refused at the greeting", 0)
    demand(refused > 0, "I43 the former program is let in")
    demand(stage["n2"].formats is NEXT_FORMATS, "the operator has seen it")
    _make(stage, "n0", "made-6")
    stage.settle()


def _lead_elsewhere(stage: Stage, member_id: str, target_id: str) -> None:
    stage.hand_over(member_id, target_id)
    stage.holds_all(*stage.ids)


def records_that_a_former_program_meets() -> None:
    """What the next program wrote may be committed when all members have gone back: then all of
    them end there, pass over nothing, and go on with the next program (I43).
    """
    stage = group()
    _install(stage, NEXT_FORMATS, "n1", "n2")
    _lead_elsewhere(stage, "n0", "n1")
    _install(stage, NEXT_FORMATS, "n0")
    stage.holds_all(*stage.ids)
    demand(not _is_written(stage), "nothing was to be written")
    held = [stage.hold(PushResponse, member_id, "n1") for member_id in ("n0", "n2")]
    told = make_topic(stage, "n1", "made-1", 2)
    demand(told == [], "committed without a majority", told)
    stage.run(200)
    for one in held:
        one.stop()
    _install(stage, FORMATS, *stage.ids)
    stage.run(_SETTLED_MS)
    ended = stage.world.counts.get("older program ended by a record of the next format", 0)
    demand(ended >= 2, "I43 a former program passed over a record of the next", ended)
    stage.until(lambda: stage.serves("n1"), "n1 serves")
    found = stage["n1"].broker.state.topics.find("made-1")
    demand(found is not None, "I26 what was committed is there")
    stage.settle()


def former_program_on_a_state_of_the_next() -> None:
    """A program does not start on files of a state whose records it does not read (I43)."""
    stage = group()
    _install(stage, NEXT_FORMATS, *stage.ids)
    stage.until(lambda: stage.serves("n0"), "n0 serves")
    _make(stage, "n0", "made-1")
    demand(_is_written(stage), "the next format is written")
    # The marks are behind it.
    stage.send_all("n0", 5)
    stage.run(_SETTLED_MS)
    _install(stage, FORMATS, *stage.ids)
    ended = stage.world.counts.get("older program ended by a record of the next format", 0)
    demand(ended >= 3, "I43 a former program has started", ended)
    stage.until(lambda: stage.serves("n0"), "n0 serves")
    _make(stage, "n0", "made-2")
    stage.settle()
