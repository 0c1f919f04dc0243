"""The processors: functions that answer request codes, in files by subject.

A processor takes a request and returns its answer, or an awaitable of one, or None when the answer
comes later or not at all. It raises errors of the room; `dispatch.py` gives them a response code.
"""
