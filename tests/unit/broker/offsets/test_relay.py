"""Offsets that clients tell a member that leads no longer."""

from twisted.internet.defer import Deferred, succeed

from ledgermq.broker.offsets import relay
from ledgermq.broker.offsets.relay import OffsetRelay
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import UpdateConsumerOffsetRequestHeader
from tests.unit.broker.parts import Parts
from tests.unit.broker.trusting import trusting

MASTER = "10.0.0.1:10911"


class Master:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[Deferred[RemotingCommand], RemotingCommand]] = []
        self.stopped_count = 0

    def request(self, command: RemotingCommand, timeout_ms: int) -> Deferred[RemotingCommand]:
        answer: Deferred[RemotingCommand] = Deferred()
        self.asked.append((answer, command))
        return answer

    def answer(self, code: int = ResponseCode.SUCCESS) -> list[dict[str, str] | None]:
        asked, self.asked = self.asked, []
        for answer, command in asked:
            answer.callback(command.response(code))
        return [command.ext_fields for _, command in asked]

    def stop(self) -> Deferred[None]:
        self.stopped_count += 1
        return succeed(None)


class Scene:
    """A member that follows n1."""

    def __init__(self) -> None:
        self.parts = Parts()
        self.parts.leadership.changed("FOLLOWER", 4, "n1")
        self.offsets = self.parts.state.offsets
        self.master = Master()
        self.address: str | None = MASTER
        self.asked_for_master = 0
        self.relay = OffsetRelay(
            self.parts.leadership,
            self.offsets,
            self.parts.state.commits.tell,
            find_master=lambda: self.address,
            ask_for_master=self._ask_for_master,
            connect=self._connect,
            trust=trusting(),
        )

    def _ask_for_master(self) -> None:
        self.asked_for_master += 1

    def _connect(self, address: str) -> Master:
        assert address == MASTER
        return self.master

    def tell(
        self, offset: int, queue_id: int = 0, group: str = "g", payer: str = "a", more: str = ""
    ) -> dict[str, str]:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic="T", queue_id=queue_id, commit_offset=offset
        )
        fields = {**header.to_ext_fields(), "Signature": f"of {offset}{more}"}
        self.relay.take(header, fields, payer)
        return fields


def test_newest_word_about_each_queue_is_passed_on_as_it_came() -> None:
    scene = Scene()
    scene.tell(5)
    newest, other = scene.tell(7), scene.tell(1, queue_id=1)
    scene.relay.run()
    assert scene.master.asked[0][1].code == RequestCode.UPDATE_CONSUMER_OFFSET
    assert not scene.master.asked[0][1].is_one_way
    assert scene.master.answer() == [newest, other]
    assert scene.master.stopped_count == 1
    scene.relay.run()
    assert scene.master.asked == [] and scene.asked_for_master == 0


def test_what_is_refused_or_told_meanwhile_is_passed_on_by_the_next_round() -> None:
    scene = Scene()
    scene.tell(5)
    scene.relay.run()
    scene.master.answer(ResponseCode.SERVICE_NOT_AVAILABLE)
    assert scene.asked_for_master == 1
    scene.relay.run()
    newer = scene.tell(6)
    # One round at a time.
    scene.relay.run()
    assert len(scene.master.asked) == 1
    scene.master.answer()
    scene.relay.run()
    assert scene.master.answer() == [newer]


def test_round_waits_until_a_master_is_known() -> None:
    scene = Scene()
    scene.address = None
    fields = scene.tell(5)
    scene.relay.run()
    assert scene.master.asked == [] and scene.asked_for_master == 1
    scene.address = MASTER
    scene.relay.run()
    assert scene.master.answer() == [fields]


def test_what_nobody_takes_is_dropped_in_the_end() -> None:
    scene = Scene()
    scene.tell(5)
    for _ in range(60):
        scene.relay.run()
        scene.master.answer(ResponseCode.SERVICE_NOT_AVAILABLE)
    scene.relay.run()
    assert scene.master.asked == []


def test_late_word_takes_no_group_back() -> None:
    scene = Scene()
    scene.tell(5)
    scene.offsets.put({"T@g": {0: 6}})
    scene.relay.run()
    assert scene.master.asked == []


def test_member_that_leads_again_takes_the_word_itself() -> None:
    scene = Scene()
    scene.offsets.put({"T@g": {0: 3, 1: 9}})
    scene.tell(5)
    scene.tell(8, queue_id=1)
    scene.parts.leadership.changed("LEADER", 5, "n0")
    scene.relay.run()
    assert scene.offsets.find("g", "T", 0) == 3
    scene.parts.lead()
    scene.relay.run()
    scene.parts.state.write_offsets()
    assert scene.offsets.of_topic("g", "T") == {0: 5, 1: 9}
    assert scene.master.asked == []


def test_stop_ends_a_round() -> None:
    scene = Scene()
    scene.tell(5)
    assert scene.relay.stop() is None
    scene.relay.run()
    assert scene.relay.stop() is not None
    assert scene.master.stopped_count == 1


def test_one_account_has_half_of_what_waits_and_keeps_no_more_than_it_says() -> None:
    scene = Scene()
    for number in range(relay._OF_PAYER_MAX + 10):
        scene.tell(5, queue_id=number, group="flood")
    scene.tell(5, queue_id=7, more="x" * 250_000)
    waiting = scene.relay._waiting
    assert len(waiting) == relay._OF_PAYER_MAX
    other = scene.tell(9, payer="b")
    assert len(waiting) == relay._OF_PAYER_MAX + 1
    assert max(len(str(told.ext_fields)) for told in waiting.values()) < 4096
    passed_on: list[dict[str, str]] = []
    while waiting:
        scene.relay.run()
        assert len(scene.master.asked) <= relay._ROUND_MAX
        passed_on += scene.master.answer()
    assert passed_on[-1] == other and not scene.relay._of_payer


def test_what_no_client_says_is_kept_neither_first_nor_later() -> None:
    scene = Scene()
    scene.tell(5, more="x" * 4096)
    assert not scene.relay._waiting and not scene.relay._of_payer
    fields = scene.tell(6, more="x" * 3000)
    scene.tell(7, more="x" * 4096)
    [told] = scene.relay._waiting.values()
    assert (told.offset, told.ext_fields) == (6, fields)


def test_all_together_have_so_many_places() -> None:
    scene = Scene()
    for payer in ("a", "b", "c"):
        for number in range(relay._OF_PAYER_MAX):
            scene.tell(5, queue_id=number, group=payer, payer=payer)
    assert len(scene.relay._waiting) == relay._WAITING_MAX
    assert scene.relay._of_payer == {"a": relay._OF_PAYER_MAX, "b": relay._OF_PAYER_MAX}


def test_an_offset_counts_for_who_told_it_first_until_it_is_gone() -> None:
    scene = Scene()
    scene.tell(5, payer="a")
    scene.tell(6, payer="b")
    assert scene.relay._of_payer == {"a": 1}
    scene.relay.run()
    scene.master.answer()
    assert not scene.relay._waiting and not scene.relay._of_payer


def test_nothing_counts_any_more_when_this_member_leads_again() -> None:
    scene = Scene()
    scene.tell(5)
    scene.parts.lead()
    scene.relay.run()
    assert not scene.relay._waiting and not scene.relay._of_payer
