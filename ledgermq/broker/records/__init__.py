"""Records that mean something to the broker: delayed messages, half messages, copies. Pure.

What is stored when a message has to wait, what is stored when it has waited, and which records of
the log clients may see (`visible_records.py`).
"""
