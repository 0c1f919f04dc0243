"""The name server: which broker serves which topic, told by the brokers themselves.

Nothing here is replicated: every broker registers with every name server, and a route table is
made anew from those registrations. Only the key-value configuration is kept on disk. Read
`route_table.py` first; it holds all rules and does no I/O.
"""
