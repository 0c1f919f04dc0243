"""The broker's state: one replicated machine, pure but for a line in the log when it is refused.

broker_state.py   what a broker asks for: commands in, tables out
machine.py        apply: the one way in which a table changes
commands.py       what is proposed, and its first form in the log; formats.py: which forms there are
proposals.py      commands on their way; sweep.py tells the state again, range by range
topics.py, subscriptions.py, consumer_offsets.py, queue_locks.py, queue_progress.py   the tables
coming.py, offset_commits.py, lock_requests.py   what a leader knows of changes on their way
offset_expiry.py  which offsets nobody uses any more
names.py, errors.py   what names may be, and how a broker refuses
"""
