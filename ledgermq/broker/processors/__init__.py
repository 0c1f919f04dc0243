"""The processors: functions that answer request codes, in files by subject.

A processor takes a request and returns its answer, or an awaitable of one, or None when the answer
comes later or not at all. It raises errors of the room; `dispatch.py` gives them a response code.
A file has one class for the codes of one subject, which is given just the parts it needs; of the
message store it declares what it asks of it. `service/processor_table.py` lists all codes.

    messages    send (with topic_admission), send_back, transactions, pull, query
    clients     heartbeat
    tables      topics, offsets, group_offsets
    operators   admin, inspection, forwarding; access, the rules of access control

What several of them need (tables, rules, appends) lies one floor down, in `broker`.
"""
