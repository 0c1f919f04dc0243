"""Pulls: committed messages of a queue, or a wait for the next one.

`pull.py` is the processor and decides; `quick_pulls.py` answers usual ones with the same bytes;
`long_polling.py` holds those that wait; `matching_reads.py` reads by properties; `offset_moved.py`
notes who asked outside of a queue.
"""
