"""Census: members that tell each other what they are; nothing but values goes between them."""

import random
from dataclasses import replace

import pytest

from ledgermq.dledger.birth import Birth, Standing, is_agreed
from ledgermq.dledger.census import Census
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.member_state import MemberState, Outbox
from ledgermq.dledger.messages import BirthReport, Message, PeerDialect
from ledgermq.dledger.storage import HardState
from tests.unit.dledger.lab import CODEC, config_of, disk_of

BIRTH = Birth("a" * 32, ("n0", "n1", "n2"), is_agreed=True)


class Life:
    """One process of one member; what it saves outlives it."""

    def __init__(self, self_id: str, saved: HardState, rng: random.Random, count: int) -> None:
        config = replace(config_of(count), self_id=self_id)
        self.outbox = Outbox()
        self.state = MemberState(config, saved, recovering=False)
        self.state.is_new = not is_agreed(saved.birth)
        log = RaftLog(disk_of([]), CODEC, 1000)
        self.census = Census(self.state, log, rng, self.outbox)

    def take(self) -> list[Message]:
        messages, self.outbox.messages = self.outbox.messages, []
        return messages


class Town:
    """Members with their disks, and messages between them that a test delivers."""

    def __init__(self, count: int = 3, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.count = count
        self.ids = tuple(f"n{i}" for i in range(count))
        self.disks = dict.fromkeys(self.ids, HardState(0))
        self.lives: dict[str, Life] = {}
        # What is under way, with the life that it was sent to: it reaches no other.
        self.letters: list[tuple[Life, Message]] = []

    def start(self, *ids: str) -> None:
        for member_id in ids or self.ids:
            self.lives[member_id] = Life(member_id, self.disks[member_id], self.rng, self.count)
        for member_id, life in self.lives.items():
            for peer_id in self.ids:
                if peer_id != member_id and {peer_id, member_id} & set(ids or self.ids):
                    life.census.way_opened(peer_id)
        self.post()

    def post(self) -> None:
        """Saves what changed, and only then sends."""
        for member_id, life in self.lives.items():
            self.disks[member_id] = life.state.take_hard_state() or self.disks[member_id]
            for message in life.take():
                if message.target in self.lives:
                    self.letters.append((self.lives[message.target], message))

    def deliver(self, at: int = 0) -> None:
        target, message = self.letters.pop(at)
        if target in self.lives.values():
            assert isinstance(message, BirthReport)
            target.census.receive(message)
            self.post()

    def deliver_all(self) -> None:
        count = 0
        while self.letters:
            self.deliver()
            count += 1
            assert count < 1000, "they talk for ever"

    def births(self) -> list[Birth | None]:
        return [self.lives[i].state.birth for i in self.ids if i in self.lives]


def test_members_that_are_all_new_are_born_with_one_id() -> None:
    town = Town()
    town.start()
    town.deliver_all()
    (birth,) = set(town.births())
    assert birth is not None and birth.is_agreed and birth.members == ("n0", "n1", "n2")
    assert len(birth.group_id) == 32
    assert all(disk.birth == birth for disk in town.disks.values())


def test_the_birth_is_held_by_all_before_one_calls_it_agreed() -> None:
    town = Town()
    town.start()
    while not any(map(is_agreed, town.births())):
        town.deliver()
    assert all(disk.birth is not None for disk in town.disks.values())


def test_two_of_three_wait_and_say_for_whom() -> None:
    town = Town()
    town.start("n1", "n2")
    town.deliver_all()
    assert town.births() == [None, None]
    assert town.lives["n1"].census.waits_for() == {"n0": "not reached"}
    assert not town.lives["n1"].state.may_vote


def test_a_member_that_is_born_waits_for_nobody() -> None:
    town = Town()
    town.start()
    town.deliver_all()
    assert town.lives["n0"].census.waits_for() == {}
    town.lives["n0"].census.ask()
    assert town.lives["n0"].take() == []


def test_lost_disks_wait_for_a_leader_of_the_one_that_is_born() -> None:
    town = Town()
    town.disks["n0"] = HardState(3, "n0", BIRTH)
    town.start("n1", "n2")
    town.deliver_all()
    town.start("n0")
    town.deliver_all()
    assert town.births() == [BIRTH, None, None]
    reason = town.lives["n2"].census.waits_for()["n0"]
    assert BIRTH.group_id in reason
    assert not town.lives["n1"].state.may_vote and not town.lives["n2"].state.may_vote


def test_one_member_is_a_group() -> None:
    town = Town(count=1)
    town.start()
    assert is_agreed(town.births()[0])


def test_a_broken_way_makes_a_peer_unheard_of() -> None:
    town = Town()
    town.start("n1", "n2")
    town.deliver_all()
    census = town.lives["n1"].census
    census.way_closed("n2")
    assert census.waits_for() == {"n0": "not reached", "n2": "not reached"}
    census.ask()
    town.post()
    town.deliver_all()
    assert census.waits_for() == {"n0": "not reached"}


def test_a_leader_brings_the_birth_and_the_member_recovers() -> None:
    town = Town()
    town.start("n1")
    life = town.lives["n1"]
    life.census.meet(replace(BIRTH, is_agreed=False))
    assert life.state.birth is None and not life.state.recovering
    life.census.meet(BIRTH)
    assert life.state.birth == BIRTH
    assert life.state.recovering and not life.state.is_new


def test_who_held_the_birth_has_forgotten_nothing() -> None:
    town = Town()
    town.disks["n1"] = HardState(0, None, replace(BIRTH, is_agreed=False))
    town.start("n1")
    life = town.lives["n1"]
    life.census.meet(BIRTH)
    assert life.state.birth == BIRTH
    assert not life.state.recovering and life.state.may_vote


def test_two_births_are_seen_on_both_sides() -> None:
    other = Birth("b" * 32, ("n0", "n1", "n2"), is_agreed=True)
    town = Town()
    town.disks["n0"], town.disks["n1"] = HardState(1, None, BIRTH), HardState(1, None, other)
    town.start("n0", "n1")
    town.lives["n0"].census.note_birth("n1", other)
    town.lives["n1"].census.note_birth("n0", BIRTH)
    town.lives["n1"].census.note_birth("stranger", BIRTH)
    assert town.lives["n0"].census.strangers == {"n1": other}
    assert town.lives["n1"].census.strangers == {"n0": BIRTH}


def test_with_a_java_member_nothing_is_asked_and_nothing_agreed() -> None:
    town = Town()
    town.start("n1", "n2")
    for life in town.lives.values():
        life.state.set_dialect("n0", PeerDialect.JAVA)
    town.letters.clear()
    town.lives["n1"].census.ask()
    town.lives["n1"].census.way_opened("n0")
    assert town.lives["n1"].take() == []
    assert town.lives["n1"].state.may_vote


def test_a_report_to_a_former_life_changes_nothing() -> None:
    """What n0 said to the n2 that was there before is no answer to the one that is there now."""
    town = Town()
    town.start("n0", "n2")
    town.deliver_all()
    town.lives["n0"].census.ask()
    (old,) = [m for m in town.lives["n0"].take() if m.target == "n2"]
    del town.lives["n2"]
    town.start("n2")
    town.letters.clear()
    town.lives["n2"].census.receive(old)
    assert town.lives["n2"].census.waits_for()["n0"] == "not reached"


def test_a_report_of_a_former_life_changes_nothing() -> None:
    """n0 said that it holds a birth, and lost its disk; the n0 of now is known already."""
    town = Town()
    town.start("n0", "n1", "n2")
    while town.disks["n0"].birth is None:
        town.deliver()
    late = [(life, m) for life, m in town.letters if m.sender == "n0" and m.birth is not None]
    assert {m.target for _, m in late} == {"n1", "n2"}
    town.letters.clear()
    town.disks["n0"] = HardState(0)
    del town.lives["n0"]
    town.start("n0")
    # All hear of the new life and of each other, but it does not hear enough to draw an id yet.
    for member_id in ("n1", "n2"):
        town.lives[member_id].census.ask()
    town.post()
    while town.letters:
        at = next((i for i, (_, m) in enumerate(town.letters) if m.target != "n0"), None)
        if at is None:
            break
        town.deliver(at)
    kept, town.letters = town.letters, late
    town.deliver()
    town.deliver()
    assert town.disks["n1"].birth is None and town.disks["n2"].birth is None
    town.letters += kept
    town.deliver_all()
    for life in town.lives.values():
        life.census.ask()
    town.post()
    town.deliver_all()
    assert len(set(town.births())) == 1 and is_agreed(town.births()[0])


@pytest.mark.parametrize("seed", range(60))
def test_there_is_never_a_second_birth(seed: int) -> None:
    """Reports are lost, doubled and late; members restart, and a minority loses its disks."""
    rng = random.Random(seed)
    town = Town(count=rng.choice((3, 3, 5)), seed=seed)
    victims = rng.sample(town.ids, 1)
    agreed = set()
    for member_id in rng.sample(town.ids, len(town.ids)):
        town.start(member_id)
    for _ in range(400):
        act = rng.random()
        if act < 0.75 and town.letters:
            if rng.random() < 0.1:
                town.letters.append(rng.choice(town.letters))
            town.deliver(rng.randrange(len(town.letters)))
        elif act < 0.8 and town.letters:
            town.letters.pop(rng.randrange(len(town.letters)))
        elif act < 0.9:
            member_id = rng.choice(town.ids)
            if member_id in victims and rng.random() < 0.5:
                town.disks[member_id] = HardState(0)
            town.lives.pop(member_id, None)
            town.start(member_id)
        else:
            rng.choice(list(town.lives.values())).census.ask()
            town.post()
        agreed |= {birth.group_id for birth in town.births() if is_agreed(birth)}
        assert len(agreed) <= 1
    for _ in range(3):
        for life in town.lives.values():
            life.census.ask()
        town.post()
        town.deliver_all()
    held = {birth.group_id for birth in town.births() if birth is not None}
    assert len(held) == 1
    # Whoever has lost its disk after the birth waits for a leader.
    unborn = [i for i in town.ids if not is_agreed(town.lives[i].state.birth)]
    assert set(unborn) <= set(victims)


def test_a_claim_is_what_the_member_is() -> None:
    town = Town()
    town.start("n0")
    state = town.lives["n0"].state
    state.recovering = True
    claims = []
    for is_new in (True, False):
        state.is_new = is_new
        town.lives["n0"].census.ask()
        claims.append(town.lives["n0"].take()[0].standing)
    state.recovering = False
    town.lives["n0"].census.ask()
    claims.append(town.lives["n0"].take()[0].standing)
    assert claims == [Standing.NEW, Standing.LOST, Standing.OLDER]
