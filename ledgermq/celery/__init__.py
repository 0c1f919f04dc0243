"""A transport for kombu, so that Celery runs on the cluster: ``ledgermq://host:port/namespace``.

Contract: at least once; a task is done when it is acknowledged, and what a dead worker has not
acknowledged is done by another. Importing the room makes the URL scheme known. It needs the
extra ``ledgermq[celery]``. Read transport.py first; claims.py and bindings.py decide
without I/O.
"""

from ledgermq.celery.transport import Transport

__all__ = ["Transport"]
