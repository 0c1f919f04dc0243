"""Messages that wait: for their time, for another try, for the end of their transaction.

`delay.py` and `transactions.py` are the walks of a leader through the two kinds of queues, and
append what becomes of a message by `deliveries.py`. Processors: `send_back.py` (a consumer could
not do it), `transaction_ends.py` (commit, rollback, and the question to a producer). What such
messages are as records is in `records`.
"""
