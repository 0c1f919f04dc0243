"""The audit log: a line for each change, and for each request that had no right to what it wanted.

Broker and name server share it. `audit_log.py` takes lines in the reactor and has them written,
`audit_file.py` writes them in a thread, `joined_lines.py` joins equal ones. Start with
`audit_log.py`.
"""
