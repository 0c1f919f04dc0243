"""The broker: messages in, messages out, and the state that belongs to them.

A program of its own; it imports neither the name server nor the client. Contract: a send is
answered when its entry is committed, a pull sees committed messages only, and everything that
changes the broker's state goes through the ledger.

Three floors, each knows only those below it:

    service/      the running broker: builds all parts, binds them, keeps time, starts and stops
    processors/   one function for each request code: from a command to an answer
    *.py          what a broker knows and decides: tables, rules, limits; plain classes, and the way
                  into the ledger (`proposals.py`, `state_log.py`)

Follow one message: `dispatch.py` finds its processor, `processors/send.py` checks it,
`proposals.py` appends the messages of a turn and answers them when they are committed,
`service/applier.py` hears of the commit and wakes parked pulls, `processors/pull.py` gives the
message away.
"""
