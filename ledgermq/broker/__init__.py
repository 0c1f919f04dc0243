"""The broker: messages in, messages out, and the state that belongs to them.

A program of its own; it imports neither the name server nor the client. Contract: a send is
answered when its entry is committed, a pull sees committed messages only, and everything that
changes the broker's state goes through the ledger.

Rooms by feature, each with its processors inside; each knows only those that stand before it:

    *.py          codes of errors, who leads, delayed calls; copies of the state, which is a room
                  of its own below (`ledgermq/state`)
    config        keys of upstream's files, parsed once
    selectors     which messages a consumer wants: tags and SQL92
    records       what the broker writes into the log for messages that wait, and who may see it
    access        who may do what
    counts        messages by topic and group, rates
    clocks        the log's times beside this machine's clock; what is old
    clients       who is connected, as a member of which group; requests that clients are asked
    sends         checks, creation on use, the append of a turn, answers when it is committed
    offsets       how far groups are
    waits         delay, retry, transactions
    pulls         reads, parked pulls
    registration  what name servers are told
    storage       what is on disk, opened, flushed and closed; what the ledger tells, carried out
    admin         topics and groups by hand, look-ups, the broker about itself
    ha            master and slaves without a ledger; what a follower asks its leader
    service       builds the parts in order, binds them, starts and stops them

A processor is a function that takes a request and returns its answer, or an awaitable of one, or
None when the answer comes later or not at all. It raises errors of the room; `dispatch.py` gives
them a response code. A class of processors is given just the parts it needs; of the message store
it declares what it asks of it. `service/processor_table.py` lists all codes.

Follow one message: `dispatch.py` finds its processor, `sends/send.py` checks it,
`sends/proposals.py` appends the messages of a turn and answers them when they are committed,
`storage/applier.py` hears of the commit and wakes parked pulls, `pulls/pull.py` gives the message
away.
"""
