"""Writes that store each row once, also when Spark runs a task of theirs again.

What makes that true, in the order in which it happens:

1. `plan.py`, on the driver: where the target topics end before the first row is sent.
2. `turn.py`, in a task: of the tries of one task only one may send at a time. The others wait,
   until a minute after a try that was killed has sent for the last time.
3. `stored_rows.py`: which ids of rows are in the topics since then. A try looks when its turn
   begins, so it leaves out what a try before it has stored.
4. `sender.py`: nothing is sent twice by a try itself: a send whose answer got lost is looked for
   before it is sent again.
"""
