"""An outbox for Django: messages that are sent if, and only if, a transaction is committed.

Contract: `outbox.add` writes the message into the database, in the transaction of the caller. After
the commit it is sent, and its row deleted once it is acknowledged. What could not be sent then is
sent by ``manage.py send_outbox``. So a message is sent at least once; its property `OUTBOX_ID` is
the same at each try. It needs the extra ``ledgermq[django]``. Read outbox.py first.
"""
