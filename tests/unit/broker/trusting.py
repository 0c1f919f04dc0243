"""What a follower without a secret asks of its leader: nothing."""

from ledgermq.broker.leader_trust import LeaderTrust
from ledgermq.broker.member_questions import MemberQuestions
from ledgermq.protocol.transport.refusals import Refusals


def trusting() -> LeaderTrust:
    questions = MemberQuestions("broker-a", None, is_required=False)
    return LeaderTrust(questions, lambda _: False, lambda *_: False, Refusals("n0", lambda: 0.0))
