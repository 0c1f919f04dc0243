"""A site of Django with an outbox: python -m tests.e2e.django_site DATABASE NAME_SERVER TOPIC BODY

As a program it adds a message in a transaction, and is killed after the commit, before it sends.
"""

import importlib
import os
import signal
import sys
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.db import transaction

from ledgermq.client import Message


def set_up(database: str, name_server: str) -> Any:
    """Makes this process the site, with its tables; returns the outbox."""
    settings.configure(
        INSTALLED_APPS=["ledgermq.django"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": database}},
        USE_TZ=True,
        LEDGERMQ={"name_servers": name_server, "group": "site"},
    )
    django.setup()
    call_command("migrate", verbosity=0)
    # Models can be loaded when the site is set up.
    return importlib.import_module("ledgermq.django.outbox")


def main(database: str, name_server: str, topic: str, body: str) -> None:
    outbox = set_up(database, name_server)
    with transaction.atomic():
        transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
        outbox.add(Message(topic, body.encode()))


if __name__ == "__main__":
    main(*sys.argv[1:])
