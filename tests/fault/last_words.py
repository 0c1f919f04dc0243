"""What the members of a group say of themselves when a wait for them has failed."""

from collections.abc import Sequence

from ledgermq.dledger.member_state import Candidate, Follower
from ledgermq.dledger.messages import VoteRequest
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.replica import Replica
from ledgermq.dledger.strangers import is_stranger
from ledgermq.dledger.votes import Voter, judge_vote


def describe_replicas(replicas: Sequence[Replica | None], now_ms: float) -> str:
    """Tells for each member its role, its log, how it waits, and why each would not be elected."""
    lines = []
    rafts = {r.self_id: r._raft for r in replicas if r is not None and r._raft is not None}
    for replica in replicas:
        if replica is None or replica._raft is None:
            lines.append("a member is down")
            continue
        lines.append(_describe(replica, replica._raft, now_ms))
        verdicts = [
            f"{voter_id}: {_would_answer(replica._raft, voter, now_ms)}"
            for voter_id, voter in rafts.items()
            if voter_id != replica.self_id
        ]
        lines.append(f"    as a candidate it would hear {', '.join(verdicts)}")
    return "\n".join(lines)


def _describe(replica: Replica, raft: Raft, now_ms: float) -> str:
    state, duty = raft._state, raft._duty
    dialects = {peer_id: dialect.name for peer_id, dialect in state.dialects.items()}
    waits = f"due in {raft.deadline_ms() - now_ms:.0f} ms"
    if isinstance(duty, Candidate):
        answers = {peer_id: result.name for peer_id, (result, _) in duty.tally.items()}
        waits += f", {duty.phase.name} of term {duty.round_term} {answers}"
    elif isinstance(duty, Follower):
        waits += f", leader silent for {now_ms - duty.silence.since_ms:.0f} ms"
    return (
        f"{replica.self_id} {raft.role.name} term {raft.term} voted for {state.voted_for}"
        f" leader {raft.leader_id}, last {raft._log.last_id} durable {raft._log.persisted_index}"
        f" commit {raft.commit_index} applied {replica.applied_index},"
        f" recovering {state.recovering} (noted {replica.is_recovering}) new {state.is_new}"
        f" birth {state.birth} ready {replica.is_ready_leader}, {dialects}, {waits},"
        f" failure {replica.failure!r}"
    )


def _would_answer(candidate: Raft, raft: Raft, now_ms: float) -> str:
    """The answer to a pre-vote; among LedgerMQ members each election begins with one."""
    if not candidate._state.may_vote:
        return "nothing, it does not ask"
    duty, state, last_id = raft._duty, raft._state, candidate._log.last_id
    request = VoteRequest(
        term=candidate.term + 1,
        sender=candidate.config.self_id,
        target=raft.config.self_id,
        last_index=last_id.index,
        last_term=last_id.term,
        pre_vote=True,
        birth=candidate.birth,
    )
    if is_stranger(request, state):
        return "nothing, it holds another birth"
    voter = Voter(
        self_id=raft.config.self_id,
        members=raft.config.members,
        term=raft.term,
        voted_for=state.voted_for,
        leader_id=raft.leader_id,
        last_id=raft._log.last_id,
        recovering=not state.may_vote or (state.is_new and request.last_index >= 0),
        has_live_leader=duty.has_live_leader(now_ms, state.timing),
    )
    return judge_vote(request, voter).result.name
