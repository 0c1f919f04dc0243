"""Sends: from the frame of a producer to the answer that its message is committed.

send.py             the processor: checks, properties, the quick road of usual sends
topic_admission.py  which topic a send goes to, or why to none; creation on use
light_admission.py, message_types.py  checks that few messages need
proposals.py        the messages of one turn become one append and wait for their commit
waiting.py          who waits, as tuples
gathering.py, answering.py  the loops over the sends of a turn; compiled (`ledgermq/kernel.py`)
"""
