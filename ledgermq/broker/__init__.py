"""The broker: messages in, messages out, and the state that belongs to them.

A program of its own; it imports neither the name server nor the client. Contract: a send is
answered when its entry is committed, a pull sees committed messages only, and everything that
changes the broker's state goes through the ledger. Read service.py first, then proposals.py and
dispatch.py.
"""
