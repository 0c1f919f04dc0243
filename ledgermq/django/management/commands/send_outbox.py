"""manage.py send_outbox: sends what waits in the outbox, once or for ever."""

import logging
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, close_old_connections

from ledgermq.client import ClientError
from ledgermq.django import outbox

_log = logging.getLogger("ledgermq.django")


class Command(BaseCommand):
    """Sends messages that were committed and not acknowledged."""

    help = "Sends the messages of the outbox that were committed and are not sent yet."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declares them."""
        parser.add_argument(
            "--every", type=float, metavar="SECONDS", help="go on for ever, so often; else once"
        )
        parser.add_argument("--older-than", type=float, default=10.0, metavar="SECONDS")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS)

    def handle(self, *_words: Any, **options: Any) -> None:
        """Sends; with --every a failure is logged, and tried again."""
        while True:
            try:
                count = outbox.send_waiting(
                    older_than_s=options["older_than"], using=options["database"]
                )
                if count:
                    self.stdout.write(f"{count} messages sent")
            except ClientError as error:
                if options["every"] is None:
                    raise CommandError(str(error)) from error
                _log.warning("the outbox waits: %s", error)
            if options["every"] is None:
                return
            close_old_connections()
            threading.Event().wait(options["every"])
