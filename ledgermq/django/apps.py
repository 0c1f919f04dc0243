"""The application for INSTALLED_APPS: ``"ledgermq.django"``."""

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """Names the application, whose table is `ledgermq_outboxmessage`."""

    name = "ledgermq.django"
    label = "ledgermq"
    verbose_name = "LedgerMQ outbox"
    default_auto_field = "django.db.models.BigAutoField"
