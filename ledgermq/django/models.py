"""The table of the outbox: messages that are to be sent, each until it is acknowledged."""

import uuid

from django.db import models


class OutboxMessage(models.Model):
    """A message that waits; ids rise in the order in which messages were added."""

    outbox_id = models.UUIDField(default=uuid.uuid4, editable=False)
    created = models.DateTimeField(auto_now_add=True, db_index=True)
    topic = models.CharField(max_length=255)
    body = models.BinaryField()
    keys = models.TextField(blank=True, default="")
    tags = models.TextField(blank=True, default="")
    properties = models.JSONField(default=dict)
    flag = models.IntegerField(default=0)
    delay_level = models.IntegerField(default=0)
    # Messages with the same one are sent to one queue, in order; empty for any queue.
    ordering_key = models.TextField(blank=True, default="")

    class Meta:
        """Of the application `ledgermq`, also where its package is not."""

        app_label = "ledgermq"

    def __str__(self) -> str:
        return f"{self.topic} {self.outbox_id}"
