"""Clients: who is connected and which groups they are members of, and what they are asked.

`client_table.py` is the table, without I/O. Processors: `heartbeat.py` (heart beats, members, locks
of queues), `forwarding.py` (requests of tools that consumers answer), `reply.py` (a reply is handed
to the client that waits for it).
"""
